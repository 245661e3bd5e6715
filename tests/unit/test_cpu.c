/*
 * The CPU backend's resources and the life of a step: what opens and what is refused, loading, cancellation,
 * phases, growing limits. The ops' arithmetic is kcheck's and test_attention's subject.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cpu/cpu.h"
#include "clock.h"
#include "fault.h"

static lg_backend *open_cpu(int threads, bool phases)
{
    lg_backend *b = NULL;
    lg_err err = {0};

    if (lg_backend_open(&(lg_backend_params){.device = "cpu", .threads = threads, .phases = phases}, &b,
                        &err) != LG_OK)
        fail_msg("%s", err.msg);
    return b;
}

static const lg_limits small = {.max_rows = 8,
                                .max_out = 4,
                                .max_cand = 8,
                                .hidden = 64,
                                .vocab = 50,
                                .max_head = 4,
                                .max_q_cols = 64,
                                .max_ffn = 64,
                                .max_expert = 4,
                                .max_k = 2,
                                .max_ctx = 256};

/* ---- opening ---- */

static void test_open(void **state)
{
    lg_backend *b = NULL;
    lg_err err = {0};

    (void)state;
    for (const char *const *d = (const char *const[]){"auto", "cpu", NULL}; *d; d++) {
        assert_int_equal(
            lg_backend_open(&(lg_backend_params){.device = *d, .threads = 2, .isa = ""}, &b, &err), LG_OK);
        assert_string_equal(b->info.kind, "cpu");
        assert_non_null(strstr(b->info.name, "2 threads"));
        assert_true(b->info.total_bytes > 0 && b->info.free_bytes > 0 &&
                    b->info.free_bytes <= b->info.total_bytes);
        assert_true(b->info.maps_weights && b->info.max_rows >= 16);
        lg_backend_close(b);
    }
    lg_backend_close(NULL);
    assert_non_null(strstr(lg_backend_list(), "cpu (c"));
    b = open_cpu(0, false);
    assert_non_null(strstr(b->info.name, "thread"));
    lg_backend_close(b);
}

static void test_refused(void **state)
{
    static const struct {
        lg_backend_params p;
        lg_status code;
        const char *says;
    } cases[] = {
        {{.device = "gpu"}, LG_E_INPUT, "unknown"},
        {{.device = "metal"}, LG_E_UNSUPPORTED, "Metal"},
        {{.device = "cpu", .isa = "sse9"}, LG_E_INPUT, "this machine has c"},
        {{.device = "cpu", .threads = -1}, LG_E_INPUT, "threads"},
        {{.device = "cpu", .threads = 1 << 20}, LG_E_INPUT, "threads"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lg_backend *b = NULL;
        lg_err err = {0};
        assert_int_equal(lg_backend_open(&cases[i].p, &b, &err), cases[i].code);
        assert_null(b);
        assert_non_null(strstr(err.msg, cases[i].says));
    }
    // not in this build, or no such card
    lg_backend *b = NULL;
    lg_err err = {0};
    lg_status st = lg_backend_open(&(lg_backend_params){.device = "cuda:999"}, &b, &err);
    assert_true(st == LG_E_UNSUPPORTED || st == LG_E_DEVICE);
    assert_null(b);
    assert_true(st == LG_E_DEVICE ? err.msg[0] != '\0' : strstr(err.msg, "CUDA") != NULL);
}

static void test_open_faults(void **state)
{
    (void)state;
#if LG_HAVE_FAULT
    for (int n = 1;; n++) {
        lg_backend *b = NULL;
        fault_arm(FAULT_ALLOC, n);
        lg_status st = lg_backend_open(&(lg_backend_params){.device = "cpu", .threads = 2}, &b, NULL);
        bool fired = fault_disarm() != 0;
        if (!fired) {
            assert_int_equal(st, LG_OK);
            lg_backend_close(b);
            assert_true(n > 1);
            return;
        }
        assert_int_equal(st, LG_E_NOMEM);
        assert_null(b);
    }
#else
    skip();
#endif
}

/* ---- memory and weights ---- */

static void test_alloc(void **state)
{
    static const size_t sizes[] = {
        0, 1, 64, 4097, ((size_t)2 << 20) - 1, (size_t)2 << 20, ((size_t)5 << 20) + 3};
    lg_backend *b = open_cpu(1, false);

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        lg_mem m = {0};
        assert_int_equal(b->ops->alloc(b, sizes[i], &m, NULL), LG_OK);
        assert_int_equal(m.bytes, sizes[i]);
        assert_int_equal((uintptr_t)m.p % 64, 0);
        for (size_t at = 0; at < sizes[i]; at += at + 1 < sizes[i] && at + 4096 >= sizes[i] ? 1 : 1021)
            assert_int_equal(((char *)m.p)[at], 0);
        if (sizes[i] > 0) {
            assert_int_equal(b->ops->upload(b, &m, sizes[i] - 1, "x", 1, NULL), LG_OK);
            char back = 0;
            assert_int_equal(b->ops->download(b, (char *)m.p + sizes[i] - 1, &back, 1, NULL), LG_OK);
            assert_int_equal(back, 'x');
        }
        b->ops->release(b, &m);
        assert_null(m.p);
    }
    lg_mem none = {0};
    lg_err err = {0};
    assert_int_equal(b->ops->alloc(b, (size_t)1 << 60, &none, &err), LG_E_NOMEM);
    assert_null(none.p);
    lg_backend_close(b);
}

static lg_source source(lg_qtype type, int ne0, int ne1, const void *data, size_t bytes)
{
    return (lg_source){.name = LG_STR("blk.0.test"), .type = type, .ne = {(uint64_t)ne0, (uint64_t)ne1, 1, 1},
                       .data = data, .bytes = bytes, .scale = 1.0f};
}

// Norms, biases and routers become f32 whatever the file has, with the tensor's scale applied.
static void test_load_plain(void **state)
{
    static const lg_qtype types[] = {LG_F32, LG_F16, LG_BF16, LG_Q8_0, LG_Q4_K};
    lg_backend *b = open_cpu(1, false);
    float values[512], want[512];
    uint8_t packed[2048];

    (void)state;
    for (int i = 0; i < 512; i++)
        values[i] = (float)(i - 250) / 64.0f;
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int scaled = 0; scaled < 2; scaled++) {
            size_t bytes = 0;
            lg_weight w = {0};
            assert_true(lg_row_bytes(types[t], 512, &bytes));
            if (types[t] == LG_F32)
                memcpy(packed, values, bytes);
            else
                assert_true(lg_quant_row(types[t], values, packed, 512));
            lg_source src = source(types[t], 256, 2, packed, bytes);
            src.scale = scaled ? 0.5f : 1.0f;
            lg_dequant_row(types[t], packed, want, 512);
            assert_int_equal(b->ops->load(b, &src, LG_USE_ROUTER, &w, NULL), LG_OK);
            assert_int_equal(w.type, LG_F32);
            assert_int_equal(w.n_in, 256);
            assert_int_equal(w.n_out, 2);
            assert_true(w.scale == 1.0f);
            for (int i = 0; i < 512; i++)
                assert_true(((const float *)w.data)[i] == want[i] * src.scale);
            assert_int_equal(b->load_bytes(b, &src, LG_USE_ROUTER), w.mem.bytes);
            assert_int_equal(w.mem.p == NULL, types[t] == LG_F32 && !scaled);
            b->ops->unload(b, &w);
            assert_null(w.data);
            // a vector may come with a dimension of 1 in front or behind
            assert_int_equal(b->ops->load(b, &src, LG_USE_VECTOR, &w, NULL), LG_OK);
            assert_int_equal(w.n_in, 512);
            assert_int_equal(w.n_out, 1);
            b->ops->unload(b, &w);
        }
    lg_backend_close(b);
}

static void test_load_refused(void **state)
{
    lg_backend *b = open_cpu(1, false);
    static float data[256];
    lg_source bad[] = {source(LG_F32, 16, 2, data, 127),    source(LG_Q8_0, 33, 1, data, 34),
                       source(LG_I32, 16, 1, data, 64),     source(LG_F32, 0, 1, data, 0),
                       source((lg_qtype)9, 32, 1, data, 36), source((lg_qtype)4000, 32, 1, data, 36)};

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (int use = LG_USE_VECTOR; use <= LG_USE_EMBED_LINEAR; use++) {
            lg_weight w = {.n_in = 77};
            lg_err err = {0};
            assert_int_not_equal(b->ops->load(b, &bad[i], (lg_use)use, &w, &err), LG_OK);
            assert_int_equal(w.n_in, 77);
            assert_string_equal(err.subject, "blk.0.test");
            assert_true(strlen(err.msg) > 0);
        }
    lg_backend_close(b);
}

/* ---- steps ---- */

// A step of one norm; returns end's status. out gets the row.
static lg_status norm_step(lg_backend *b, atomic_bool *cancel, float *out, lg_err *err)
{
    static float x[64], ones[64];
    lg_weight w = {.type = LG_F32, .n_in = 64, .n_out = 1, .data = ones};
    lg_step s = {.n_rows = 1, .cancel = cancel};
    lg_begin how;

    for (int i = 0; i < 64; i++) {
        x[i] = (float)i;
        ones[i] = 1.0f;
    }
    assert_int_equal(b->ops->begin(b, lg_step_key(&s), &s, &how, NULL), LG_OK);
    assert_int_equal(how, LG_RECORD);
    b->ops->rmsnorm(b, &(lg_tensor){out, 64, 64, LG_ROWS_STEP}, &(lg_tensor){x, 64, 64, LG_ROWS_STEP}, &w,
                    1e-6f);
    return b->ops->end(b, err);
}

static void test_cancel(void **state)
{
    lg_backend *b = open_cpu(2, false);
    atomic_bool cancel = false;
    float out[64] = {0};
    lg_err err = {0};

    (void)state;
    assert_int_equal(b->ops->prepare(b, &small, NULL), LG_OK);
    atomic_store(&cancel, true);
    assert_int_equal(norm_step(b, &cancel, out, &err), LG_E_CANCELLED);
    assert_true(out[5] == 0.0f); // the op did nothing
    atomic_store(&cancel, false);
    assert_int_equal(norm_step(b, &cancel, out, &err), LG_OK); // and the next step is a step like any other
    assert_true(out[5] > 0.0f);
    assert_int_equal(norm_step(b, NULL, out, &err), LG_OK);
    assert_int_equal(b->ops->wait(b, NULL), LG_OK);
    lg_backend_close(b);
}

static void test_bad_ids(void **state)
{
    lg_backend *b = open_cpu(1, false);
    lg_begin how;

    (void)state;
    assert_int_equal(b->ops->prepare(b, &small, NULL), LG_OK);
    for (const int32_t *id = (const int32_t[]){-1, 50, INT32_MAX, INT32_MIN, 0}; *id; id++) {
        int32_t ids[2] = {49, *id};
        lg_err err = {0};
        lg_step s = {.n_rows = 2, .ids = ids};
        assert_int_equal(b->ops->begin(b, lg_step_key(&s), &s, &how, &err), LG_E_INPUT);
        assert_non_null(strstr(err.msg, "vocabulary"));
    }
    float out[64];
    assert_int_equal(norm_step(b, NULL, out, NULL), LG_OK); // a refused step is no step
    lg_backend_close(b);
}

// Two users, a model and a drafter, prepare one after the other: the larger of each limit holds.
static void test_prepare_twice(void **state)
{
    lg_backend *b = open_cpu(2, false);
    lg_limits other = small;
    float out[64];

    (void)state;
    other.max_rows = 16;
    other.vocab = 10;
    assert_true(b->scratch_bytes(b, &small) > 0);
    assert_int_equal(b->ops->prepare(b, &small, NULL), LG_OK);
    assert_int_equal(norm_step(b, NULL, out, NULL), LG_OK);
    assert_int_equal(b->ops->prepare(b, &other, NULL), LG_OK);
    int32_t ids[16];
    for (int i = 0; i < 16; i++)
        ids[i] = 40;
    lg_step s = {.n_rows = 16, .ids = ids};
    lg_begin how;
    assert_int_equal(b->ops->begin(b, lg_step_key(&s), &s, &how, NULL), LG_OK);
    assert_int_equal(b->ops->end(b, NULL), LG_OK);
    lg_backend_close(b);
}

static void see_phase(void *ctx, const char *op, double seconds)
{
    if (strcmp(op, "norm") == 0)
        *(double *)ctx += seconds;
}

// A clock that goes on by a look gives each op a microsecond.
static void test_phases(void **state)
{
    (void)state;
    if (!LG_HAVE_CLOCK)
        skip();
    for (int keeps = 0; keeps < 2; keeps++) {
        lg_backend *b = open_cpu(1, keeps);
        float out[64];
        double seconds = 0;
        assert_int_equal(b->ops->prepare(b, &small, NULL), LG_OK);
        for (int i = 0; i < 100; i++)
            assert_int_equal(norm_step(b, NULL, out, NULL), LG_OK);
        b->phases(b, true, see_phase, &seconds);
        assert_true(fabs(seconds - (keeps ? 100e-6 : 0)) < 1e-12);
        seconds = 0;
        b->phases(b, false, see_phase, &seconds);
        assert_true(seconds == 0);
        lg_backend_close(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),          cmocka_unit_test(test_refused),
        cmocka_unit_test(test_open_faults),   cmocka_unit_test(test_alloc),
        cmocka_unit_test(test_load_plain),    cmocka_unit_test(test_load_refused),
        cmocka_unit_test(test_cancel),        cmocka_unit_test(test_bad_ids),
        cmocka_unit_test(test_prepare_twice), cmocka_unit_test(test_phases),
    };

    return cmocka_run_group_tests_name("cpu", tests, NULL, NULL);
}
