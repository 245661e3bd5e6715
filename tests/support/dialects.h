/*
 * tests/support/dialects: what the tests of the dialects share: a service without sockets or engine, jobs
 * made from bodies, and a model that is a script. What the script writes goes through the real reply parser
 * and the real event queue into the dialect, cut as the test wants.
 *
 * Random ids are replaced in what comes out (msg_0, toolu_0, toolu_1, ...), so that it can be compared.
 * A broken fixture ends the process.
 */
#ifndef DIALECTS_H
#define DIALECTS_H

#include "server/dialect.h"
#include "server/http.h"
#include "server/jobs.h"
#include "support/texts.h"

/* The settings (defaults; a test may change and must reset them) and the service that uses them, over the
 * vocabulary of tt_vocab. */
lg_settings *dk_settings(void);
void dk_reset(void);
lg_service *dk_service(void);

/* A job from a body that the dialect accepts, or NULL with *e filled. Freed with lg_job_release. The id is
 * set to PREFIX0, created to 1. */
lg_job *dk_job(const lg_dialect *d, const char *body, lg_api_error *e);
/* The same for a body that must be accepted. */
lg_job *dk_accept(const lg_dialect *d, const char *body);
/* The prompt as text, control tokens spelled out. */
void dk_prompt(const lg_job *job, lg_buf *out);
/* The prompt of the body ends so. */
void dk_prompt_ends(const lg_dialect *d, const char *body, const char *want);
/* The body is answered with 400, this field and this message. */
void dk_refuses(const lg_dialect *d, const char *body, const char *param, const char *message);

/* What the model does. A byte below 32 other than line end and tab is the token of that id (18 <think>, 19
 * </think>, 24 </assistant>, 25 <tool_call>, 26 </tool_call>); the rest is text. */
typedef struct dk_script {
    const char *text;
    size_t step;              /* text is cut into so many bytes; 0: not at all */
    lg_end end;               /* how generation ends when the script does not */
    const char *error;        /* not NULL: then comes an error in place of the end */
} dk_script;
/* The whole life of the job: opening events, the reply, the end; appended to `out`. */
void dk_play(lg_job *job, const dk_script *s, lg_buf *out);

/* Calls fn for each event of a stream: its name ("" when there is none) and its data. Aborts on bytes that
 * are not well-formed events. */
typedef void (*dk_event_fn)(void *ctx, lg_str name, lg_str data);
size_t dk_each_event(lg_str stream, dk_event_fn fn, void *ctx);

/* Recorded answers: `record` appends all of them ("== name", then the bytes). The first difference to
 * tests/golden/FILE ends the process. With the arguments --write PATH the program records instead: true then.
 */
typedef void (*dk_record_fn)(lg_buf *out);
void dk_compare(dk_record_fn record, const char *file);
bool dk_write(int argc, char **argv, dk_record_fn record);

#endif
