/*
 * engine/kv: see kv.h. Engine thread only. After lg_kv_create nothing allocates.
 */
#include "engine/kv.h"

#include <stdlib.h>
#include <string.h>

#include "engine/kv_page.h"

int lg_kv_cut_room(const lg_kv_class *c)
{
    return c->n_layer > 0 && c->window > 0 ? lg_kv_entries(c->window) + 1 : 0;
}

int lg_kv_blocks(const lg_kv_class *c, int64_t ctx, int max_rows)
{
    int whole = lg_kv_entries(ctx);

    if (c->n_layer == 0)
        return 0;
    if (c->window == 0)
        return whole + 1;
    int n = lg_kv_entries((int64_t)c->window + max_rows + LG_KV_VERIFY_ROWS) + 2;
    return (n < whole ? n : whole) + 1;
}

// `live` blocks for the sequence and the copy of a block, and spare ones.
static lg_status pool_create(lg_kv *kv, lg_kv_class_id id, int live, const lg_kv_spare *spare, lg_err *err)
{
    lg_kv_class *c = &kv->cls[id];
    lg_kv_pool *p = &kv->pool[id];
    int slots = live + (spare->slots < spare->blocks ? spare->slots : spare->blocks);
    size_t bytes, n;

    if (c->n_layer == 0)
        return LG_OK;
    c->n_blocks = live + spare->blocks;
    n = (size_t)c->n_blocks;
    p->max_live = live - 1;
    p->n_table = lg_kv_entries(kv->ctx);
    p->table = malloc((size_t)p->n_table * sizeof *p->table);
    p->unused = malloc(n * sizeof *p->unused);
    p->refs = calloc(n, sizeof *p->refs);
    p->fill = calloc(n, sizeof *p->fill);
    p->in_table = calloc(n, sizeof *p->in_table);
    if (!p->table || !p->unused || !p->refs || !p->fill || !p->in_table)
        return LG_FAIL(err, LG_E_NOMEM, "no memory for the tables of %d KV blocks", c->n_blocks);
    for (int i = 0; i < p->n_table; i++)
        p->table[i] = -1;
    if (slots < c->n_blocks)
        LG_TRY(lg_kv_pages_create(p, c->n_blocks, slots, err));
    if (!lg_mul_size((size_t)slots, c->block_bytes, &bytes))
        return LG_FAIL(err, LG_E_NOMEM, "a KV cache of %d blocks of %zu bytes is too large", slots,
                       c->block_bytes);
    return kv->b->ops->alloc(kv->b, bytes, &c->mem, err);
}

lg_status lg_kv_create_paged(lg_backend *b, const lg_kv_class *full, const lg_kv_class *window, int64_t ctx,
                             int max_rows, const lg_kv_spare *spare_full, const lg_kv_spare *spare_window,
                             uint64_t image_bytes, lg_kv *out, lg_err *err)
{
    lg_kv kv = {.b = b, .ctx = ctx, .max_image_bytes = image_bytes};
    const lg_kv_spare *const spare[] = {spare_full, spare_window};

    kv.cls[LG_KV_FULL] = *full;
    kv.cls[LG_KV_WINDOW] = *window;
    for (int c = 0; c < LG_KV_DRAFT; c++) {
        int live = lg_kv_blocks(&kv.cls[c], ctx, max_rows);
        lg_status st = pool_create(&kv, (lg_kv_class_id)c, live, spare[c], err);
        if (st != LG_OK) {
            lg_kv_destroy(&kv);
            return st;
        }
    }
    *out = kv;
    return LG_OK;
}

lg_status lg_kv_create(lg_backend *b, const lg_kv_class *full, const lg_kv_class *window, int64_t ctx,
                       int max_rows, int spare_full, int spare_window, lg_kv *out, lg_err *err)
{
    return lg_kv_create_paged(b, full, window, ctx, max_rows,
                              &(lg_kv_spare){.blocks = spare_full, .slots = spare_full},
                              &(lg_kv_spare){.blocks = spare_window, .slots = spare_window}, 0, out, err);
}

lg_status lg_kv_add_draft(lg_kv *kv, const lg_kv_class *draft, int max_rows, int spare, lg_err *err)
{
    lg_kv_class *c = &kv->cls[LG_KV_DRAFT];
    const lg_kv_pool *w = &kv->pool[LG_KV_WINDOW];
    lg_kv_spare more = {.blocks = spare, .slots = spare};

    LG_ASSERT(kv->pos == 0 && draft->id == LG_KV_DRAFT && draft->window > 0);
    if (spare < 0) {
        more.blocks = kv->cls[LG_KV_WINDOW].n_layer > 0
                          ? kv->cls[LG_KV_WINDOW].n_blocks - w->max_live - 1
                          : 0;
        more.slots = w->pages.n_slots > 0 ? w->pages.n_slots - w->max_live - 1 : more.blocks;
    }
    *c = *draft;
    return pool_create(kv, LG_KV_DRAFT, lg_kv_blocks(c, kv->ctx, max_rows), &more, err);
}

void lg_kv_destroy(lg_kv *kv)
{
    for (int c = 0; c < LG_KV_CLASSES; c++) {
        lg_kv_pages_destroy(kv, (lg_kv_class_id)c);
        free(kv->pool[c].table);
        free(kv->pool[c].unused);
        free(kv->pool[c].refs);
        free(kv->pool[c].fill);
        free(kv->pool[c].in_table);
        if (kv->cls[c].mem.p)
            kv->b->ops->release(kv->b, &kv->cls[c].mem);
    }
    *kv = (lg_kv){0};
}

// --- blocks ---

int lg_kv_free_blocks(const lg_kv *kv, lg_kv_class_id c)
{
    const lg_kv_pool *p = &kv->pool[c];

    return p->n_dirty + p->n_clean + (kv->cls[c].n_blocks - p->n_fresh);
}

static void unhold(lg_kv_pool *p, int32_t block)
{
    LG_ASSERT(p->refs[block] > 0);
    if (--p->refs[block] > 0)
        return;
    p->unused[p->n_dirty++] = block;
    lg_kv_page_free(p, block);
}

void lg_kv_retain(lg_kv *kv, lg_kv_class_id c, int32_t block)
{
    lg_kv_pool *p = &kv->pool[c];

    LG_ASSERT(p->refs[block] > 0);
    if (p->refs[block] == p->in_table[block]) {
        p->n_kept++;
        p->n_shared += p->in_table[block];
    }
    p->refs[block]++;
}

void lg_kv_release(lg_kv *kv, lg_kv_class_id c, int32_t block)
{
    lg_kv_pool *p = &kv->pool[c];

    LG_ASSERT(p->refs[block] > p->in_table[block]);
    if (p->refs[block] == 1 + p->in_table[block]) {
        p->n_kept--;
        p->n_shared -= p->in_table[block];
    }
    unhold(p, block);
}

// The table takes a block, or lets go of one.
static void enter(lg_kv_pool *p, int at, int32_t block)
{
    LG_ASSERT(p->table[at] < 0 && !p->in_table[block]);
    p->table[at] = block;
    lg_kv_page_enter(p, at, block);
    p->in_table[block] = true;
    p->n_live++;
    p->n_shared += p->refs[block] > 0;
    p->refs[block]++;
}

static void drop_entry(lg_kv_pool *p, int at)
{
    int32_t block = p->table[at];

    p->table[at] = -1;
    if (block < 0)
        return;
    p->in_table[block] = false;
    p->n_live--;
    p->n_shared -= p->refs[block] > 1;
    lg_kv_page_leave(p, at, block);
    unhold(p, block);
}

static uint64_t committed(const lg_kv *kv)
{
    uint64_t sum = 0;

    for (int c = 0; c < LG_KV_CLASSES; c++)
        sum += (uint64_t)(kv->pool[c].n_fresh - kv->pool[c].n_clean) * kv->cls[c].block_bytes;
    return sum;
}

// Free blocks of other classes give their memory back until `bytes` more may be committed.
static void make_room(lg_kv *kv, lg_kv_class_id c, size_t bytes)
{
    if (kv->max_bytes == 0 || !kv->b->discard)
        return;
    for (int o = 0; o < LG_KV_CLASSES; o++) {
        lg_kv_pool *p = &kv->pool[o];
        while (o != (int)c && p->n_dirty > 0 && committed(kv) + bytes > kv->max_bytes) {
            int32_t block = p->unused[--p->n_dirty];
            kv->b->discard(kv->b, &kv->cls[o].mem, (size_t)block * kv->cls[o].block_bytes,
                           kv->cls[o].block_bytes);
            p->unused[kv->cls[o].n_blocks - ++p->n_clean] = block;
        }
    }
}

// A free block, one that is committed already if there is any, for rows that are about to be written.
static lg_status take(lg_kv *kv, lg_kv_class_id c, int32_t *out, lg_err *err)
{
    lg_kv_pool *p = &kv->pool[c];
    lg_status st;
    int32_t block;

    if (p->n_dirty > 0) {
        block = p->unused[--p->n_dirty];
    } else {
        make_room(kv, c, kv->cls[c].block_bytes);
        block = p->n_clean > 0 ? p->unused[kv->cls[c].n_blocks - p->n_clean--] : p->n_fresh++;
    }
    LG_ASSERT(block < kv->cls[c].n_blocks);
    p->fill[block] = 0;
    st = lg_kv_page_slot(kv, c, block, err);
    if (st != LG_OK)
        p->unused[p->n_dirty++] = block;
    *out = block;
    return st;
}

// --- the live sequence ---

// First position that a query at `pos` sees.
static int64_t seen_from(const lg_kv_class *c, int64_t pos)
{
    int64_t from = c->window ? pos - c->window + 1 : 0;

    return from > 0 ? from : 0;
}

// The next row would be written over one that another holder of its block may refer to.
static bool must_copy(const lg_kv *kv, const lg_kv_pool *p)
{
    int row = (int)(kv->pos % LG_KV_BLOCK);
    int32_t block = row ? p->table[kv->pos / LG_KV_BLOCK] : -1;

    return block >= 0 && p->refs[block] > 1 && p->fill[block] > row;
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
    int have = lg_kv_free_blocks(kv, c);

    for (int i = p->first; i < keep_from(kv, &kv->cls[c]); i++)
        have += p->table[i] >= 0 && p->refs[p->table[i]] == 1;
    return have >= need;
}

// The last block of the table becomes a copy of it that nobody else holds.
static lg_status copy_last(lg_kv *kv, lg_kv_class_id c, lg_err *err)
{
    lg_kv_pool *p = &kv->pool[c];
    int at = (int)(kv->pos / LG_KV_BLOCK), rows = (int)(kv->pos % LG_KV_BLOCK);
    int32_t from = p->table[at], to = -1, src = lg_kv_where(kv, c)[at];

    LG_TRY(take(kv, c, &to, err));
    drop_entry(p, at);
    enter(p, at, to);
    kv->b->ops->kv_move(kv->b, &kv->cls[c],
                        &(lg_kv_copy){.src_block = src, .dst_block = lg_kv_where(kv, c)[at], .rows = rows},
                        1);
    p->fill[to] = (uint8_t)rows;
    LG_ASSERT(p->refs[from] > 0);
    return LG_OK;
}

static lg_status grow_class(lg_kv *kv, lg_kv_class_id c, int n, lg_err *err)
{
    lg_kv_pool *p = &kv->pool[c];
    int need = blocks_needed(kv, p, n), keep = keep_from(kv, &kv->cls[c]);

    while (p->first < keep && (p->n_live + need > p->max_live || lg_kv_free_blocks(kv, c) < need))
        drop_entry(p, p->first++);
    if (must_copy(kv, p))
        LG_TRY(copy_last(kv, c, err));
    for (int i = lg_kv_entries(kv->pos); i < lg_kv_entries(kv->pos + n); i++) {
        int32_t block;
        if (p->table[i] >= 0)
            continue;
        LG_TRY(take(kv, c, &block, err));
        enter(p, i, block);
    }
    return LG_OK;
}

lg_status lg_kv_grow(lg_kv *kv, int n, lg_err *err)
{
    if (kv->pos + n > kv->ctx)
        return LG_FAIL(err, LG_E_LIMIT, "%lld tokens and %d more exceed the context of %lld",
                       (long long)kv->pos, n, (long long)kv->ctx);
    for (int c = 0; c < LG_KV_CLASSES; c++)
        if (kv->cls[c].n_layer > 0 && !can_take(kv, c, blocks_needed(kv, &kv->pool[c], n)))
            return LG_FAIL(err, LG_E_LIMIT, "no free KV block for %d more rows", n);
    LG_TRY(lg_kv_page_bring(kv, err));
    for (int c = 0; c < LG_KV_CLASSES; c++)
        if (kv->cls[c].n_layer > 0)
            LG_TRY(grow_class(kv, c, n, err));
    return LG_OK;
}

// Rows [pos, pos + n) of the class are valid now.
static void fill_rows(lg_kv_pool *p, int64_t pos, int64_t n)
{
    for (int64_t i = pos / LG_KV_BLOCK; n > 0 && i <= (pos + n - 1) / LG_KV_BLOCK; i++) {
        int64_t end = pos + n - i * LG_KV_BLOCK;
        p->fill[p->table[i]] = (uint8_t)(end < LG_KV_BLOCK ? end : LG_KV_BLOCK);
        lg_kv_page_wrote(p, p->table[i]);
    }
}

void lg_kv_commit(lg_kv *kv, int n)
{
    LG_ASSERT(kv->pos + n <= kv->ctx);
    for (int c = 0; c < LG_KV_DRAFT; c++)
        if (kv->cls[c].n_layer > 0)
            fill_rows(&kv->pool[c], kv->pos, n);
    kv->pos += n;
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

int64_t lg_kv_truncate(lg_kv *kv, int64_t pos)
{
    if (!lg_kv_holds(kv, pos))
        pos = 0;
    for (int c = 0; c < LG_KV_CLASSES; c++) {
        lg_kv_pool *p = &kv->pool[c];
        int at = (int)(pos / LG_KV_BLOCK), rows = (int)(pos % LG_KV_BLOCK);
        for (int i = lg_kv_entries(pos); i < p->n_table; i++)
            drop_entry(p, i);
        if (pos == 0)
            p->first = 0;
        // what only the live sequence held is free to be written again
        if (rows && p->n_table > 0 && p->table[at] >= 0 && p->refs[p->table[at]] == 1 &&
            p->fill[p->table[at]] > rows)
            p->fill[p->table[at]] = (uint8_t)rows;
    }
    truncate_draft(kv, pos);
    kv->pos = pos;
    return pos;
}

// --- the drafter's context ---

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
    LG_ASSERT(n == 0 || kv->draft_to + n <= kv->pos);
    fill_rows(&kv->pool[LG_KV_DRAFT], kv->draft_to, n);
    kv->draft_to += n;
}

// --- cuts ---

bool lg_kv_can_cut(const lg_kv *kv, int64_t pos)
{
    const lg_kv_class *c = &kv->cls[LG_KV_WINDOW];

    if (pos <= 0 || pos > kv->pos)
        return false;
    return c->n_layer == 0 || seen_from(c, pos - 1) >= (int64_t)kv->pool[LG_KV_WINDOW].first * LG_KV_BLOCK;
}

// Retains the blocks of [from, to); returns how many.
static int cut_class(lg_kv *kv, lg_kv_class_id c, int64_t from, int64_t to, int *first, int32_t *block)
{
    const lg_kv_pool *p = &kv->pool[c];
    int n = 0;

    *first = (int)(from / LG_KV_BLOCK);
    for (int i = *first; i < lg_kv_entries(to); i++, n++) {
        block[n] = p->table[i];
        lg_kv_retain(kv, c, block[n]);
    }
    LG_ASSERT(n <= lg_kv_cut_room(&kv->cls[c]));
    return n;
}

void lg_kv_cut_at(lg_kv *kv, int64_t pos, bool draft, lg_kv_cut *cut)
{
    const lg_kv_class *c = &kv->cls[LG_KV_WINDOW], *d = &kv->cls[LG_KV_DRAFT];
    int64_t from = seen_from(d, pos - 1);

    LG_ASSERT(lg_kv_can_cut(kv, pos));
    cut->pos = pos;
    cut->n = cut->draft_n = 0;
    cut->draft_from = -1;
    if (c->n_layer > 0)
        cut->n = cut_class(kv, LG_KV_WINDOW, seen_from(c, pos - 1), pos, &cut->first, cut->block);
    from = from > kv->draft_from ? from : kv->draft_from;
    if (!draft || d->n_layer == 0 || kv->draft_to < pos || kv->draft_from >= pos ||
        from < (int64_t)kv->pool[LG_KV_DRAFT].first * LG_KV_BLOCK)
        return;
    cut->draft_from = kv->draft_from;
    cut->draft_n = cut_class(kv, LG_KV_DRAFT, from, pos, &cut->draft_first, cut->draft_block);
}

void lg_kv_cut_drop(lg_kv *kv, lg_kv_cut *cut)
{
    for (int i = 0; i < cut->n; i++)
        lg_kv_release(kv, LG_KV_WINDOW, cut->block[i]);
    for (int i = 0; i < cut->draft_n; i++)
        lg_kv_release(kv, LG_KV_DRAFT, cut->draft_block[i]);
    cut->n = cut->draft_n = 0;
    cut->draft_from = -1;
}

// Replaces all that the table has. The new blocks are held by others: nothing is freed in between.
static void set_table(lg_kv_pool *p, int first, int n, const int32_t *block)
{
    for (int i = 0; i < p->n_table; i++)
        drop_entry(p, i);
    for (int i = 0; i < n; i++)
        enter(p, first + i, block[i]);
    p->first = first;
}

void lg_kv_resume(lg_kv *kv, int64_t pos, const int32_t *full, const lg_kv_cut *cut)
{
    bool draft = cut && cut->draft_n > 0 && kv->cls[LG_KV_DRAFT].n_layer > 0;

    LG_ASSERT(pos >= 0 && (pos == 0 || kv->cls[LG_KV_WINDOW].n_layer == 0 || cut));
    LG_ASSERT(!cut || pos == cut->pos || pos == cut->pos - 1);
    if (pos == 0) {
        (void)lg_kv_truncate(kv, 0);
        return;
    }
    set_table(&kv->pool[LG_KV_FULL], 0, lg_kv_entries(pos), full);
    if (cut && cut->n > 0)
        set_table(&kv->pool[LG_KV_WINDOW], cut->first, lg_kv_entries(pos) - cut->first, cut->block);
    set_table(&kv->pool[LG_KV_DRAFT], draft ? cut->draft_first : lg_kv_entries(pos),
              draft ? lg_kv_entries(pos) - cut->draft_first : 0, draft ? cut->draft_block : NULL);
    kv->draft_from = draft ? cut->draft_from : pos;
    kv->draft_to = pos;
    kv->pos = pos;
}

// --- check ---

static bool check_pool(const lg_kv *kv, lg_kv_class_id c)
{
    const lg_kv_pool *p = &kv->pool[c];
    int free_blocks = lg_kv_free_blocks(kv, c), used = 0, live = 0, kept = 0, shared = 0;

    for (int i = 0; i < p->n_dirty; i++)
        if (p->refs[p->unused[i]] != 0)
            return false;
    for (int i = 0; i < p->n_clean; i++)
        if (p->refs[p->unused[kv->cls[c].n_blocks - 1 - i]] != 0)
            return false;
    for (int i = 0; i < p->n_fresh; i++) {
        used += p->refs[i] > 0;
        live += p->in_table[i];
        kept += p->refs[i] > p->in_table[i];
        shared += p->in_table[i] && p->refs[i] > 1;
        if (p->refs[i] < p->in_table[i])
            return false;
    }
    if (used + free_blocks != kv->cls[c].n_blocks || live != p->n_live || kept != p->n_kept ||
        shared != p->n_shared)
        return false;
    for (int i = 0; i < p->n_table; i++) {
        bool held = p->table[i] >= 0;
        if (held && (i < p->first || !p->in_table[p->table[i]]))
            return false;
        if (!held && c != LG_KV_DRAFT && i >= p->first && i < lg_kv_entries(kv->pos))
            return false;
        live -= held;
    }
    return live == 0;
}

bool lg_kv_check(const lg_kv *kv)
{
    for (int c = 0; c < LG_KV_CLASSES; c++)
        if (kv->cls[c].n_layer > 0 && (!check_pool(kv, c) || !lg_kv_pages_check(kv, c)))
            return false;
    return true;
}
