/*
 * base/err: status codes and the one-line error that travels with them.
 *
 * A function that can fail returns lg_status, is marked LG_NODISCARD and fills the caller's lg_err at the
 * place where the fault is detected. The function that knows what the fault is about (the file, the request
 * field) adds the subject once; later subjects do not overwrite it. Only app and server print errors or map
 * codes.
 *
 * Surprise: `err` may be NULL everywhere; the status alone is then all the caller learns.
 */
#ifndef LG_BASE_ERR_H
#define LG_BASE_ERR_H

#include <stdbool.h>
#include <stddef.h>

#if defined(__GNUC__)
#define LG_NODISCARD __attribute__((warn_unused_result))
#define LG_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define LG_NORETURN __attribute__((noreturn))
#else
#define LG_NODISCARD
#define LG_PRINTF(fmt, args)
#define LG_NORETURN
#endif

typedef enum lg_status {
    LG_OK = 0,
    LG_E_INPUT,       /* bytes from outside are wrong: file, request, flag */
    LG_E_UNSUPPORTED, /* well-formed, but nothing we can run */
    LG_E_IO,          /* the operating system refused */
    LG_E_NOMEM,       /* memory, planned or not */
    LG_E_LIMIT,       /* a configured limit was reached */
    LG_E_DEVICE,      /* an accelerator failed */
    LG_E_CANCELLED,   /* somebody asked for the work to stop */
    LG_E_INTERNAL,    /* a result that cannot be: a fault of ours, or of the model's numbers */
} lg_status;

typedef struct lg_err {
    lg_status code;
    char subject[128]; /* what it is about; set once */
    char msg[256];     /* what is wrong and what would be right; no newline */
    const char *file;  /* where it was detected: debug log only */
    int line;
} lg_err;

#define LG_FAIL(err, code, ...) lg_err_set((err), (code), __FILE__, __LINE__, __VA_ARGS__)
#define LG_TRY(call)               \
    do {                           \
        lg_status lg_st_ = (call); \
        if (lg_st_ != LG_OK)       \
            return lg_st_;         \
    } while (0)

/* States what our own code guarantees; never guards input. Stays on in release builds. */
#define LG_ASSERT(cond) ((cond) ? (void)0 : lg_assert_fail(#cond, __FILE__, __LINE__))

/* Fill `err` (may be NULL) and return `code`. Control characters in the text are replaced by '?', overlong
 * text is cut on a UTF-8 boundary; the subject is kept if one was set already. */
lg_status lg_err_set(lg_err *err, lg_status code, const char *file, int line, const char *fmt, ...)
    LG_PRINTF(5, 6);

/* Say what the error is about, unless that was said before. Returns err->code, or LG_OK for NULL. */
lg_status lg_err_subject(lg_err *err, const char *fmt, ...) LG_PRINTF(2, 3);

/* The user's line, "subject: msg" or "msg", into `out` of `n` bytes (NUL-terminated). Returns out. */
char *lg_err_line(const lg_err *err, char *out, size_t n);

LG_NORETURN void lg_assert_fail(const char *cond, const char *file, int line);

/* Overflow-safe size arithmetic for numbers from outside: false when the result does not fit; *out untouched
 * then. */
LG_NODISCARD bool lg_mul_size(size_t a, size_t b, size_t *out);
LG_NODISCARD bool lg_add_size(size_t a, size_t b, size_t *out);

#endif
