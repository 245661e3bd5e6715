/*
 * engine/edit: small changes to the logits of one token: ids that may not come, cues that are damped, one id
 * that is lifted. The thinking bounds ask for them (think.h).
 *
 * They can be applied to a full row, or to the few largest logits that a device returned. The second is exact
 * or it says that it cannot be: a token outside the list has a logit of at most the list's last one, so every
 * entry above that is in its right place, and the others are dropped.
 */
#ifndef LG_ENGINE_EDIT_H
#define LG_ENGINE_EDIT_H

#include "engine/sampler.h"

enum { LG_EDIT_MASKS = 8 };

typedef struct lg_edit {
    int32_t mask[LG_EDIT_MASKS]; /* never */
    int n_mask;
    /* takes over the largest logit of the first n_left masked ids, if it has less; -1: none */
    int32_t heir;
    int n_left;
    const int32_t *damp; /* these lose damp_by */
    int n_damp;
    float damp_by;
    int32_t lift; /* is raised to at least (largest logit - gap); -1: none */
    float gap;
} lg_edit;

void lg_edit_init(lg_edit *e); /* changes nothing */
bool lg_edit_empty(const lg_edit *e);

/* On a full row of n logits. True when the lift raised its logit. */
bool lg_edit_row(const lg_edit *e, float *row, int n);

/* On the n largest logits, descending, in place; the arrays have room for n + 1. Returns how many entries are
 * certain (0 when none is). *lifted as above. */
int lg_edit_list(const lg_edit *e, int32_t *ids, float *logits, int n, bool *lifted);

#endif
