/*
 * The speculative loop against recorded rounds of an independent implementation: drafts, accepted counts and
 * tokens of every round where the recording decides them, and the same tokens from whole replies, with and
 * without the drafter.
 *
 * usage: test_speculation [DEVICE]
 * Prints a line a run; exit 1 when one differs, 77 without the device.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "engine/engine_int.h"

enum { JSON_MAX = 1 << 20, N_PREDICT = 64, PROMPT_MAX = 128, BLOCK = 8 };

static const char *device = "cpu";
// A card rounds the products of a prompt's chunk to bf16, so that the drafter's logits are off by up to 0.029
// behind one (test_drafter, pieces of 64): closer calls than this are not decided there.
static const double card_hair = 0.03;

static const char *path_of(const char *name, char *out, size_t n)
{
    (void)snprintf(out, n, "%s/golden/%s", LG_TEST_DIR, name);
    return out;
}

static int int_of(const lg_json *j)
{
    int64_t v = -1;

    (void)lg_json_i64(j, &v);
    return (int)v;
}

static int int_at(const lg_json *list, size_t i)
{
    return int_of(lg_json_at(list, i));
}

static int argmax(const float *row, int n)
{
    int best = 0;

    for (int i = 1; i < n; i++)
        if (row[i] > row[best])
            best = i;
    return best;
}

static lg_status open_engine(const char *drafter, int threads, lg_engine **out, lg_err *err)
{
    char model[512], draft[512];

    return lg_engine_open(
        &(lg_engine_params){.model_path = path_of("laguna-tiny-s.gguf", model, sizeof model),
                            .backend = {.device = device, .threads = threads, .isa = ""},
                            .ctx = 256,
                            .kv_type = LG_F32,
                            .draft_path = drafter ? path_of(drafter, draft, sizeof draft) : NULL,
                            .draft_required = true,
                            .draft = {.type = LG_DRAFT_STORED}},
        out, err);
}

// One round as recorded: true when drafts, accepted count and tokens are the same. *last: the newest token.
static bool same_round(lg_engine *e, const lg_json *round, int32_t *last, int *made, lg_err *err)
{
    const lg_json *drafts = lg_json_get(round, "drafts"), *want = lg_json_get(round, "committed");
    int n = (int)lg_json_len(drafts), accepted = int_of(lg_json_get(round, "accepted")), r;
    int32_t ids[LG_DRAFT_ROWS_MAX] = {*last}, token = -1;
    float sure[LG_DRAFT_ROWS_MAX];
    int64_t pos = lg_engine_pos(e);
    int same = accepted < n ? accepted + 1 : n;
    double margin;
    const float *row;

    if (pos != int_of(lg_json_get(round, "ctx")) || *last != int_of(lg_json_get(round, "bonus")))
        return false;
    if (n == 0 || lg_spec_draft(e, n, ids, sure, NULL, err) != LG_OK)
        return false;
    if (strcmp(device, "cpu") != 0 && lg_json_f64(lg_json_get(round, "draft_margin"), &margin) &&
        margin < card_hair)
        same = accepted;
    // the recording guarantees drafts up to the first rejected one; what follows may rest on a hair
    for (int i = 0; i < same; i++)
        if (ids[i + 1] != int_at(drafts, (size_t)i))
            return false;
    if (lg_spec_verify(e, ids, n + 1, 0, NULL, err) != LG_OK)
        return false;
    for (r = 0; r <= n && r < (int)lg_json_len(want); r++) {
        if (lg_engine_logits(e, r, &row, err) != LG_OK)
            return false;
        token = argmax(row, e->hp.vocab);
        if (token != int_at(want, (size_t)r))
            return false;
        if (r == n || token != ids[r + 1] || r + 1 == (int)lg_json_len(want))
            break;
        lg_kv_commit(&e->kv, 1);
    }
    *made += (int)lg_json_len(want);
    *last = token;
    // a budget that ends in a draft leaves out the token that its row would have given
    return (r == accepted || (r + 1 == accepted && *made == N_PREDICT)) &&
           lg_spec_absorb(e, pos, (int)(lg_engine_pos(e) - pos), err) == LG_OK;
}

static bool same_rounds(const lg_json *prompt, const char *drafter, int threads)
{
    const lg_json *ids = lg_json_get(prompt, "prompt"), *rounds = lg_json_get(prompt, "rounds");
    int32_t tokens[PROMPT_MAX], last = int_at(lg_json_get(prompt, "generated"), 0);
    int n = (int)lg_json_len(ids), made = 1;
    lg_engine *e = NULL;
    lg_err err = {0};
    bool ok = open_engine(drafter, threads, &e, &err) == LG_OK && n <= PROMPT_MAX;

    for (int i = 0; ok && i < n; i++)
        tokens[i] = int_at(ids, (size_t)i);
    ok = ok && lg_engine_eval(e, &(lg_eval){.ids = tokens, .n = (size_t)n}, &err) == LG_OK;
    size_t k = 0;
    for (; ok && k < lg_json_len(rounds); k++)
        ok = same_round(e, lg_json_at(rounds, k), &last, &made, &err);
    (void)printf("%s rounds with %s, %d threads: %zu of %zu, %d tokens %s\n", ok ? "ok  " : "FAIL", drafter,
                 threads, k, lg_json_len(rounds), made, err.msg);
    lg_engine_close(e);
    return ok;
}

static void ignore(void *ctx, const lg_event *ev)
{
    (void)ctx;
    (void)ev;
}

// A whole reply gives the recorded tokens.
static bool same_reply(const lg_json *prompt, const char *drafter, int max)
{
    const lg_json *ids = lg_json_get(prompt, "prompt"), *want = lg_json_get(prompt, "generated");
    int32_t tokens[PROMPT_MAX];
    size_t n = lg_json_len(ids);
    lg_gen_params p = {.sampling = lg_sampling_default(),
                       .max_tokens = N_PREDICT,
                       .max_think = -1,
                       .reply = {.raw = true},
                       .max_reply_bytes = 1 << 16,
                       .event = ignore};
    lg_gen_stats stats = {0};
    lg_ids out = {0};
    lg_engine *e = NULL;
    lg_err err = {0};
    bool ok = open_engine(drafter, 1, &e, &err) == LG_OK;

    p.sampling.temperature = 0;
    if (ok && drafter)
        lg_spec_pace(e->spec)->set.max = max;
    for (size_t i = 0; i < n; i++)
        tokens[i] = int_at(ids, i);
    ok = ok && lg_generate(e, tokens, n, &p, &stats, &out, &err) == LG_OK && out.n <= lg_json_len(want);
    for (size_t i = 0; ok && i < out.n; i++)
        ok = out.p[i] == int_at(want, i);
    ok = ok && (out.n == N_PREDICT || lg_vocab_is_eog(lg_engine_vocab(e), out.p[out.n - 1]));
    (void)printf("%s reply with %s, %d drafts: %zu tokens, %lld of %lld drafts accepted in %lld rounds %s\n",
                 ok ? "ok  " : "FAIL", drafter ? drafter : "no drafter", max, out.n,
                 (long long)stats.draft.accepted, (long long)stats.draft.drafted,
                 (long long)stats.draft.rounds, err.msg);
    lg_ids_free(&out);
    lg_engine_close(e);
    return ok;
}

int main(int argc, char **argv)
{
    char path[512], *text = NULL;
    lg_json_doc *doc = NULL;
    lg_backend *b = NULL;
    lg_err err = {0};
    bool ok = true;
    size_t n;

    device = argc > 1 ? argv[1] : device;
    if (lg_backend_open(&(lg_backend_params){.device = device}, &b, &err) != LG_OK) {
        (void)printf("skipped: %s\n", err.msg);
        return 77;
    }
    lg_backend_close(b);
    if (lg_read_all(path_of("dflash.spec.json", path, sizeof path), JSON_MAX, &text, &n, &err) != LG_OK ||
        lg_json_parse((lg_str){text, n}, &(lg_json_limits){.max_bytes = JSON_MAX, .max_depth = 16}, &doc,
                      &err) != LG_OK) {
        (void)printf("FAIL %s\n", err.msg);
        return 1;
    }
    const lg_json *prompts = lg_json_get(lg_json_root(doc), "prompts");
    for (size_t i = 0; i < 3; i++) {
        const lg_json *win = lg_json_at(lg_json_get(prompts, "win"), i);

        ok = same_rounds(win, "laguna-tiny-s-dflash.gguf", i == 0 ? 2 : 1) && ok;
        ok = same_rounds(win, "laguna-tiny-s-dflash-ik.gguf", 1) && ok;
        ok = same_rounds(lg_json_at(lg_json_get(prompts, "full"), i), "laguna-tiny-s-dflash-nowin.gguf", 1) &&
             ok;
        ok = same_reply(win, NULL, 0) && ok;
        for (int max = 1; max < BLOCK; max += 3)
            ok = same_reply(win, "laguna-tiny-s-dflash.gguf", max) && ok;
    }
    lg_json_free(doc);
    free(text);
    return ok ? 0 : 1;
}
