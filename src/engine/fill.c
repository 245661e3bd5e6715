/*
 * engine/fill: a cache full of random rows, for measuring what a step costs at a depth of context without the
 * prefill that would lead there.
 *
 * Keys and values are normal with deviation 1, which is what they are behind QK-norm. Each class gets one
 * block of them, written again into every block that the sequence holds: what is read is real memory all the
 * same.
 */
#include <stdlib.h>

#include "engine/engine_int.h"

/* splitmix64 */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* Near enough to a normal number: four uniform ones, each 16 bits of one draw. */
static float normal(uint64_t *state)
{
    uint64_t r = next(state);
    int32_t sum = (int32_t)(r & 0xFFFF) + (int32_t)(r >> 16 & 0xFFFF) + (int32_t)(r >> 32 & 0xFFFF) +
                  (int32_t)(r >> 48);

    return ((float)sum - 2.0f * 65535.0f) * (1.7320508f / 65536.0f);
}

static bool random_block(const lg_kv_class *c, uint64_t seed, char *block)
{
    float *row = malloc((size_t)c->head_dim * sizeof *row);
    uint64_t state = seed ^ (uint64_t)c->id << 56;

    if (!row)
        return false;
    for (int layer = 0; layer < c->n_layer; layer++)
        for (int v = 0; v < 2; v++)
            for (int head = 0; head < c->n_kv_head; head++)
                for (int r = 0; r < LG_KV_BLOCK; r++) {
                    for (int i = 0; i < c->head_dim; i++)
                        row[i] = normal(&state);
                    LG_ASSERT(lg_quant_row(c->type, row, block + lg_kv_offset(c, 0, layer, v, head, r),
                                           c->head_dim));
                }
    free(row);
    return true;
}

/* The blocks behind positions [pos, pos + n), which lg_kv_grow has just made. */
static lg_status write_blocks(lg_engine *e, lg_kv_class_id id, const char *block, int n, lg_err *err)
{
    const lg_kv_class *c = &e->kv.cls[id];

    for (int i = (int)(e->kv.pos / LG_KV_BLOCK); i < lg_kv_entries(e->kv.pos + n); i++)
        LG_TRY(e->b->ops->upload(e->b, &c->mem, (size_t)lg_kv_where(&e->kv, id)[i] * c->block_bytes,
                                 block, c->block_bytes, err));
    return LG_OK;
}

lg_status lg_engine_fill(lg_engine *e, int64_t n, uint64_t seed, lg_err *err)
{
    char *block[LG_KV_CLASSES] = {0};
    uint64_t state = seed;
    lg_status st = LG_OK;

    if (n < 0 || n > e->plan.ctx)
        return LG_FAIL(err, LG_E_LIMIT, "%lld tokens exceed the context of %lld", (long long)n,
                       (long long)e->plan.ctx);
    lg_prefix_detach(e->px); // rows of no text
    (void)lg_kv_truncate(&e->kv, 0);
    lg_prefix_settle(e->px);
    for (int c = 0; c < LG_KV_CLASSES && st == LG_OK; c++) {
        if (e->kv.cls[c].n_layer == 0)
            continue;
        block[c] = malloc(e->kv.cls[c].block_bytes);
        if (!block[c] || !random_block(&e->kv.cls[c], seed, block[c]))
            st = LG_FAIL(err, LG_E_NOMEM, "no memory for a block of random rows");
    }
    while (st == LG_OK && e->kv.pos < n) {
        int64_t left = n - e->kv.pos;
        int rows = left < e->work.max_rows ? (int)left : e->work.max_rows;

        st = lg_kv_grow(&e->kv, rows, err);
        for (int c = 0; c < LG_KV_CLASSES && st == LG_OK; c++)
            if (block[c])
                st = write_blocks(e, (lg_kv_class_id)c, block[c], rows, err);
        for (int i = 0; i < rows && st == LG_OK; i++)
            e->tokens[e->kv.pos + i] = (int32_t)(next(&state) % (uint64_t)e->hp.vocab);
        if (st == LG_OK) {
            lg_kv_commit(&e->kv, rows);
            if (block[LG_KV_DRAFT])
                lg_kv_draft_commit(&e->kv, rows - lg_kv_draft_skip(&e->kv, e->kv.pos - rows, rows));
        }
    }
    for (int c = 0; c < LG_KV_CLASSES; c++)
        free(block[c]);
    return st;
}
