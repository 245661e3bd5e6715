/*
 * engine/kv: see kv.h. Engine thread only. After lg_kv_create nothing allocates.
 */
#include "engine/kv.h"

#include <stdlib.h>
#include <string.h>

// Blocks of the window before a position.
static int cut_blocks(const lg_kv_class *c)
{
    return lg_kv_entries(c->window) + 1;
}

int lg_kv_blocks(const lg_kv_class *c, int64_t ctx, int max_rows)
{
    int whole = lg_kv_entries(ctx);

    if (c->n_layer == 0)
        return 0;
    if (c->window == 0)
        return whole;
    int live = lg_kv_entries((int64_t)c->window + max_rows + LG_KV_VERIFY_ROWS) + 2;
    int n = live + LG_KV_CUTS * cut_blocks(c) + 1; // and the copy of a block that a cut shares
    return n < whole ? n : whole;
}

static lg_status pool_create(lg_backend *b, lg_kv_class *c, lg_kv_pool *p, int64_t ctx, lg_err *err)
{
    size_t bytes, n = (size_t)c->n_blocks;

    if (c->n_layer == 0)
        return LG_OK;
    p->n_table = lg_kv_entries(ctx);
    p->table = malloc((size_t)p->n_table * sizeof *p->table);
    p->unused = malloc(n * sizeof *p->unused);
    p->refs = calloc(n, sizeof *p->refs);
    if (!p->table || !p->unused || !p->refs)
        return LG_FAIL(err, LG_E_NOMEM, "no memory for the tables of %d KV blocks", c->n_blocks);
    for (int i = 0; i < p->n_table; i++)
        p->table[i] = -1;
    for (int i = c->n_blocks - 1; i >= 0; i--)
        p->unused[p->n_unused++] = i;
    if (!lg_mul_size(n, c->block_bytes, &bytes))
        return LG_FAIL(err, LG_E_NOMEM, "a KV cache of %d blocks of %zu bytes is too large", c->n_blocks,
                       c->block_bytes);
    return b->ops->alloc(b, bytes, &c->mem, err);
}

lg_status lg_kv_create(lg_backend *b, const lg_kv_class *full, const lg_kv_class *window, int64_t ctx,
                       int max_rows, int spare, lg_kv *out, lg_err *err)
{
    lg_kv kv = {.b = b, .ctx = ctx};

    kv.cls[LG_KV_FULL] = *full;
    kv.cls[LG_KV_WINDOW] = *window;
    for (int c = 0; c < LG_KV_CLASSES; c++) {
        if (kv.cls[c].n_layer > 0)
            kv.cls[c].n_blocks = lg_kv_blocks(&kv.cls[c], ctx, max_rows) + spare;
        lg_status st = pool_create(b, &kv.cls[c], &kv.pool[c], ctx, err);
        if (st != LG_OK) {
            lg_kv_destroy(&kv);
            return st;
        }
    }
    for (int i = 0; i < LG_KV_CUTS && window->n_layer > 0; i++) {
        kv.cut[i].block = malloc((size_t)cut_blocks(window) * sizeof *kv.cut[i].block);
        if (!kv.cut[i].block) {
            lg_kv_destroy(&kv);
            return LG_FAIL(err, LG_E_NOMEM, "no memory for a list of KV blocks");
        }
    }
    *out = kv;
    return LG_OK;
}

lg_status lg_kv_add_draft(lg_kv *kv, const lg_kv_class *draft, int max_rows, int spare, lg_err *err)
{
    lg_kv_class *c = &kv->cls[LG_KV_DRAFT];

    LG_ASSERT(kv->pos == 0 && draft->id == LG_KV_DRAFT && draft->window > 0);
    *c = *draft;
    c->n_blocks = lg_kv_blocks(c, kv->ctx, max_rows) + spare;
    LG_TRY(pool_create(kv->b, c, &kv->pool[LG_KV_DRAFT], kv->ctx, err));
    for (int i = 0; i < LG_KV_CUTS; i++) {
        kv->cut[i].draft_from = -1;
        kv->cut[i].draft_block = malloc((size_t)cut_blocks(c) * sizeof *kv->cut[i].draft_block);
        if (!kv->cut[i].draft_block)
            return LG_FAIL(err, LG_E_NOMEM, "no memory for a list of KV blocks");
    }
    return LG_OK;
}

void lg_kv_destroy(lg_kv *kv)
{
    for (int c = 0; c < LG_KV_CLASSES; c++) {
        free(kv->pool[c].table);
        free(kv->pool[c].unused);
        free(kv->pool[c].refs);
        if (kv->cls[c].mem.p)
            kv->b->ops->release(kv->b, &kv->cls[c].mem);
    }
    for (int i = 0; i < LG_KV_CUTS; i++) {
        free(kv->cut[i].block);
        free(kv->cut[i].draft_block);
    }
    *kv = (lg_kv){0};
}

void lg_kv_retain(lg_kv *kv, lg_kv_class_id c, int32_t block)
{
    LG_ASSERT(kv->pool[c].refs[block] > 0);
    kv->pool[c].refs[block]++;
}

void lg_kv_release(lg_kv *kv, lg_kv_class_id c, int32_t block)
{
    lg_kv_pool *p = &kv->pool[c];

    LG_ASSERT(p->refs[block] > 0);
    if (--p->refs[block] == 0)
        p->unused[p->n_unused++] = block;
}

static int32_t take(lg_kv_pool *p)
{
    int32_t block = p->unused[--p->n_unused];

    p->refs[block] = 1;
    return block;
}

static void drop_entry(lg_kv *kv, lg_kv_class_id c, int at)
{
    lg_kv_pool *p = &kv->pool[c];

    if (p->table[at] >= 0)
        lg_kv_release(kv, c, p->table[at]);
    p->table[at] = -1;
}

// First position that a query at `pos` sees.
static int64_t seen_from(const lg_kv_class *c, int64_t pos)
{
    int64_t from = c->window ? pos - c->window + 1 : 0;

    return from > 0 ? from : 0;
}

// A shared block that the next row would be written into.
static bool must_copy(const lg_kv *kv, const lg_kv_pool *p)
{
    int32_t block = kv->pos % LG_KV_BLOCK ? p->table[kv->pos / LG_KV_BLOCK] : -1;

    return block >= 0 && p->refs[block] > 1;
}

// Blocks that n more rows need beside those the table has.
static int blocks_needed(const lg_kv *kv, const lg_kv_pool *p, int n)
{
    int need = must_copy(kv, p) ? 1 : 0;

    for (int i = lg_kv_entries(kv->pos); i < lg_kv_entries(kv->pos + n); i++)
        need += p->table[i] < 0;
    return need;
}

// First table entry that must stay: what the next query sees, and what it would see after taking a
// verification back.
static int keep_from(const lg_kv *kv, const lg_kv_class *c)
{
    int64_t back = kv->pos > LG_KV_VERIFY_ROWS ? kv->pos - LG_KV_VERIFY_ROWS : 0;

    return (int)(seen_from(c, back) / LG_KV_BLOCK);
}

// Whether `need` blocks can be had by letting go of what slid out of the window.
static bool can_take(const lg_kv *kv, lg_kv_class_id c, int need)
{
    const lg_kv_pool *p = &kv->pool[c];
    int have = p->n_unused;

    for (int i = p->first; i < keep_from(kv, &kv->cls[c]); i++)
        have += p->table[i] >= 0 && p->refs[p->table[i]] == 1;
    return have >= need;
}

static void grow_class(lg_kv *kv, lg_kv_class_id c, int n)
{
    lg_kv_pool *p = &kv->pool[c];
    int need = blocks_needed(kv, p, n);

    for (; p->n_unused < need; p->first++)
        drop_entry(kv, c, p->first);
    if (must_copy(kv, p)) {
        int at = (int)(kv->pos / LG_KV_BLOCK);
        int32_t from = p->table[at], to = take(p);
        kv->b->ops->kv_move(
            kv->b, &kv->cls[c],
            &(lg_kv_copy){.src_block = from, .dst_block = to, .rows = (int)(kv->pos % LG_KV_BLOCK)}, 1);
        p->table[at] = to;
        lg_kv_release(kv, c, from);
    }
    for (int i = lg_kv_entries(kv->pos); i < lg_kv_entries(kv->pos + n); i++)
        if (p->table[i] < 0)
            p->table[i] = take(p);
}

lg_status lg_kv_grow(lg_kv *kv, int n, lg_err *err)
{
    if (kv->pos + n > kv->ctx)
        return LG_FAIL(err, LG_E_LIMIT, "%lld tokens and %d more exceed the context of %lld",
                       (long long)kv->pos, n, (long long)kv->ctx);
    for (int c = 0; c < LG_KV_CLASSES; c++)
        if (kv->cls[c].n_layer > 0 && !can_take(kv, c, blocks_needed(kv, &kv->pool[c], n)))
            return LG_FAIL(err, LG_E_LIMIT, "no free KV block for %d more rows", n);
    for (int c = 0; c < LG_KV_CLASSES; c++)
        if (kv->cls[c].n_layer > 0)
            grow_class(kv, c, n);
    return LG_OK;
}

void lg_kv_commit(lg_kv *kv, int n)
{
    kv->pos += n;
    LG_ASSERT(kv->pos <= kv->ctx);
}

bool lg_kv_holds(const lg_kv *kv, int64_t pos)
{
    if (pos > kv->pos)
        return false;
    for (int c = 0; c < LG_KV_DRAFT; c++) {
        int64_t held = (int64_t)kv->pool[c].first * LG_KV_BLOCK;
        if (kv->cls[c].n_layer > 0 && pos > 0 && held > seen_from(&kv->cls[c], pos))
            return false;
    }
    return true;
}

static void drop_cut(lg_kv *kv, lg_kv_cut *cut)
{
    for (int i = 0; i < cut->n; i++)
        lg_kv_release(kv, LG_KV_WINDOW, cut->block[i]);
    for (int i = 0; i < cut->draft_n; i++)
        lg_kv_release(kv, LG_KV_DRAFT, cut->draft_block[i]);
    cut->pos = cut->n = cut->draft_n = 0;
    cut->draft_from = -1;
}

// Keeps the blocks that the drafter sees from the end of the sequence on.
static void cut_draft(lg_kv *kv, lg_kv_cut *cut)
{
    const lg_kv_class *c = &kv->cls[LG_KV_DRAFT];
    const lg_kv_pool *p = &kv->pool[LG_KV_DRAFT];

    if (c->n_layer == 0 || kv->draft_to != kv->pos || kv->draft_from >= kv->draft_to)
        return;
    int64_t from = seen_from(c, kv->pos - 1);
    cut->draft_from = kv->draft_from;
    cut->draft_first = (int)((from > kv->draft_from ? from : kv->draft_from) / LG_KV_BLOCK);
    cut->draft_n = lg_kv_entries(kv->pos) - cut->draft_first;
    LG_ASSERT(cut->draft_first >= p->first && cut->draft_n <= cut_blocks(c));
    for (int i = 0; i < cut->draft_n; i++) {
        cut->draft_block[i] = p->table[cut->draft_first + i];
        lg_kv_retain(kv, LG_KV_DRAFT, cut->draft_block[i]);
    }
}

// Puts them back, or nothing where there are none.
static void resume_draft(lg_kv *kv, const lg_kv_cut *cut)
{
    lg_kv_pool *p = &kv->pool[LG_KV_DRAFT];

    for (int i = 0; i < cut->draft_n; i++)
        lg_kv_retain(kv, LG_KV_DRAFT, cut->draft_block[i]);
    for (int i = 0; i < p->n_table; i++)
        drop_entry(kv, LG_KV_DRAFT, i);
    for (int i = 0; i < cut->draft_n; i++)
        p->table[cut->draft_first + i] = cut->draft_block[i];
    p->first = cut->draft_n > 0 ? cut->draft_first : lg_kv_entries(cut->pos);
    kv->draft_from = cut->draft_n > 0 ? cut->draft_from : cut->pos;
    kv->draft_to = cut->pos;
}

int lg_kv_draft_skip(lg_kv *kv, int64_t pos, int n)
{
    if (pos != kv->draft_to || kv->draft_from % LG_KV_BLOCK) {
        kv->draft_from = (int64_t)lg_kv_entries(pos) * LG_KV_BLOCK;
        kv->draft_to = kv->draft_from;
    }
    return kv->draft_to - pos < n ? (int)(kv->draft_to - pos) : n;
}

void lg_kv_draft_commit(lg_kv *kv, int n)
{
    kv->draft_to += n;
    LG_ASSERT(n == 0 || kv->draft_to <= kv->pos);
}

// The drafter's rows from `pos` on are forgotten; all of them where its window before `pos` is not held.
static void truncate_draft(lg_kv *kv, int64_t pos)
{
    const lg_kv_class *c = &kv->cls[LG_KV_DRAFT];
    lg_kv_pool *p = &kv->pool[LG_KV_DRAFT];
    int64_t held = (int64_t)p->first * LG_KV_BLOCK, from = seen_from(c, pos);

    if (c->n_layer == 0)
        return;
    if (pos < kv->draft_to)
        kv->draft_to = pos;
    if (kv->draft_to < pos || kv->draft_from >= pos || held > (from > kv->draft_from ? from : kv->draft_from))
        kv->draft_from = kv->draft_to = 0;
    // a block that is half gone stays so: the context starts anew at the next one
    if (p->first > lg_kv_entries(pos))
        p->first = lg_kv_entries(pos);
}

void lg_kv_cut_here(lg_kv *kv)
{
    const lg_kv_class *c = &kv->cls[LG_KV_WINDOW];
    const lg_kv_pool *p = &kv->pool[LG_KV_WINDOW];
    lg_kv_cut oldest = kv->cut[LG_KV_CUTS - 1];

    if (c->n_layer == 0 || c->n_blocks >= p->n_table || kv->pos == 0 || kv->cut[0].pos == kv->pos)
        return;
    drop_cut(kv, &oldest);
    memmove(kv->cut + 1, kv->cut, (LG_KV_CUTS - 1) * sizeof *kv->cut);
    oldest.pos = kv->pos;
    oldest.first = (int)(seen_from(c, kv->pos - 1) / LG_KV_BLOCK);
    oldest.n = lg_kv_entries(kv->pos) - oldest.first;
    LG_ASSERT(oldest.first >= p->first && oldest.n <= cut_blocks(c));
    for (int i = 0; i < oldest.n; i++) {
        oldest.block[i] = p->table[oldest.first + i];
        lg_kv_retain(kv, LG_KV_WINDOW, oldest.block[i]);
    }
    cut_draft(kv, &oldest);
    kv->cut[0] = oldest;
}

// Puts the window blocks of the last cut at or before `pos` (or one behind it) into the table. Returns where
// the sequence can go on.
static int64_t resume_at_cut(lg_kv *kv, int64_t pos)
{
    lg_kv_pool *p = &kv->pool[LG_KV_WINDOW];
    const lg_kv_cut *best = NULL;

    for (int i = 0; i < LG_KV_CUTS; i++)
        if (kv->cut[i].pos > 0 && kv->cut[i].pos <= pos + 1 && (!best || kv->cut[i].pos > best->pos))
            best = &kv->cut[i];
    if (!best)
        return 0;
    for (int i = 0; i < best->n; i++)
        lg_kv_retain(kv, LG_KV_WINDOW, best->block[i]);
    for (int i = 0; i < p->n_table; i++)
        drop_entry(kv, LG_KV_WINDOW, i);
    for (int i = 0; i < best->n; i++)
        p->table[best->first + i] = best->block[i];
    p->first = best->first;
    if (kv->cls[LG_KV_DRAFT].n_layer > 0)
        resume_draft(kv, best);
    return best->pos < pos ? best->pos : pos;
}

int64_t lg_kv_truncate(lg_kv *kv, int64_t pos)
{
    if (!lg_kv_holds(kv, pos))
        pos = pos < kv->pos ? resume_at_cut(kv, pos) : 0;
    for (int i = 0; i < LG_KV_CUTS; i++)
        if (kv->cut[i].pos > pos)
            drop_cut(kv, &kv->cut[i]);
    for (int c = 0; c < LG_KV_CLASSES; c++) {
        lg_kv_pool *p = &kv->pool[c];
        for (int i = lg_kv_entries(pos); i < p->n_table; i++)
            drop_entry(kv, c, i);
        if (pos == 0)
            p->first = 0;
    }
    truncate_draft(kv, pos);
    kv->pos = pos;
    return pos;
}

bool lg_kv_check(const lg_kv *kv)
{
    for (int c = 0; c < LG_KV_CLASSES; c++) {
        const lg_kv_pool *p = &kv->pool[c];
        int held = 0, unused = 0;
        for (int i = 0; i < kv->cls[c].n_blocks; i++)
            held += p->refs[i] > 0;
        for (int i = 0; i < p->n_unused; i++)
            unused += p->refs[p->unused[i]] == 0;
        if (unused != p->n_unused || held + unused != kv->cls[c].n_blocks)
            return false;
        int live = kv->cls[c].n_layer > 0 ? lg_kv_entries(kv->pos) : 0;
        for (int i = 0; i < p->n_table; i++) {
            if (p->table[i] >= 0 && (i < p->first || p->refs[p->table[i]] < 1))
                return false;
            if (p->table[i] < 0 && i >= p->first && i < live)
                return false;
        }
    }
    return true;
}
