/*
 * With the drafter and without it, replies of the demonstration model are the same tokens: greedy and
 * sampled, at every block length, with every policy, half of them as a second turn that goes on from the
 * cache.
 *
 * usage: test_identity MODEL DRAFTER PROMPTS TOKENS [SEED [DEVICE]]
 * Prints what was accepted; exit 1 with the prompt's number when a reply differs, 77 without the files or the
 * device.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/engine_int.h"

enum { CTX = 4096, PROMPT_BYTES = 256 };

static const char *device = "cpu";

typedef struct totals {
    int64_t rounds, drafted, accepted, tokens, cached;
} totals;

static uint64_t state;

static unsigned below(unsigned n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % n;
}

// A request of a kind that the model knows; what it says about it is of no concern.
static void write_request(char *out)
{
    static const char *const form[] = {"What is %u + %u?",
                                       "Write a Python function that adds %u to its argument, %u times.",
                                       "Write a C function that returns the larger of %u and %u.",
                                       "Sort these numbers: %u, %u, 17, 4.",
                                       "Tell me about yourself in %u to %u words.",
                                       "Give me a JSON object with the fields a = %u and b = %u."};

    (void)snprintf(out, PROMPT_BYTES, form[below(6)], below(90) + 2, below(90) + 2);
}

static lg_status encode(const lg_engine *e, const char *text, bool thinking, lg_ids *ids, lg_err *err)
{
    const lg_chat_message msg = {.role = LG_ROLE_USER, .content = lg_str_of(text)};
    lg_rendered rendered;
    lg_arena arena;

    lg_arena_init(&arena, 1 << 16);
    lg_status st = lg_chat_render(&(lg_chat){.family = LG_TEMPLATE_S21,
                                             .thinking = thinking,
                                             .generation_prompt = true,
                                             .message = &msg,
                                             .n_message = 1},
                                  &arena, &rendered, err);
    if (st == LG_OK)
        st = lg_chat_encode(lg_engine_bpe(e), &rendered, ids, err);
    lg_arena_free(&arena);
    return st;
}

static lg_status open_engine(const char *model, const char *drafter, lg_engine **out, lg_err *err)
{
    return lg_engine_open(&(lg_engine_params){.model_path = model,
                                              .backend = {.device = device, .threads = 1, .isa = ""},
                                              .ctx = CTX,
                                              .kv_type = LG_F16,
                                              .draft_path = drafter,
                                              .draft_required = true},
                          out, err);
}

static void ignore(void *ctx, const lg_event *ev)
{
    (void)ctx;
    (void)ev;
}

// Every other reply is raw and may not end by itself: it is long, and chosen from full rows.
static lg_gen_params how(const lg_engine *e, int i, int64_t tokens)
{
    static lg_logit_bias never[2] = {{.bias = -100}, {.bias = -100}};
    const lg_special *sp = lg_vocab_special(lg_engine_vocab(e));
    lg_gen_params p = {.sampling = lg_sampling_default(),
                       .max_tokens = tokens,
                       .max_think = i % 6 == 4 ? 40 : -1,
                       .reply = {.thinking = i % 3 == 1, .open_reasoning = i % 3 == 1},
                       .max_reply_bytes = 1 << 20,
                       .event = ignore};

    p.sampling.temperature = i % 4 > 2 ? 0.9f : 0;
    p.sampling.seed = (uint64_t)i;
    never[0].id = sp->eos;
    never[1].id = sp->eot;
    if (i % 2) {
        p.reply = (lg_reply_params){.raw = true};
        p.sampling.bias = never;
        p.sampling.n_bias = 2;
    }
    return p;
}

static void set_policy(lg_engine *e, int i)
{
    lg_pace_settings *set = &lg_spec_pace(e->spec)->set;

    set->max = i % LG_DRAFTS_MAX + 1;
    set->p_min = i % 5 ? 0.5f : 0;
    set->pause_margin = i % 2 ? 1 : 0;
}

// Prompt i, and then a second turn behind its reply. False: a reply differs.
static lg_status compare(lg_engine *plain, lg_engine *spec, int i, int64_t tokens, totals *t, bool *same,
                         lg_err *err)
{
    char text[PROMPT_BYTES];
    lg_ids prompt = {0}, want = {0}, got = {0}, more = {0};
    lg_gen_stats a, b;
    lg_status st;

    write_request(text);
    st = encode(plain, text, i % 3 == 1, &prompt, err);
    for (int turn = 0; st == LG_OK && *same && turn < 2; turn++) {
        lg_gen_params p = how(plain, i + turn, tokens);

        want.n = got.n = more.n = 0;
        if (!p.reply.raw)
            p.reply.thinking = p.reply.open_reasoning = i % 3 == 1;
        set_policy(spec, 2 * i + turn);
        st = lg_generate(plain, prompt.p, prompt.n, &p, &a, &want, err);
        if (st == LG_OK)
            st = lg_generate(spec, prompt.p, prompt.n, &p, &b, &got, err);
        if (st != LG_OK)
            break;
        *same = want.n == got.n && memcmp(want.p, got.p, got.n * sizeof *got.p) == 0 && a.end == b.end;
        t->rounds += b.draft.rounds;
        t->drafted += b.draft.drafted;
        t->accepted += b.draft.accepted;
        t->tokens += b.output_tokens;
        t->cached += b.cached_tokens;
        write_request(text);
        for (size_t k = 0; st == LG_OK && k < got.n; k++)
            st = lg_ids_add(&prompt, got.p[k], err);
        if (st == LG_OK)
            st = encode(plain, text, i % 3 == 1, &more, err);
        for (size_t k = 0; st == LG_OK && k < more.n; k++)
            st = lg_ids_add(&prompt, more.p[k], err);
    }
    lg_ids_free(&prompt);
    lg_ids_free(&want);
    lg_ids_free(&got);
    lg_ids_free(&more);
    return st;
}

int main(int argc, char **argv)
{
    lg_engine *plain = NULL, *spec = NULL;
    totals t = {0};
    lg_err err = {0};
    bool same = true;

    if (argc < 5 || access(argv[1], R_OK) != 0 || access(argv[2], R_OK) != 0) {
        (void)printf("test_identity MODEL DRAFTER PROMPTS TOKENS [SEED [DEVICE]]; the files are needed\n");
        return 77;
    }
    int prompts = atoi(argv[3]), i = 0;
    int64_t tokens = atoi(argv[4]);
    state = argc > 5 ? strtoull(argv[5], NULL, 10) : 1;
    device = argc > 6 ? argv[6] : device;
    lg_status st = open_engine(argv[1], NULL, &plain, &err);
    if (st == LG_E_DEVICE || st == LG_E_UNSUPPORTED) {
        (void)printf("skipped: %s\n", err.msg);
        return 77;
    }
    if (st == LG_OK)
        st = open_engine(argv[1], argv[2], &spec, &err);
    for (; st == LG_OK && same && i < prompts / 2; i++)
        st = compare(plain, spec, i, tokens, &t, &same, &err);
    if (st != LG_OK)
        (void)printf("FAIL %s: %s\n", err.subject, err.msg);
    else if (!same)
        (void)printf("FAIL prompt %d: another reply with drafts than without\n", i - 1);
    else
        (void)printf("ok   %d replies, %lld tokens, %lld prompt tokens from the cache: %lld of %lld drafts "
                     "accepted in %lld rounds\n",
                     2 * i, (long long)t.tokens, (long long)t.cached, (long long)t.accepted,
                     (long long)t.drafted, (long long)t.rounds);
    lg_engine_close(spec);
    lg_engine_close(plain);
    return st == LG_OK && same && t.accepted > 0 ? 0 : 1;
}
