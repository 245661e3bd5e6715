/*
 * engine/ban: see ban.h. Runs once a reply, before its first token.
 */
#include "engine/ban.h"

static bool hits(lg_str bytes, const lg_str *ban, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ban[i].n > 0 && lg_str_find(bytes, ban[i], 0) != SIZE_MAX)
            return true;
    return false;
}

int lg_ban_mask(const lg_vocab *v, const lg_str *ban, size_t n, uint32_t *allowed)
{
    int skipped = 0;

    for (int32_t id = 0; id < lg_vocab_size(v); id++) {
        if (!hits(lg_vocab_bytes(v, id), ban, n))
            continue;
        if (lg_vocab_is_added(v, id))
            skipped++;
        else
            allowed[id / 32] &= ~(UINT32_C(1) << (id % 32));
    }
    return skipped;
}
