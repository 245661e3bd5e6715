/*
 * engine/guide: one reply that follows a grammar: the matcher, the mask of the coming token, and what bans do
 * to it. A zeroed guide is a free reply, for which every call is harmless. The engine's thread.
 *
 * A mask depends only on the tokens taken so far. For a block of drafts: lg_guide_check says how many are
 * legal; then for each row write its mask and take the draft behind it; lg_guide_back returns to the part
 * that was kept.
 */
#ifndef LG_ENGINE_GUIDE_H
#define LG_ENGINE_GUIDE_H

#include "grammar/grammar.h"

typedef struct lg_guide {
    lg_matcher *m; /* NULL: free */
    const lg_token_trie *trie;
    bool calls; /* only tool calls follow the grammar */
} lg_guide;

/* Grammar and tables are borrowed. `thinking`: the reply begins inside the reasoning, and the grammar holds
 * after it. `calls`: the grammar is one of tool calls and holds from each <tool_call> on to the call's end.
 */
LG_NODISCARD lg_status lg_guide_start(lg_guide *g, lg_grammar *grammar, const lg_token_trie *trie,
                                      bool thinking, bool calls, lg_err *err);
void lg_guide_end(lg_guide *g); /* back to a free reply */

bool lg_guide_thinking(const lg_guide *g); /* the value is still to come */
bool lg_guide_active(const lg_guide *g);   /* the coming token is masked */
bool lg_guide_done(const lg_guide *g);     /* complete: nothing but an end may come */
size_t lg_guide_n(const lg_guide *g);      /* tokens taken */

/* While active: the tokens that may come, into `row` (lg_token_trie_words words). Those missing in `allowed`
 * (bans; may be NULL) are left out, unless then none were left. */
LG_NODISCARD lg_status lg_guide_mask(lg_guide *g, const uint32_t *allowed, uint32_t *row, lg_err *err);
/* The token came. Whatever was drawn under the mask is legal; LG_E_DEVICE for another. */
LG_NODISCARD lg_status lg_guide_take(lg_guide *g, int32_t id, lg_err *err);
/* How many of n tokens are legal one after the other; the guide stays. */
LG_NODISCARD lg_status lg_guide_check(lg_guide *g, const int32_t *ids, size_t n, size_t *n_ok, lg_err *err);
/* Text that was taken back from what the guide has seen: the coming tokens spell it first (lg_matcher_heal).
 */
LG_NODISCARD lg_status lg_guide_heal(lg_guide *g, lg_str text, lg_err *err);
/* Makes the mask of the coming token, and of those behind n drafts, so that lg_guide_mask finds them ready:
 * for a time when the host has nothing else to do. */
void lg_guide_prepare(lg_guide *g, const int32_t *draft, size_t n);
/* Forgets all but the first n tokens; constant time. */
void lg_guide_back(lg_guide *g, size_t n);
/* Tokens that must come now, appended to *out, not taken yet (lg_matcher_forced). */
LG_NODISCARD lg_status lg_guide_forced(lg_guide *g, const lg_bpe *b, lg_ids *out, lg_err *err);

#endif
