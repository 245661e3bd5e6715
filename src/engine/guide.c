/*
 * engine/guide: see guide.h. All knowledge of what is legal is the matcher's (grammar/grammar.h).
 */
#include "engine/guide.h"

lg_status lg_guide_start(lg_guide *g, lg_grammar *grammar, const lg_token_trie *trie, bool thinking,
                         bool calls, lg_err *err)
{
    lg_phase start = calls ? LG_PHASE_FREE : thinking ? LG_PHASE_THINK : LG_PHASE_ANSWER;

    *g = (lg_guide){.trie = trie, .calls = calls};
    return lg_matcher_create(grammar, trie, start, &g->m, err);
}

void lg_guide_end(lg_guide *g)
{
    lg_matcher_destroy(g->m);
    *g = (lg_guide){0};
}

bool lg_guide_thinking(const lg_guide *g)
{
    return g->m && lg_matcher_phase(g->m) == LG_PHASE_THINK;
}

bool lg_guide_active(const lg_guide *g)
{
    return g->m && (lg_matcher_phase(g->m) == LG_PHASE_ANSWER || lg_matcher_phase(g->m) == LG_PHASE_DONE);
}

bool lg_guide_done(const lg_guide *g)
{
    return g->m && lg_matcher_must_stop(g->m);
}

size_t lg_guide_n(const lg_guide *g)
{
    return g->m ? lg_matcher_n(g->m) : 0;
}

// A limit that is reached while a reply runs is no fault of the request, which was compiled: it ends this
// reply alone.
static lg_status internal(lg_status st, lg_err *err)
{
    if (st == LG_E_LIMIT)
        st = LG_FAIL(err, LG_E_NOMEM, "the constraint of this reply needs more memory than it may take");
    return st;
}

lg_status lg_guide_mask(lg_guide *g, const uint32_t *allowed, uint32_t *row, lg_err *err)
{
    size_t words = lg_token_trie_words(g->trie);
    const uint32_t *legal;
    uint32_t any = 0;

    LG_TRY(internal(lg_matcher_mask(g->m, &legal, err), err));
    for (size_t i = 0; i < words; i++) {
        row[i] = allowed ? legal[i] & allowed[i] : legal[i];
        any |= row[i];
    }
    for (size_t i = 0; any == 0 && i < words; i++)
        row[i] = legal[i];
    return LG_OK;
}

lg_status lg_guide_take(lg_guide *g, int32_t id, lg_err *err)
{
    bool ok;

    if (!g->m)
        return LG_OK;
    LG_TRY(internal(lg_matcher_accept(g->m, id, &ok, err), err));
    return ok ? LG_OK
              : LG_FAIL(err, LG_E_INTERNAL, "token %d was drawn, which the constraint forbids", (int)id);
}

lg_status lg_guide_check(lg_guide *g, const int32_t *ids, size_t n, size_t *n_ok, lg_err *err)
{
    *n_ok = n;
    return g->m ? internal(lg_matcher_check(g->m, ids, n, n_ok, err), err) : LG_OK;
}

lg_status lg_guide_heal(lg_guide *g, lg_str text, lg_err *err)
{
    return g->m && text.n > 0 ? lg_matcher_heal(g->m, text, err) : LG_OK;
}

void lg_guide_prepare(lg_guide *g, const int32_t *draft, size_t n)
{
    size_t before = lg_guide_n(g);
    const uint32_t *mask;
    bool ok = true;

    if (!g->m)
        return;
    for (size_t i = 0; ok; i++) { // a failure comes back when the mask is asked for
        if (lg_guide_active(g) && lg_matcher_mask(g->m, &mask, NULL) != LG_OK)
            break;
        if (i == n || lg_matcher_accept(g->m, draft[i], &ok, NULL) != LG_OK)
            break;
    }
    lg_guide_back(g, before);
}

void lg_guide_back(lg_guide *g, size_t n)
{
    if (g->m)
        lg_matcher_rollback(g->m, n);
}

lg_status lg_guide_forced(lg_guide *g, const lg_bpe *b, lg_ids *out, lg_err *err)
{
    return g->m ? internal(lg_matcher_forced(g->m, b, out, err), err) : LG_OK;
}
