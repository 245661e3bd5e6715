/*
 * grammar/matcher: one reply against a grammar, token by token. Its history is an array indexed by the number
 * of tokens, so a rollback is a smaller number. The engine's thread.
 *
 * Surprise: a grammar that has outgrown its limit forgets its configurations; the next call here replays the
 * tokens.
 */
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar_int.h"

enum { MAX_FORCED = 2048, UNSURE_BYTES = 32 };

typedef struct place {
    uint32_t cfg;
    uint8_t phase;
    uint16_t owed; // bytes of `heal` that are still to be spelled, its last ones
} place;

struct lg_matcher {
    lg_grammar *g;
    const lg_token_trie *t;
    lg_phase start;
    uint32_t generation;
    size_t n, cap;
    place *at;      // n + 1: before each token, and now
    int32_t *token; // n
    lg_buf heal;    // empty: none
    size_t heal_at; // what is owed there
    lg_mask_walk walk;
    uint32_t *own; // mask when it is not kept
    bool no_slices, no_cache;
};

lg_status lg_grammar_start(lg_grammar *g, lg_err *err)
{
    g->limit = LG_GRAMMAR_BYTES;
    return lg_auto_create(&g->program, &g->automaton, err);
}

static void free_masks(lg_grammar *g)
{
    for (uint32_t i = 0; i < g->n_mask; i++)
        free(g->mask[i]);
    free(g->mask);
    free(g->mask_cfg);
    g->mask = NULL;
    g->mask_cfg = NULL;
    g->n_mask = g->cap_mask = g->next_mask = 0;
}

void lg_grammar_destroy(lg_grammar *g)
{
    if (!g)
        return;
    free_masks(g);
    lg_auto_destroy(g->automaton);
    lg_arena_free(&g->memory);
    free(g);
}

void lg_grammar_clear(lg_grammar *g)
{
    lg_auto_clear(g->automaton);
    if (g->mask_cfg)
        memset(g->mask_cfg, 0, g->cap_mask * sizeof *g->mask_cfg);
    g->generation++;
}

size_t lg_grammar_bytes(const lg_grammar *g)
{
    return lg_auto_bytes(g->automaton) + g->n_mask * g->mask_words * sizeof(uint32_t);
}

size_t lg_grammar_size(const lg_grammar *g)
{
    return atomic_load(&g->size);
}

void lg_grammar_limit(lg_grammar *g, size_t bytes)
{
    g->limit = bytes;
}

// A value that is complete and cannot go on ends the answer, or the call.
static void settle(lg_matcher *m, place *p)
{
    const lg_cfg *c = lg_auto_cfg(m->g->automaton, p->cfg);

    if (p->phase == LG_PHASE_ANSWER && c->accept && c->n_item == 0)
        p->phase = m->start == LG_PHASE_FREE ? LG_PHASE_FREE : LG_PHASE_DONE;
}

static place first_place(lg_matcher *m)
{
    place p = {.cfg = lg_auto_start(m->g->automaton), .phase = (uint8_t)m->start};

    settle(m, &p);
    return p;
}

lg_status lg_matcher_create(lg_grammar *g, const lg_token_trie *t, lg_phase start, lg_matcher **out,
                            lg_err *err)
{
    lg_matcher *m = calloc(1, sizeof *m);
    lg_status st = LG_OK;

    if (m) {
        m->cap = 64;
        m->at = calloc(m->cap + 1, sizeof *m->at);
        m->token = calloc(m->cap, sizeof *m->token);
        m->walk.stack = calloc(t->longest + 2, sizeof *m->walk.stack);
        m->walk.later = calloc(t->n_quotes + 1, sizeof *m->walk.later);
        m->own = calloc(t->words, sizeof *m->own);
    }
    if (g->mask_words != t->words)
        free_masks(g);
    if (!g->mask) {
        g->mask_words = t->words;
        g->cap_mask = (uint32_t)(LG_MASK_CACHE_BYTES / (t->words * sizeof(uint32_t) + 16));
        g->cap_mask = g->cap_mask < 4096 ? g->cap_mask : 4096;
        g->mask = calloc(g->cap_mask + 1, sizeof *g->mask);
        g->mask_cfg = calloc(g->cap_mask + 1, sizeof *g->mask_cfg);
    }
    if (!m || !m->at || !m->token || !m->walk.stack || !m->walk.later || !m->own || !g->mask ||
        !g->mask_cfg) {
        st = LG_FAIL(err, LG_E_NOMEM, "out of memory while starting a constrained reply");
        goto out;
    }
    m->g = g;
    m->t = t;
    m->start = start;
    m->generation = g->generation;
    m->at[0] = first_place(m);
    *out = m;
    m = NULL;
out:
    lg_matcher_destroy(m);
    return st;
}

void lg_matcher_destroy(lg_matcher *m)
{
    if (!m)
        return;
    if (m->g)
        atomic_store(&m->g->size, m->g->memory.used + lg_grammar_bytes(m->g));
    free(m->at);
    free(m->token);
    free(m->walk.stack);
    free(m->walk.later);
    free(m->own);
    lg_buf_free(&m->heal);
    free(m);
}

lg_phase lg_matcher_phase(const lg_matcher *m)
{
    return (lg_phase)m->at[m->n].phase;
}

bool lg_matcher_must_stop(const lg_matcher *m)
{
    return m->at[m->n].phase == LG_PHASE_DONE;
}

size_t lg_matcher_n(const lg_matcher *m)
{
    return m->n;
}

static bool is_bit(const uint32_t *mask, int32_t id)
{
    return mask[id / 32] >> id % 32 & 1;
}

// What is owed at a place.
static lg_str owed(const lg_matcher *m, place p)
{
    return (lg_str){m->heal.p + (m->heal.n - p.owed), p.owed};
}

// The bytes of a token that is text; empty for others.
static lg_str text_of(const lg_matcher *m, int32_t token)
{
    lg_tok_class class = lg_vocab_class(m->t->vocab, token);
    lg_str text = lg_vocab_bytes(m->t->vocab, token);
    bool ordinary =
        !lg_vocab_is_added(m->t->vocab, token) && (class == LG_TOK_NORMAL || class == LG_TOK_BYTE);

    return ordinary && text.n <= m->t->longest ? text : (lg_str){0};
}

// Where a token leads; false when it is not legal.
static bool advance(lg_matcher *m, place from, int32_t token, place *to)
{
    lg_auto *a = m->g->automaton;
    const lg_token_trie *t = m->t;
    const lg_special *sp = lg_vocab_special(t->vocab);
    lg_str text;
    bool end;

    *to = from;
    if (token < 0 || (size_t)token >= t->n_vocab)
        return false;
    if (from.phase == LG_PHASE_THINK) {
        if (token == sp->end_think)
            to->phase = LG_PHASE_ANSWER;
        settle(m, to);
        return is_bit(t->think, token);
    }
    if (from.phase == LG_PHASE_FREE) {
        if (token != sp->tool_call)
            return true;
        from.cfg = lg_auto_start(a);
        to->phase = LG_PHASE_ANSWER;
    }
    text = text_of(m, token);
    if (from.owed > 0) {
        size_t n = text.n < from.owed ? text.n : from.owed;
        if (n == 0 || memcmp(text.p, owed(m, from).p, n) != 0)
            return false;
        to->owed = (uint16_t)(from.owed - n);
    }
    end = is_bit(t->done, token);
    if (from.phase == LG_PHASE_DONE || end) {
        to->phase = LG_PHASE_DONE;
        return end && (from.phase == LG_PHASE_DONE || lg_auto_cfg(a, from.cfg)->accept);
    }
    if (lg_vocab_is_added(t->vocab, token)) {
        to->cfg = lg_auto_token(a, from.cfg, (uint32_t)token);
    } else {
        if (text.n == 0)
            return false;
        for (size_t i = 0; i < text.n && to->cfg != LG_CFG_DEAD; i++)
            to->cfg = lg_auto_next(a, to->cfg, (uint8_t)text.p[i]);
    }
    if (to->cfg == LG_CFG_DEAD)
        return false;
    settle(m, to);
    return true;
}

// A failure of the automaton ends this reply; the grammar starts over.
static lg_status failure(lg_matcher *m, lg_err *err)
{
    lg_status why = lg_auto_failed(m->g->automaton);

    if (why == LG_OK)
        return LG_OK;
    lg_grammar_clear(m->g);
    return LG_FAIL(err, why, "the constraint needs more memory than it may take");
}

// Makes sure that the history belongs to the automaton as it is.
static lg_status refresh(lg_matcher *m, lg_err *err)
{
    if (lg_auto_bytes(m->g->automaton) > m->g->limit)
        lg_grammar_clear(m->g);
    if (m->generation == m->g->generation)
        return LG_OK;
    m->at[0] = first_place(m);
    for (size_t i = 0; i <= m->n; i++) {
        if (m->heal.n > 0 && i == m->heal_at)
            m->at[i].owed = (uint16_t)m->heal.n;
        if (i < m->n && !advance(m, m->at[i], m->token[i], &m->at[i + 1])) {
            LG_TRY(failure(m, err));
            return LG_FAIL(err, LG_E_LIMIT, "the constraint cannot be followed again");
        }
    }
    m->generation = m->g->generation;
    return LG_OK;
}

lg_status lg_matcher_accept(lg_matcher *m, int32_t token, bool *ok, lg_err *err)
{
    place to;

    LG_TRY(refresh(m, err));
    if (m->n == m->cap) {
        place *at = realloc(m->at, (m->cap * 2 + 1) * sizeof *at);
        int32_t *ids;
        if (!at)
            return LG_FAIL(err, LG_E_NOMEM, "out of memory in a constrained reply");
        m->at = at;
        ids = realloc(m->token, m->cap * 2 * sizeof *ids);
        if (!ids)
            return LG_FAIL(err, LG_E_NOMEM, "out of memory in a constrained reply");
        m->token = ids;
        m->cap *= 2;
    }
    if (!advance(m, m->at[m->n], token, &to)) {
        LG_TRY(failure(m, err));
        *ok = false;
        return LG_OK;
    }
    m->token[m->n++] = token;
    m->at[m->n] = to;
    *ok = true;
    return LG_OK;
}

lg_status lg_matcher_check(lg_matcher *m, const int32_t *ids, size_t n, size_t *n_ok, lg_err *err)
{
    size_t i;
    place at;

    LG_TRY(refresh(m, err));
    at = m->at[m->n];
    for (i = 0; i < n && advance(m, at, ids[i], &at); i++)
        continue;
    LG_TRY(failure(m, err));
    *n_ok = i;
    return LG_OK;
}

void lg_matcher_rollback(lg_matcher *m, size_t n)
{
    LG_ASSERT(n <= m->n);
    m->n = n;
    if (n < m->heal_at)
        lg_buf_free(&m->heal);
}

lg_status lg_matcher_heal(lg_matcher *m, lg_str text, lg_err *err)
{
    uint32_t cfg;

    LG_TRY(refresh(m, err));
    cfg = m->at[m->n].cfg;
    for (size_t i = 0; i < text.n && cfg != LG_CFG_DEAD; i++)
        cfg = lg_auto_next(m->g->automaton, cfg, (uint8_t)text.p[i]);
    LG_TRY(failure(m, err));
    if (cfg == LG_CFG_DEAD || text.n > UINT16_MAX || m->heal.n > 0 || m->at[m->n].phase != LG_PHASE_ANSWER)
        return LG_FAIL(err, LG_E_INPUT, "the text that was taken back is not legal here");
    lg_buf_init(&m->heal, text.n + 1);
    if (!lg_buf_adds(&m->heal, text))
        return LG_FAIL(err, LG_E_NOMEM, "out of memory in a constrained reply");
    m->heal_at = m->n;
    m->at[m->n].owed = (uint16_t)text.n;
    return LG_OK;
}

// The mask where text is owed.
static void spell(lg_matcher *m, place p)
{
    lg_str text = owed(m, p);
    uint32_t cfg = p.cfg;

    for (size_t i = 0; i < text.n; i++)
        cfg = lg_auto_next(m->g->automaton, cfg, (uint8_t)text.p[i]);
    lg_mask_spell(m->t, m->g->automaton, cfg, text, &m->walk, m->own);
}

// The cached mask of a configuration, or room for it.
static uint32_t *mask_slot(lg_grammar *g, uint32_t cfg, bool *ready)
{
    lg_cfg *c = lg_auto_cfg(g->automaton, cfg);
    uint32_t at = g->next_mask;

    *ready = c->mask && g->mask_cfg[c->mask - 1] == cfg;
    if (*ready)
        return g->mask[c->mask - 1];
    if (at == g->n_mask) {
        g->mask[at] = calloc(g->mask_words, sizeof(uint32_t));
        if (!g->mask[at])
            return NULL;
        g->n_mask++;
    }
    g->next_mask = (at + 1) % g->cap_mask;
    g->mask_cfg[at] = cfg;
    c->mask = at + 1;
    return g->mask[at];
}

lg_status lg_matcher_mask(lg_matcher *m, const uint32_t **mask, lg_err *err)
{
    lg_grammar *g = m->g;
    uint32_t cfg, *out = m->own;
    bool ready = false;

    LG_TRY(refresh(m, err));
    switch (m->at[m->n].phase) {
    case LG_PHASE_THINK: *mask = m->t->think; return LG_OK;
    case LG_PHASE_DONE: *mask = m->t->done; return LG_OK;
    case LG_PHASE_FREE: *mask = m->t->free; return LG_OK;
    default: break;
    }
    if (m->at[m->n].owed > 0) {
        spell(m, m->at[m->n]);
        *mask = m->own;
        return failure(m, err);
    }
    cfg = m->at[m->n].cfg;
    if (!m->no_cache && g->cap_mask)
        out = mask_slot(g, cfg, &ready);
    if (!out)
        out = m->own;
    if (!ready) {
        lg_mask_compute(m->t, g->automaton, cfg, !m->no_slices, &m->walk, out);
        LG_TRY(failure(m, err));
    }
    *mask = out;
    return LG_OK;
}

// The only byte that leads on, or -1 when there is none or a choice.
static int forced_byte(lg_auto *a, uint32_t cfg, uint32_t *next)
{
    lg_cfg c = *lg_auto_cfg(a, cfg);
    int byte = -1;
    uint32_t only = cfg;

    for (uint32_t i = 0; i < c.n_item; i++)
        if (lg_auto_program(a)->edge[lg_auto_item(a, c.item + i)->edge].kind == LG_EDGE_TOKEN)
            return -1;
    for (int b = 0; b < 256 && !c.accept; b++) {
        uint32_t to = lg_auto_next(a, cfg, (uint8_t)b);
        if (to == LG_CFG_DEAD)
            continue;
        if (byte >= 0)
            return -1;
        byte = b;
        only = to;
    }
    *next = only;
    return byte;
}

// The tokens of text behind its first n_old, which must be as they are, up to where another token could go
// on.
static lg_status certain(lg_matcher *m, const lg_bpe *b, lg_str text, size_t context, size_t n_old,
                         uint32_t end, lg_ids *out, lg_err *err)
{
    lg_ids ids = {0};
    size_t forced = text.n - context, cut = forced, at = 0;
    lg_status st = lg_bpe_encode(b, text, false, &ids, err);

    if (st != LG_OK)
        goto out;
    for (size_t i = 0; i < n_old; i++)
        if (i >= ids.n || ids.p[i] != m->token[m->n - n_old + i])
            goto out; // the tokenizer would have written the beginning otherwise
    for (size_t o = forced > UNSURE_BYTES ? forced - UNSURE_BYTES : 0; o < cut; o++)
        if (lg_mask_extends(m->t, m->g->automaton, end, (lg_str){text.p + context + o, forced - o},
                            m->walk.stack))
            cut = o;
    for (size_t i = n_old; i < ids.n && st == LG_OK; i++) {
        at += lg_vocab_bytes(m->t->vocab, ids.p[i]).n;
        if (at > cut)
            break;
        st = lg_ids_add(out, ids.p[i], err);
    }
out:
    lg_ids_free(&ids);
    return st;
}

lg_status lg_matcher_forced(lg_matcher *m, const lg_bpe *b, lg_ids *out, lg_err *err)
{
    lg_auto *a = m->g->automaton;
    size_t n_old = 0, context;
    uint32_t cfg;
    lg_buf text;
    lg_status st = LG_OK;

    LG_TRY(refresh(m, err));
    if (m->at[m->n].phase != LG_PHASE_ANSWER || m->at[m->n].owed > 0)
        return LG_OK;
    lg_buf_init(&text, MAX_FORCED + 2 * m->t->longest + 1);
    while (n_old < 2 && n_old < m->n && m->at[m->n - n_old - 1].phase == LG_PHASE_ANSWER &&
           !lg_vocab_is_added(m->t->vocab, m->token[m->n - n_old - 1]))
        n_old++;
    for (size_t i = m->n - n_old; i < m->n; i++)
        (void)lg_buf_adds(&text, lg_vocab_bytes(m->t->vocab, m->token[i]));
    context = text.n;
    if (m->g->program.has_keys)
        lg_auto_mark(a, false);
    cfg = m->at[m->n].cfg;
    while (text.n - context < MAX_FORCED) {
        int byte = forced_byte(a, cfg, &cfg);
        if (byte < 0 || !lg_buf_addc(&text, (char)byte))
            break;
    }
    if (text.failed)
        st = LG_FAIL(err, LG_E_NOMEM, "out of memory in a constrained reply");
    else if (text.n > context)
        st = certain(m, b, lg_buf_str(&text), context, n_old, cfg, out, err);
    if (m->g->program.has_keys)
        lg_auto_back(a);
    lg_buf_free(&text);
    return st == LG_OK ? failure(m, err) : st;
}

lg_status lg_matcher_expected(lg_matcher *m, lg_buf *out, lg_err *err)
{
    enum { SHOWN = 8 };
    lg_auto *a = m->g->automaton;
    uint32_t cfg;
    int n = 0;

    LG_TRY(refresh(m, err));
    cfg = m->at[m->n].cfg;
    if (lg_matcher_phase(m) != LG_PHASE_ANSWER) {
        (void)lg_buf_addz(out, lg_matcher_phase(m) == LG_PHASE_DONE ? "the end" : "anything");
        return LG_OK;
    }
    for (int b = 0; b < 256 && n <= SHOWN; b++) {
        if (lg_auto_next(a, cfg, (uint8_t)b) == LG_CFG_DEAD)
            continue;
        (void)lg_buf_addz(out, n == 0 ? "" : n < SHOWN ? ", " : ", ...");
        if (n++ == SHOWN)
            break;
        if (b == '"')
            (void)lg_buf_addz(out, "'\"'");
        else if (b >= ' ' && b < 0x7f)
            (void)lg_buf_addf(out, "\"%c\"", b);
        else
            (void)lg_buf_addf(out, "byte 0x%02x", b);
    }
    if (n == 0)
        (void)lg_buf_addz(out, lg_auto_cfg(a, cfg)->accept ? "the end" : "a tool call");
    return failure(m, err);
}

void lg_matcher_caches(lg_matcher *m, bool slices, bool cache)
{
    m->no_slices = !slices;
    m->no_cache = !cache;
}

uint64_t lg_matcher_nodes(const lg_matcher *m)
{
    return m->walk.nodes;
}
