/*
 * engine/kv_page: see kv_page.h. Engine thread only.
 *
 * A block that leaves the table keeps its slot until another block needs one. The one that left first gives
 * its slot up, after a copy of its rows to an image if it has none; the copy is enqueued and not waited for.
 * Where another sequence as long as the live one would not fit beside it, kept blocks get their images while
 * it grows.
 * Copies run in order on a stream of their own, so a slot can be filled from an image right behind the copy
 * that saves it, and only steps need a fence.
 *
 * What surprises: images are single allocations, not slabs, because the classes share one budget and their
 * blocks differ in size; what one class has free another may have released and taken.
 */
#include "engine/kv_page.h"

#include <stdlib.h>
#include <string.h>

enum { AHEAD_DECODE = 1, AHEAD_PREFILL = 32 }; // copies begun ahead of need at once

lg_status lg_kv_pages_create(lg_kv_pool *p, int n_blocks, int n_slots, lg_err *err)
{
    size_t n = (size_t)n_blocks, slots = (size_t)n_slots;
    lg_kv_pages *g = &p->pages;

    g->n_slots = n_slots;
    g->slot = malloc(n * sizeof *g->slot);
    g->where = malloc((size_t)p->n_table * sizeof *g->where);
    g->free_slot = malloc(slots * sizeof *g->free_slot);
    g->image = calloc(n, sizeof *g->image);
    g->saved = calloc(n, sizeof *g->saved);
    g->free_image = malloc(n * sizeof *g->free_image);
    g->older = malloc(n * sizeof *g->older);
    g->newer = malloc(n * sizeof *g->newer);
    if (!g->slot || !g->where || !g->free_slot || !g->image || !g->saved || !g->free_image || !g->older ||
        !g->newer)
        return LG_FAIL(err, LG_E_NOMEM, "no memory for the tables of %d KV blocks", n_blocks);
    for (int i = 0; i < n_blocks; i++)
        g->slot[i] = g->older[i] = g->newer[i] = -1;
    for (int i = 0; i < p->n_table; i++)
        g->where[i] = -1;
    for (int i = 0; i < n_slots; i++)
        g->free_slot[i] = n_slots - 1 - i;
    g->n_free_slot = n_slots;
    g->oldest = g->newest = -1;
    return LG_OK;
}

void lg_kv_pages_destroy(lg_kv *kv, lg_kv_class_id c)
{
    lg_kv_pages *g = &kv->pool[c].pages;

    for (int i = 0; g->image && i < kv->cls[c].n_blocks; i++)
        if (g->image[i])
            kv->b->images->release(kv->b, g->image[i]);
    for (int i = 0; i < g->n_free_image; i++)
        kv->b->images->release(kv->b, g->free_image[i]);
    free(g->slot);
    free(g->where);
    free(g->free_slot);
    free(g->image);
    free(g->saved);
    free(g->free_image);
    free(g->older);
    free(g->newer);
    *g = (lg_kv_pages){0};
}

// --- the list of blocks whose slots may be taken ---

static void list(lg_kv_pages *g, int32_t block)
{
    g->older[block] = g->newest;
    g->newer[block] = -1;
    *(g->newest < 0 ? &g->oldest : &g->newer[g->newest]) = block;
    g->newest = block;
}

static void unlist(lg_kv_pages *g, int32_t block)
{
    *(g->older[block] < 0 ? &g->oldest : &g->newer[g->older[block]]) = g->newer[block];
    *(g->newer[block] < 0 ? &g->newest : &g->older[g->newer[block]]) = g->older[block];
    g->older[block] = g->newer[block] = -1;
}

void lg_kv_page_enter(lg_kv_pool *p, int at, int32_t block)
{
    lg_kv_pages *g = &p->pages;

    if (g->n_slots == 0)
        return;
    if (g->slot[block] < 0)
        g->n_away++;
    else if (p->refs[block] > 0) // else it was taken just now, and is in no list
        unlist(g, block);
    g->where[at] = g->slot[block];
}

void lg_kv_page_leave(lg_kv_pool *p, int at, int32_t block)
{
    lg_kv_pages *g = &p->pages;

    if (g->n_slots == 0)
        return;
    g->where[at] = -1;
    if (g->slot[block] < 0)
        g->n_away--;
    else
        list(g, block);
}

void lg_kv_page_free(lg_kv_pool *p, int32_t block)
{
    lg_kv_pages *g = &p->pages;

    if (g->n_slots == 0)
        return;
    if (g->slot[block] >= 0) {
        unlist(g, block);
        g->free_slot[g->n_free_slot++] = g->slot[block];
        g->slot[block] = -1;
    }
    if (g->image[block])
        g->free_image[g->n_free_image++] = g->image[block];
    g->image[block] = NULL;
    g->saved[block] = 0;
}

void lg_kv_page_wrote(lg_kv_pool *p, int32_t block)
{
    if (p->pages.n_slots > 0)
        p->pages.saved[block] = 0;
}

// --- images ---

static bool is_saved(const lg_kv_pool *p, int32_t block)
{
    return p->pages.image[block] && p->pages.saved[block] >= p->fill[block] && p->pages.saved[block] > 0;
}

// Memory of a class goes back to the host: what is free, then images of blocks that the device has too.
static bool give_back(lg_kv *kv, int c)
{
    lg_kv_pages *g = &kv->pool[c].pages;
    void *image = NULL;

    if (g->n_free_image > 0)
        image = g->free_image[--g->n_free_image];
    for (int i = 0; !image && g->n_slots > 0 && i < kv->pool[c].n_fresh; i++)
        if (g->image[i] && g->slot[i] >= 0) {
            image = g->image[i];
            g->image[i] = NULL;
            g->saved[i] = 0;
        }
    if (!image)
        return false;
    kv->b->images->release(kv->b, image);
    kv->image_bytes -= kv->cls[c].block_bytes;
    return true;
}

static lg_status get_image(lg_kv *kv, lg_kv_class_id c, void **out, lg_err *err)
{
    lg_kv_pages *g = &kv->pool[c].pages;
    size_t bytes = kv->cls[c].block_bytes;
    int from = 0;

    if (g->n_free_image > 0) {
        *out = g->free_image[--g->n_free_image];
        return LG_OK;
    }
    // what is left after that is the only copy of something that is pinned: it may exceed the budget
    while (kv->image_bytes + bytes > kv->max_image_bytes && from < LG_KV_CLASSES)
        from += give_back(kv, from) ? 0 : 1;
    LG_TRY(kv->b->images->alloc(kv->b, bytes, out, err));
    kv->image_bytes += bytes;
    return LG_OK;
}

static lg_status save(lg_kv *kv, lg_kv_class_id c, int32_t block, lg_err *err)
{
    lg_kv_pool *p = &kv->pool[c];
    lg_kv_pages *g = &p->pages;
    size_t bytes = kv->cls[c].block_bytes;

    if (is_saved(p, block))
        return LG_OK;
    if (!g->image[block])
        LG_TRY(get_image(kv, c, &g->image[block], err));
    kv->b->images->out(kv->b, &kv->cls[c].mem, (size_t)g->slot[block] * bytes, g->image[block], bytes);
    g->saved[block] = p->fill[block];
    kv->copying = true;
    kv->moved.out_blocks++;
    kv->moved.out_bytes += bytes;
    return LG_OK;
}

// --- slots ---

static lg_status free_slot(lg_kv *kv, lg_kv_class_id c, int32_t *out, lg_err *err)
{
    lg_kv_pages *g = &kv->pool[c].pages;
    int32_t block = g->oldest;

    if (g->n_free_slot == 0) {
        LG_ASSERT(block >= 0); // the table alone never has all of them
        LG_TRY(save(kv, c, block, err));
        unlist(g, block);
        g->free_slot[g->n_free_slot++] = g->slot[block];
        g->slot[block] = -1;
    }
    *out = g->free_slot[--g->n_free_slot];
    return LG_OK;
}

lg_status lg_kv_page_slot(lg_kv *kv, lg_kv_class_id c, int32_t block, lg_err *err)
{
    lg_kv_pages *g = &kv->pool[c].pages;

    if (g->n_slots == 0)
        return LG_OK;
    LG_ASSERT(g->slot[block] < 0);
    LG_TRY(free_slot(kv, c, &g->slot[block], err));
    if (kv->copying)
        kv->b->images->fence(kv->b);
    kv->copying = false;
    return LG_OK;
}

lg_status lg_kv_page_bring(lg_kv *kv, lg_err *err)
{
    bool any = false;

    for (int c = 0; c < LG_KV_CLASSES; c++) {
        lg_kv_pool *p = &kv->pool[c];
        lg_kv_pages *g = &p->pages;
        size_t bytes = kv->cls[c].block_bytes;

        for (int i = p->first; g->n_away > 0 && i < p->n_table; i++) {
            int32_t block = p->table[i];
            if (block < 0 || g->slot[block] >= 0)
                continue;
            LG_ASSERT(is_saved(p, block));
            LG_TRY(free_slot(kv, (lg_kv_class_id)c, &g->slot[block], err));
            kv->b->images->in(kv->b, &kv->cls[c].mem, (size_t)g->slot[block] * bytes, g->image[block], bytes);
            g->where[i] = g->slot[block];
            g->n_away--;
            kv->moved.in_blocks++;
            kv->moved.in_bytes += bytes;
            any = true;
        }
    }
    if (any)
        kv->b->images->fence(kv->b);
    if (any)
        kv->copying = false;
    return LG_OK;
}

// Blocks of the table that would have to be saved at once if another sequence as long took its place: those
// that are full and kept. Returns how many copies may still be begun; a failure ends them, and comes again
// when it matters.
static int save_table(lg_kv *kv, lg_kv_class_id c, int left)
{
    lg_kv_pool *p = &kv->pool[c];

    if (p->pages.n_slots - p->n_live >= p->n_live)
        return left;
    for (int i = p->first; i < lg_kv_entries(kv->pos) && left > 0; i++) {
        int32_t block = p->table[i];
        if (block < 0 || p->refs[block] < 2 || p->fill[block] < LG_KV_BLOCK || is_saved(p, block) ||
            p->pages.slot[block] < 0)
            continue;
        left = save(kv, c, block, NULL) == LG_OK ? left - 1 : 0;
    }
    return left;
}

void lg_kv_page_ahead(lg_kv *kv, int rows)
{
    int left = rows > 1 ? AHEAD_PREFILL : AHEAD_DECODE;

    for (int c = 0; c < LG_KV_CLASSES; c++) {
        lg_kv_pages *g = &kv->pool[c].pages;
        int ready = g->n_free_slot;

        if (g->n_slots == 0)
            continue;
        for (int32_t i = g->oldest; i >= 0 && left > 0 && ready <= lg_kv_entries(rows);
             i = g->newer[i], ready++)
            if (!is_saved(&kv->pool[c], i))
                left = save(kv, (lg_kv_class_id)c, i, NULL) == LG_OK ? left - 1 : 0;
        left = save_table(kv, (lg_kv_class_id)c, left);
    }
}

const int32_t *lg_kv_where(const lg_kv *kv, lg_kv_class_id c)
{
    const lg_kv_pool *p = &kv->pool[c];

    return p->pages.n_slots > 0 ? p->pages.where : p->table;
}

// --- check ---

bool lg_kv_pages_check(const lg_kv *kv, lg_kv_class_id c)
{
    const lg_kv_pool *p = &kv->pool[c];
    const lg_kv_pages *g = &p->pages;
    int used = 0, away = 0, listed = 0, idle = 0;

    if (g->n_slots == 0)
        return true;
    for (int i = 0; i < p->n_fresh; i++) {
        used += g->slot[i] >= 0;
        idle += g->slot[i] >= 0 && !p->in_table[i];
        if (p->refs[i] == 0 && (g->slot[i] >= 0 || g->image[i]))
            return false;
        if (p->refs[i] > 0 && g->slot[i] < 0 && !is_saved(p, i))
            return false; // its rows are nowhere
    }
    for (int32_t i = g->oldest; i >= 0 && listed <= used; i = g->newer[i])
        listed++;
    for (int i = 0; i < p->n_table; i++) {
        if (g->where[i] != (p->table[i] < 0 ? -1 : g->slot[p->table[i]]))
            return false;
        away += p->table[i] >= 0 && g->slot[p->table[i]] < 0;
    }
    return used + g->n_free_slot == g->n_slots && listed == idle && away == g->n_away;
}
