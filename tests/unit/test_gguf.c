/*
 * Tests of gguf/gguf and gguf/gguf_write: what is written is read back; every kind of damage is one clear
 * error; split models are found from any part; an allocation that fails anywhere is an error and no leak.
 *
 * Damaged files are built byte by byte here, so that the reader is not tested with the writer's ideas alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "gguf/gguf.h"
#include "gguf/gguf_write.h"
#include "support/scratch.h"

// --- allocation faults: the link step routes the library's allocations through these ---

static long fail_at = -1; // this allocation from now fails; negative: none
static size_t largest;    // largest single request since reset

#if LG_WRAP_ALLOC
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);

static bool fails(size_t n)
{
    largest = n > largest ? n : largest;
    return fail_at >= 0 && fail_at-- == 0;
}

void *__wrap_malloc(size_t n)
{
    return fails(n) ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails(n * size) ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails(n) ? NULL : __real_realloc(p, n);
}

char *__wrap_strdup(const char *s)
{
    return fails(strlen(s)) ? NULL : __real_strdup(s);
}
#endif

// --- building files ---

typedef struct image {
    lg_buf b;
} image;

static void u(image *m, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        assert_true(lg_buf_addc(&m->b, (char)(v >> 8 * i)));
}

static void str(image *m, const char *z)
{
    u(m, strlen(z), 8);
    assert_true(lg_buf_addz(&m->b, z));
}

static void start(image *m, uint32_t version, uint64_t n_tensors, uint64_t n_kv)
{
    lg_buf_init(&m->b, 1 << 24);
    assert_true(lg_buf_addz(&m->b, "GGUF"));
    u(m, version, 4);
    u(m, n_tensors, 8);
    u(m, n_kv, 8);
}

static void kv(image *m, const char *key, uint32_t type)
{
    str(m, key);
    u(m, type, 4);
}

static void kv_u16(image *m, const char *key, uint64_t v)
{
    kv(m, key, LG_GV_U16);
    u(m, v, 2);
}

static void tensor(image *m, const char *name, uint32_t n_dims, const uint64_t *ne, uint32_t type,
                   uint64_t offset)
{
    str(m, name);
    u(m, n_dims, 4);
    for (uint32_t i = 0; i < n_dims && i < 4; i++)
        u(m, ne[i], 8);
    u(m, type, 4);
    u(m, offset, 8);
}

static void pad(image *m, size_t align)
{
    while (m->b.n % align)
        assert_true(lg_buf_addc(&m->b, 0));
}

static void data(image *m, size_t n)
{
    while (n--)
        assert_true(lg_buf_addc(&m->b, 'd'));
}

// Opens the image, from memory that ends where it ends (sanitizers see a byte read behind it).
static lg_status open_image(const image *m, lg_gguf **g, void **mem, lg_err *err)
{
    *mem = malloc(m->b.n + !m->b.n); // aligned less than promised, but these tests read no tensor data
    assert_non_null(*mem);
    if (m->b.n)
        memcpy(*mem, m->b.p, m->b.n);
    *err = (lg_err){0};
    return lg_gguf_open_mem("test.gguf", *mem, m->b.n, g, err);
}

// The image must be refused with one clean line that contains all of `want` (parts separated by '|').
static void refused(image *m, const char *want)
{
    lg_gguf *g = NULL;
    void *mem;
    lg_err err;
    char line[512];

    largest = 0;
    lg_status st = open_image(m, &g, &mem, &err);
    if (st == LG_OK)
        fail_msg("accepted; expected: %s", want);
    assert_null(g);
    assert_int_equal(err.code, st);
    lg_err_line(&err, line, sizeof line);
    assert_ptr_equal(strstr(line, "test.gguf: "), line);
    for (const char *c = line; *c; c++)
        assert_true((unsigned char)*c >= 32);
    char parts[256];
    (void)snprintf(parts, sizeof parts, "%s", want);
    for (char *p = strtok(parts, "|"); p; p = strtok(NULL, "|"))
        if (!strstr(line, p))
            fail_msg("\"%s\" is not in: %s", p, line);
    assert_true(largest < 4 * m->b.n + 4096); // no memory on the word of the file
    free(mem);
    lg_buf_free(&m->b);
}

static const uint64_t one_row[4] = {8, 1, 1, 1};

// --- writer and reader ---

static lg_status write_sample(const char *path, lg_err *err)
{
    static const uint64_t ne[4][4] = {{64, 3}, {256, 2, 5}, {7}, {32, 1, 1, 2}};
    static const int32_t ints[] = {-1, 2, INT32_MIN};
    static const float floats[] = {0.5f, -2.0f};
    static unsigned char bytes[4096];
    const lg_str strs[] = {LG_STR("a"), LG_STR(""), LG_STR("\xe3\x80\x88|")};
    lg_gguf_writer *w;

    LG_TRY(lg_gguf_write_open(path, &w, err));
    lg_gguf_put_str(w, "general.architecture", LG_STR("laguna"));
    lg_gguf_put_u32(w, "u", UINT32_MAX);
    lg_gguf_put_i64(w, "i8", LG_GV_I8, -5);
    lg_gguf_put_i64(w, "u64", LG_GV_U64, -1); // 2^64 - 1: no int64
    lg_gguf_put_i64(w, "i64", LG_GV_I64, INT64_MIN);
    lg_gguf_put_f32(w, "f", 2.5f);
    lg_gguf_put_f32(w, "f.int", 3.0f);
    lg_gguf_put_bool(w, "yes", true);
    lg_gguf_put_array(w, "ints", LG_GV_I32, ints, 3);
    lg_gguf_put_array(w, "floats", LG_GV_F32, floats, 2);
    lg_gguf_put_array(w, "none", LG_GV_U8, NULL, 0);
    lg_gguf_put_strs(w, "strs", strs, 3);
    lg_gguf_put_tensor(w, LG_STR("q8"), LG_Q8_0, 2, ne[0]);
    lg_gguf_put_tensor(w, LG_STR("k"), LG_Q4_K, 3, ne[1]);
    lg_gguf_put_tensor(w, LG_STR("v"), LG_F32, 1, ne[2]);
    lg_gguf_put_tensor(w, LG_STR("four"), LG_MXFP4, 4, ne[3]);
    lg_status st = lg_gguf_write_begin(w, err);
    if (st != LG_OK) {
        lg_gguf_write_abort(w);
        return st;
    }
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)i;
    // 204 + 1440 + 28 + 34 bytes, in pieces that do not end where tensors end
    (void)lg_gguf_write_data(w, bytes, 100);
    (void)lg_gguf_write_data(w, bytes + 100, 1600);
    (void)lg_gguf_write_data(w, bytes + 1700, 6);
    return lg_gguf_write_finish(w, err);
}

static void check_sample(const lg_gguf *g)
{
    int64_t i;
    double f;
    bool b;
    lg_str s;

    assert_int_equal(lg_gguf_version(g), 3);
    assert_int_equal(lg_gguf_parts(g), 1);
    assert_int_equal(lg_gguf_n_kv(g), 12);
    assert_true(lg_kv_str(lg_gguf_find(g, "general.architecture"), &s) && lg_str_eqz(s, "laguna"));
    assert_true(lg_kv_i64(lg_gguf_find(g, "u"), &i) && i == UINT32_MAX);
    assert_false(lg_kv_bool(lg_gguf_find(g, "u"), &b));
    assert_true(lg_kv_i64(lg_gguf_find(g, "i8"), &i) && i == -5);
    assert_true(lg_kv_f64(lg_gguf_find(g, "i8"), &f) && f == -5.0);
    assert_false(lg_kv_i64(lg_gguf_find(g, "u64"), &i));
    assert_false(lg_kv_f64(lg_gguf_find(g, "u64"), &f));
    assert_true(lg_kv_i64(lg_gguf_find(g, "i64"), &i) && i == INT64_MIN);
    assert_true(lg_kv_f64(lg_gguf_find(g, "f"), &f) && f == 2.5);
    assert_false(lg_kv_i64(lg_gguf_find(g, "f"), &i));
    assert_true(lg_kv_i64(lg_gguf_find(g, "f.int"), &i) && i == 3);
    assert_true(lg_kv_bool(lg_gguf_find(g, "yes"), &b) && b);
    assert_true(lg_kv_i64(lg_gguf_find(g, "yes"), &i) && i == 1);
    assert_false(lg_kv_str(lg_gguf_find(g, "yes"), &s));
    assert_false(lg_kv_i64(lg_gguf_find(g, "general.architecture"), &i));
    assert_false(lg_kv_i64(lg_gguf_find(g, "ints"), &i));
    assert_true(lg_kv_elem_i64(lg_gguf_find(g, "ints"), 2, &i) && i == INT32_MIN);
    assert_false(lg_kv_elem_i64(lg_gguf_find(g, "ints"), 3, &i));
    assert_true(lg_kv_elem_f64(lg_gguf_find(g, "floats"), 1, &f) && f == -2.0);
    assert_true(lg_kv_elem_i64(lg_gguf_find(g, "floats"), 1, &i) && i == -2);
    assert_false(lg_kv_elem_i64(lg_gguf_find(g, "none"), 0, &i));
    assert_true(lg_kv_elem_str(lg_gguf_find(g, "strs"), 1, &s) && s.n == 0);
    assert_true(lg_kv_elem_str(lg_gguf_find(g, "strs"), 2, &s) && s.n == 4);
    assert_false(lg_kv_elem_str(lg_gguf_find(g, "strs"), 3, &s));
    assert_false(lg_kv_elem_str(lg_gguf_find(g, "ints"), 0, &s));
    assert_null(lg_gguf_find(g, "u8"));
    assert_false(lg_kv_i64(NULL, &i) || lg_kv_bool(NULL, &b) || lg_kv_str(NULL, &s) ||
                 lg_kv_elem_f64(NULL, 0, &f));

    assert_int_equal(lg_gguf_n_tensors(g), 4);
    const lg_gguf_tensor *t = lg_gguf_find_tensor(g, LG_STR("k"));
    assert_non_null(t);
    assert_true(t->type == LG_Q4_K && t->n_dims == 3 && t->ne[2] == 5 && t->ne[3] == 1 && t->bytes == 1440);
    assert_int_equal(t->data[0], 204);
    assert_int_equal(t->offset % 32, 0);
    t = lg_gguf_find_tensor(g, LG_STR("four"));
    assert_true(t && t->n_dims == 4 && t->bytes == 34 && t->data[33] == (unsigned char)1705);
    assert_null(lg_gguf_find_tensor(g, LG_STR("kk")));
}

static void test_round_trip(void **state)
{
    const char *path = scratch_path("sample"), *copy = scratch_path("copy");
    lg_gguf *g = NULL;
    lg_gguf_writer *w;
    lg_err err = {0};
    struct stat sb;

    (void)state;
    assert_int_equal(write_sample(path, &err), LG_OK);
    assert_int_equal(lg_gguf_open(path, &g, &err), LG_OK);
    check_sample(g);
    assert_string_equal(lg_gguf_path(g, 0), path);
    assert_int_equal(stat(path, &sb), 0);
    assert_int_equal(lg_gguf_file_bytes(g), sb.st_size);

    // a copy key by key and tensor by tensor is the same file
    assert_int_equal(lg_gguf_write_open(copy, &w, &err), LG_OK);
    for (size_t i = 0; i < lg_gguf_n_kv(g); i++)
        lg_gguf_put_copy(w, lg_gguf_kv_at(g, i));
    for (size_t i = 0; i < lg_gguf_n_tensors(g); i++) {
        const lg_gguf_tensor *t = lg_gguf_tensor_at(g, i);
        lg_gguf_put_tensor(w, t->name, t->type, t->n_dims, t->ne);
    }
    assert_int_equal(lg_gguf_write_begin(w, &err), LG_OK);
    for (size_t i = 0; i < lg_gguf_n_tensors(g); i++)
        assert_true(lg_gguf_write_data(w, lg_gguf_tensor_at(g, i)->data, lg_gguf_tensor_at(g, i)->bytes));
    assert_int_equal(lg_gguf_write_finish(w, &err), LG_OK);
    lg_gguf *h = NULL;
    assert_int_equal(lg_gguf_open(copy, &h, &err), LG_OK);
    check_sample(h);
    assert_int_equal(lg_gguf_file_bytes(h), sb.st_size);
    lg_gguf_close(h);
    lg_gguf_close(g);
    lg_gguf_close(NULL);
    (void)unlink(path);
    (void)unlink(copy);
}

static void test_write_fails(void **state)
{
    lg_gguf_writer *w;
    lg_err err = {0};
    const uint64_t bad[2] = {100, 2}, huge[3] = {UINT64_C(1) << 40, UINT64_C(1) << 20, 1 << 10};
    const char *path = scratch_path("bad");

    (void)state;
    assert_int_equal(lg_gguf_write_open(path, &w, &err), LG_OK);
    lg_gguf_put_tensor(w, LG_STR("x"), LG_Q4_K, 2, bad);
    assert_int_equal(lg_gguf_write_begin(w, &err), LG_E_INPUT);
    assert_non_null(strstr(err.msg, "tensor x [100, 2"));
    lg_gguf_write_abort(w);
    assert_int_equal(lg_gguf_write_open(path, &w, &err), LG_OK);
    lg_gguf_put_tensor(w, LG_STR("y"), LG_F32, 3, huge);
    assert_int_equal(lg_gguf_write_begin(w, &err), LG_E_INPUT);
    lg_gguf_write_abort(w);
    assert_int_not_equal(access(path, F_OK), 0);
    lg_gguf_write_abort(NULL);
    // a folder that does not exist
    err = (lg_err){0};
    assert_int_equal(lg_gguf_write_open("/nonexistent-folder/x.gguf", &w, &err), LG_E_IO);
    assert_string_equal(err.subject, "/nonexistent-folder/x.gguf");
    // a disk that is full: the device that always says so
    if (access("/dev/full", W_OK) == 0) {
        err = (lg_err){0};
        assert_int_equal(write_sample("/dev/full", &err), LG_E_IO);
        assert_non_null(strstr(err.msg, "No space"));
    }
}

// --- damage ---

static void test_header(void **state)
{
    image m;

    (void)state;
    lg_buf_init(&m.b, 1 << 20);
    refused(&m, "empty");
    lg_buf_init(&m.b, 1 << 20);
    assert_true(lg_buf_addz(&m.b, "GGUF123"));
    refused(&m, "7 bytes|too few");
    start(&m, 3, 0, 0);
    m.b.n--;
    refused(&m, "23 bytes");
    start(&m, 1, 0, 0);
    refused(&m, "version 1|convert");
    start(&m, 4, 0, 0);
    refused(&m, "version 4|2 and 3");
    start(&m, 3u << 24, 0, 0);
    refused(&m, "big-endian");
    start(&m, 3, 0, 0);
    memcpy(m.b.p, "FUGG", 4);
    refused(&m, "big-endian");
    start(&m, 3, 0, 0);
    memcpy(m.b.p, "PK\3\4", 4);
    refused(&m, "not a GGUF file (starts with \"PK");
    lg_buf_init(&m.b, 1 << 20);
    assert_true(lg_buf_addz(&m.b, "# My notes\n"));
    refused(&m, "not a GGUF file (starts with \"# My \"); see");
    lg_buf_init(&m.b, 1 << 20);
    assert_true(lg_buf_addz(&m.b, "version https://git-lfs.github.com/spec/v1\noid sha256:00\n"));
    refused(&m, "Git LFS pointer");
    lg_buf_init(&m.b, 1 << 20);
    assert_true(lg_buf_addz(&m.b, "<!doctype html><html>"));
    refused(&m, "web page");
    start(&m, 3, UINT64_MAX, 0);
    refused(&m, "18446744073709551615 tensors");
    start(&m, 2, 0, UINT64_MAX);
    refused(&m, "18446744073709551615 metadata keys");
    start(&m, 3, 0, 60000);
    refused(&m, "name of key 1 of 60000");
}

static void test_metadata(void **state)
{
    image m;

    (void)state;
    start(&m, 3, 0, 1); // 37 bytes
    kv(&m, "", LG_GV_U8);
    u(&m, 0, 1);
    assert_int_equal(m.b.n, 37);
    refused(&m, "key 1 of 1|0 bytes");
    start(&m, 3, 0, 1);
    u(&m, UINT64_MAX, 8);
    refused(&m, "truncated");
    start(&m, 3, 0, 1);
    kv(&m, "k", 13);
    refused(&m, "key k|unknown value type 13");
    start(&m, 3, 0, 1);
    kv(&m, "k", LG_GV_STR);
    u(&m, UINT64_C(1) << 63, 8);
    refused(&m, "key k");
    start(&m, 3, 0, 1);
    kv(&m, "k", LG_GV_F64);
    u(&m, 0, 7);
    refused(&m, "key k");
    start(&m, 3, 0, 2);
    kv_u16(&m, "twice", 1);
    kv_u16(&m, "twice", 1);
    refused(&m, "key twice occurs twice");
    start(&m, 3, 0, 1);
    kv(&m, "esc\x1b[2J\n", 99);
    refused(&m, "unknown value type 99");

    start(&m, 3, 0, 1); // an array of u32 with a length of 10^9 in a file of 60 bytes
    kv(&m, "tokenizer.x", LG_GV_ARRAY);
    u(&m, LG_GV_U32, 4);
    u(&m, 1000000000, 8);
    refused(&m, "tokenizer.x|1000000000 elements");
    start(&m, 3, 0, 1);
    kv(&m, "s", LG_GV_ARRAY);
    u(&m, LG_GV_STR, 4);
    u(&m, UINT64_MAX / 8, 8);
    data(&m, 64);
    refused(&m, "key s claims");
    start(&m, 3, 0, 1); // fits as a count, but the strings run out
    kv(&m, "s", LG_GV_ARRAY);
    u(&m, LG_GV_STR, 4);
    u(&m, 4, 8);
    str(&m, "first");
    u(&m, 1 << 30, 8);
    data(&m, 64);
    refused(&m, "key s|truncated");
    start(&m, 3, 0, 1);
    kv(&m, "nested", LG_GV_ARRAY);
    u(&m, LG_GV_ARRAY, 4);
    u(&m, 1, 8);
    refused(&m, "nested|array of arrays");
    start(&m, 3, 0, 1);
    kv(&m, "a", LG_GV_ARRAY);
    u(&m, 77, 4);
    u(&m, 1, 8);
    refused(&m, "unknown type 77");

    static const struct {
        uint64_t v;
        const char *want;
    } aligns[] = {
        {0, "general.alignment is 0"}, {4, "8 to"}, {24, "power of two"}, {1u << 31, "general.alignment"}};
    for (size_t i = 0; i < sizeof aligns / sizeof *aligns; i++) {
        start(&m, 3, 0, 1);
        kv(&m, "general.alignment", LG_GV_U32);
        u(&m, aligns[i].v, 4);
        refused(&m, aligns[i].want);
    }
    start(&m, 3, 0, 1);
    kv(&m, "general.alignment", LG_GV_STR);
    str(&m, "32");
    refused(&m, "general.alignment has type string");
    start(&m, 3, 0, 1);
    kv(&m, "split.count", LG_GV_STR);
    str(&m, "3");
    refused(&m, "split.count has type string");
    start(&m, 3, 0, 1);
    kv_u16(&m, "split.count", 65535);
    refused(&m, "split.count is 65535");
    start(&m, 3, 0, 1);
    kv_u16(&m, "split.count", 3);
    refused(&m, "split.no is missing");
    start(&m, 3, 0, 2);
    kv_u16(&m, "split.count", 3);
    kv_u16(&m, "split.no", 3);
    refused(&m, "split.no is 3");
}

static void one_tensor(image *m, uint32_t n_dims, const uint64_t *ne, uint32_t type, uint64_t offset,
                       size_t bytes)
{
    start(m, 3, 1, 0);
    tensor(m, "t", n_dims, ne, type, offset);
    pad(m, 32);
    data(m, bytes);
}

static void test_tensors(void **state)
{
    image m;
    const uint64_t empty[2] = {0, 3}, odd[2] = {33, 1};
    const uint64_t wrap[4] = {UINT64_C(1) << 32, UINT64_C(1) << 32, 16, 1},
                   wrap2[4] = {1 << 30, 1 << 30, 1 << 30, 1 << 30};

    (void)state;
    one_tensor(&m, 0, one_row, LG_F32, 0, 32);
    refused(&m, "tensor t has 0 dimensions");
    one_tensor(&m, 9, one_row, LG_F32, 0, 32);
    refused(&m, "tensor t has 9 dimensions");
    one_tensor(&m, 1u << 31, one_row, LG_F32, 0, 32);
    refused(&m, "tensor t has 2147483648 dimensions");
    one_tensor(&m, 2, empty, LG_F32, 0, 32);
    refused(&m, "tensor t has a dimension of size 0");
    one_tensor(&m, 2, odd, LG_Q8_0, 0, 64);
    refused(&m, "tensor t has rows of 33 elements|Q8_0|multiple of 32");
    one_tensor(&m, 1, one_row, 4, 0, 32);
    refused(&m, "tensor t has unknown type 4");
    one_tensor(&m, 1, one_row, 1000000, 0, 32);
    refused(&m, "tensor t has unknown type 1000000");
    one_tensor(&m, 4, wrap, LG_F32, 0, 32);
    refused(&m, "size of tensor t overflows");
    one_tensor(&m, 4, wrap2, LG_F16, 0, 32);
    refused(&m, "size of tensor t overflows");
    one_tensor(&m, 1, one_row, LG_F32, 16, 64);
    refused(&m, "tensor t has offset 16|multiple of the alignment 32");
    one_tensor(&m, 1, one_row, LG_F32, UINT64_MAX - 31, 64); // points back into the file when it wraps
    refused(&m, "tensor t has offset 18446744073709551584|overflows");
    one_tensor(&m, 1, one_row, LG_F32, UINT64_C(1) << 62, 64);
    refused(&m, "tensor t lies behind the end");
    for (size_t cut = 1; cut <= 32; cut += 31) {
        char want[64];
        one_tensor(&m, 1, one_row, LG_F32, 0, 32);
        m.b.n -= cut;
        (void)snprintf(want, sizeof want, "tensor t|%zu bytes are missing", cut);
        refused(&m, want);
    }
    start(&m, 3, 2, 0);
    tensor(&m, "a", 1, one_row, LG_F32, 0);
    tensor(&m, "b", 1, one_row, LG_F32, 0);
    pad(&m, 32);
    data(&m, 64);
    refused(&m, "tensor b overlaps tensor a");
    start(&m, 3, 2, 0);
    tensor(&m, "same", 1, one_row, LG_F32, 0);
    tensor(&m, "same", 1, one_row, LG_F32, 32);
    pad(&m, 32);
    data(&m, 64);
    refused(&m, "tensor same occurs twice");
    start(&m, 3, 2, 0);
    tensor(&m, "a", 1, one_row, LG_F32, 0);
    pad(&m, 32);
    refused(&m, "entry 2 of 2|tensor table");
    start(&m, 3, 1, 0);
    tensor(&m, "", 1, one_row, LG_F32, 0);
    data(&m, 64);
    refused(&m, "tensor 1 of 1 has a name of 0 bytes");
    start(&m, 3, 1, 0); // two files joined
    tensor(&m, "a", 1, one_row, LG_F32, 0);
    pad(&m, 32);
    data(&m, 32);
    char again[96];
    memcpy(again, m.b.p, sizeof again);
    assert_true(lg_buf_add(&m.b, again, sizeof again));
    refused(&m, "followed by 96 bytes of another GGUF file");
}

// A file cut at every possible length is refused, or complete.
static void test_every_cut(void **state)
{
    image m;
    lg_gguf *g;
    void *mem;
    lg_err err;

    (void)state;
    start(&m, 3, 1, 3);
    kv_u16(&m, "a", 7);
    kv(&m, "strs", LG_GV_ARRAY);
    u(&m, LG_GV_STR, 4);
    u(&m, 2, 8);
    str(&m, "one");
    str(&m, "two");
    kv(&m, "s", LG_GV_STR);
    str(&m, "value");
    tensor(&m, "t", 1, one_row, LG_F32, 0);
    pad(&m, 32);
    data(&m, 32);
    size_t whole = m.b.n;
    for (m.b.n = 0; m.b.n < whole; m.b.n++) {
        assert_int_not_equal(open_image(&m, &g, &mem, &err), LG_OK);
        free(mem);
    }
    assert_int_equal(open_image(&m, &g, &mem, &err), LG_OK);
    lg_gguf_close(g);
    free(mem);
    lg_buf_free(&m.b);
}

static void test_wide_keys(void **state)
{
    image m;
    lg_gguf *g;
    void *mem;
    lg_err err;
    int64_t v;

    (void)state;
    start(&m, 2, 0, 3); // integer keys of any width, also where the container itself reads them
    kv(&m, "general.alignment", LG_GV_I64);
    u(&m, 64, 8);
    kv(&m, "split.count", LG_GV_U64);
    u(&m, 1, 8);
    kv(&m, "flag", LG_GV_BOOL);
    u(&m, 255, 1);
    assert_int_equal(open_image(&m, &g, &mem, &err), LG_OK);
    assert_int_equal(lg_gguf_version(g), 2);
    assert_true(lg_kv_i64(lg_gguf_find(g, "flag"), &v) && v == 1);
    assert_string_equal(lg_gguf_vtype_name(lg_gguf_find(g, "flag")->type), "bool");
    lg_gguf_close(g);
    free(mem);
    lg_buf_free(&m.b);
}

// --- split models ---

static void write_file(const char *path, const void *p, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static char split_base[200];

static const char *part_path(int no, int count)
{
    static char path[4][256];
    static int turn;

    turn = (turn + 1) % 4;
    (void)snprintf(path[turn], sizeof path[0], "%s-%05d-of-%05d.gguf", split_base, no, count);
    return path[turn];
}

// Part `no` (from 1) with one tensor, or with none if `bare`; part 1 has the model's metadata.
static void build_part(image *m, int no, int says_no, int count, int total, const char *name, bool bare)
{
    start(m, 3, bare ? 0 : 1, no == 1 ? 4 : 3);
    kv_u16(m, "split.no", (uint64_t)says_no - 1);
    kv_u16(m, "split.count", (uint64_t)count);
    kv(m, "split.tensors.count", LG_GV_I32);
    u(m, (uint64_t)total, 4);
    if (no == 1) {
        kv(m, "general.architecture", LG_GV_STR);
        str(m, "laguna");
    }
    if (!bare)
        tensor(m, name, 1, one_row, LG_F32, 0);
    pad(m, 32);
    data(m, bare ? 0 : 32);
}

static void write_parts(int total, bool bare)
{
    static const char *const names[] = {"one", "two", "three"};

    for (int i = 1; i <= 3; i++) {
        image m;
        build_part(&m, i, i, 3, total, names[i - 1], bare && i == 1);
        write_file(part_path(i, 3), m.b.p, m.b.n);
        lg_buf_free(&m.b);
    }
}

static void expect_error(const char *path, const char *want)
{
    lg_gguf *g = NULL;
    lg_err err = {0};
    char line[512], parts[256];

    if (lg_gguf_open(path, &g, &err) == LG_OK)
        fail_msg("%s accepted; expected: %s", path, want);
    lg_err_line(&err, line, sizeof line);
    (void)snprintf(parts, sizeof parts, "%s", want);
    for (char *p = strtok(parts, "|"); p; p = strtok(NULL, "|"))
        if (!strstr(line, p))
            fail_msg("\"%s\" is not in: %s", p, line);
}

static void test_split(void **state)
{
    lg_gguf *g;
    lg_err err = {0};
    image m;
    lg_str s;

    (void)state;
    (void)snprintf(split_base, sizeof split_base, "%s", scratch_path("split"));
    for (int bare = 0; bare < 2; bare++) {
        write_parts(bare ? 2 : 3, bare);
        for (int i = 1; i <= 3; i++) {
            assert_int_equal(lg_gguf_open(part_path(i, 3), &g, &err), LG_OK);
            assert_int_equal(lg_gguf_parts(g), 3);
            assert_int_equal(lg_gguf_n_tensors(g), bare ? 2 : 3);
            assert_true(lg_kv_str(lg_gguf_find(g, "general.architecture"), &s) && lg_str_eqz(s, "laguna"));
            const lg_gguf_tensor *t = lg_gguf_find_tensor(g, LG_STR("three"));
            assert_true(t && t->part == 2 && t->data[0] == 'd');
            assert_string_equal(lg_gguf_path(g, 1), part_path(2, 3));
            lg_gguf_close(g);
        }
    }
    write_parts(4, false);
    expect_error(part_path(2, 3), "3 tensors together|says 4");
    write_parts(3, false);

    // one, then two parts missing
    assert_int_equal(unlink(part_path(2, 3)), 0);
    expect_error(part_path(1, 3), "part 2 of 3 missing|-00002-of-00003.gguf");
    assert_int_equal(unlink(part_path(1, 3)), 0);
    expect_error(part_path(3, 3), "parts 1-2 of 3 missing|-00001-of-00003.gguf|-00002-of-00003.gguf");

    // joined parts, under a part's name and under another
    image one, two;
    build_part(&one, 1, 1, 3, 3, "one", false);
    build_part(&two, 2, 2, 3, 3, "two", false);
    assert_true(lg_buf_add(&one.b, two.b.p, two.b.n));
    const char *joined = scratch_path("joined.gguf");
    write_file(joined, one.b.p, one.b.n);
    expect_error(joined, "part 1 of 3 followed by|do not join");
    write_file(part_path(1, 3), one.b.p, one.b.n);
    expect_error(part_path(1, 3), "part 1 of 3 followed by|do not join");
    lg_buf_free(&one.b);

    // a part whose name, number, or tensor does not fit
    write_file(joined, two.b.p, two.b.n);
    expect_error(joined, "part 2 of 3|PREFIX-00002-of-00003.gguf");
    (void)unlink(joined);
    write_parts(3, false);
    write_file(part_path(1, 3), two.b.p, two.b.n);
    expect_error(part_path(1, 3), "part 2 of 3 by its metadata|1 of 3 by its name");
    lg_buf_free(&two.b);
    write_parts(3, false);
    build_part(&m, 2, 3, 3, 3, "two", false);
    write_file(part_path(2, 3), m.b.p, m.b.n);
    expect_error(part_path(1, 3), "-00002-of-00003.gguf|part 3 of 3|name says 2 of 3");
    lg_buf_free(&m.b);
    build_part(&m, 2, 2, 3, 3, "one", false);
    write_file(part_path(2, 3), m.b.p, m.b.n);
    expect_error(part_path(1, 3), "tensor one occurs twice");
    lg_buf_free(&m.b);
    // a part that is cut
    build_part(&m, 2, 2, 3, 3, "two", false);
    m.b.n -= 5;
    write_file(part_path(2, 3), m.b.p, m.b.n);
    expect_error(part_path(1, 3), "-00002-of-00003.gguf|5 bytes are missing");
    lg_buf_free(&m.b);
    for (int i = 1; i <= 3; i++)
        (void)unlink(part_path(i, 3));
}

static void test_odd_paths(void **state)
{
    (void)state;
    expect_error("/", "directory");
    expect_error("/dev/null", "device");
    expect_error("/nonexistent/m-00001-of-00002.gguf", "cannot open");
    expect_error("", "cannot open");
}

// --- allocation faults ---

static void test_faults(void **state)
{
    const char *path = scratch_path("faults");
    lg_err err;
    int n_failed = 0;

    (void)state;
    if (!LG_WRAP_ALLOC)
        skip();
    for (long i = 0;; i++) { // reading: a split model reaches every allocation of the reader
        lg_gguf *g = NULL;

        (void)snprintf(split_base, sizeof split_base, "%s", path);
        if (i == 0)
            write_parts(3, false);
        err = (lg_err){0};
        fail_at = i;
        lg_status st = lg_gguf_open(part_path(2, 3), &g, &err);
        bool reached = fail_at < 0;
        fail_at = -1;
        if (st != LG_OK) {
            assert_int_equal(st, LG_E_NOMEM);
            assert_null(g);
            n_failed++;
        }
        lg_gguf_close(g);
        if (!reached) { // there is no allocation number i
            assert_int_equal(st, LG_OK);
            break;
        }
    }
    assert_true(n_failed > 10);
    for (int i = 1; i <= 3; i++)
        (void)unlink(part_path(i, 3));
    n_failed = 0;
    for (long i = 0;; i++) { // writing: and no file is left
        err = (lg_err){0};
        fail_at = i;
        lg_status st = write_sample(path, &err);
        fail_at = -1;
        if (st == LG_OK)
            break;
        assert_int_equal(st, LG_E_NOMEM);
        assert_int_not_equal(access(path, F_OK), 0);
        n_failed++;
    }
    assert_true(n_failed > 5);
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_write_fails),
        cmocka_unit_test(test_header),     cmocka_unit_test(test_metadata),
        cmocka_unit_test(test_tensors),    cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_wide_keys),  cmocka_unit_test(test_split),
        cmocka_unit_test(test_odd_paths),  cmocka_unit_test(test_faults),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
