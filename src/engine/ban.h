/*
 * engine/ban: strings that a reply must not contain, as a bit mask over the vocabulary (api.md 8).
 *
 * A token is masked when its own bytes contain the string; a string spread over several tokens is not caught.
 * Added tokens are never masked, because a pattern that happens to hit one would break the reply's structure.
 */
#ifndef LG_ENGINE_BAN_H
#define LG_ENGINE_BAN_H

#include "text/vocab.h"

/* Clears the bits of banned tokens in `allowed` (bit id % 32 of word id / 32; ceil(vocab size / 32) words,
 * set by the caller). Empty strings are ignored. Returns how many added tokens a string hit and were left
 * alone. */
int lg_ban_mask(const lg_vocab *v, const lg_str *ban, size_t n, uint32_t *allowed);

#endif
