/*
 * engine/plan: see plan.h. Pure arithmetic over the configuration and what the backend says about itself.
 */
#include "engine/plan.h"

#include <stdio.h>

#include "engine/prefix.h"

enum { OUT_MAX = 64, CAND_MAX = 128, CHUNK_MAX = 1 << 20 };

static int chunk_of(const lg_plan_for *f, int64_t ctx)
{
    int64_t n = f->chunk > 0 ? f->chunk : f->b->info.max_rows;

    if (n > CHUNK_MAX)
        n = CHUNK_MAX;
    if (n > ctx)
        n = ctx;
    return n < 1 ? 1 : (int)n;
}

lg_work_params lg_plan_work(const lg_plan_for *f, const lg_plan *p)
{
    return (lg_work_params){.max_rows = p->chunk,
                            .max_out = p->chunk < OUT_MAX ? p->chunk : OUT_MAX,
                            .max_cand = f->hp->vocab < CAND_MAX ? f->hp->vocab : CAND_MAX,
                            .debug = f->debug,
                            .routes = f->routes,
                            .n_tap = f->draft ? f->draft->n_tap : 0,
                            .tap_layer = f->draft ? f->draft->tap : NULL};
}

lg_limits lg_plan_limits(const lg_plan_for *f, const lg_work_params *work, int64_t ctx)
{
    lg_limits lim = lg_laguna_limits(f->hp, work, ctx);

    if (f->draft)
        lg_dflash_limits(f->draft, &lim);
    return lim;
}

// What a drafter takes beside what its target would take alone.
static uint64_t draft_bytes(const lg_plan_for *f, const lg_plan *p, const lg_work_params *work)
{
    if (!f->draft)
        return 0;
    lg_kv_class c = lg_dflash_kv_shape(f->draft, f->draft_kv_type);
    lg_work_params alone = *work;
    alone.n_tap = 0;
    return f->draft_weights.resident_bytes + (uint64_t)lg_kv_blocks(&c, p->ctx, p->chunk) * c.block_bytes +
           lg_dflash_work_bytes(f->draft, p->chunk) + lg_work_bytes(f->hp, work) -
           lg_work_bytes(f->hp, &alone);
}

// 30 % of what is left, at least 512 MiB if there is so much, at most 64 GiB.
static uint64_t cache_share(uint64_t left)
{
    const uint64_t least = UINT64_C(512) << 20, most = UINT64_C(64) << 30;
    uint64_t share = left / 10 * 3;

    if (share < least)
        share = least < left ? least : left;
    return share < most ? share : most;
}

// What conversations may take. Where blocks have images on the host, its memory bounds them, and the device
// keeps some at hand.
static void plan_cache(const lg_plan_for *f, lg_plan *p)
{
    uint64_t images = f->b->info.image_bytes;
    uint64_t left = p->available_bytes > p->total_bytes ? p->available_bytes - p->total_bytes : 0;

    p->cache_slots = f->cache_slots > 0 ? f->cache_slots : LG_PREFIX_SLOTS;
    p->cache_bytes = f->cache_ram > 0 ? f->cache_ram : cache_share(images > 0 ? images : left);
    // each of up to three classes of blocks reserves all of it, and there is more that no plan knows
    if (f->cache_ram == 0 && f->b->info.reserved_counts && p->cache_bytes > left / 4)
        p->cache_bytes = left / 4;
    p->near_bytes = images > 0 ? cache_share(left) : p->cache_bytes;
    if (images > 0 && f->cache_near > 0 && f->cache_near < p->near_bytes)
        p->near_bytes = f->cache_near;
    if (p->near_bytes > p->cache_bytes)
        p->near_bytes = p->cache_bytes;
    p->fits = p->total_bytes <= p->available_bytes && f->cache_ram <= (images > 0 ? images : left);
}

// Rows of a window before one position.
static uint64_t cut_bytes(const lg_kv_class *c)
{
    return (uint64_t)c->window * c->block_bytes / LG_KV_BLOCK;
}

uint64_t lg_plan_conversation_bytes(const lg_plan *p, int64_t n)
{
    return (uint64_t)n * p->kv_bytes_per_token + p->cut_bytes;
}

lg_plan lg_plan_at(const lg_plan_for *f, int64_t ctx)
{
    lg_kv_class full, window;
    lg_plan p = {.weight_bytes = f->weights.stored_bytes,
                 .extra_bytes = f->weights.extra_bytes,
                 .resident_bytes = f->weights.resident_bytes,
                 .available_bytes = f->b->info.free_bytes,
                 .ctx = ctx,
                 .ctx_train = f->hp->ctx_train,
                 .chunk = chunk_of(f, ctx)};
    lg_work_params work = lg_plan_work(f, &p);
    lg_limits lim = lg_plan_limits(f, &work, ctx);

    lg_laguna_kv_shape(f->hp, f->kv_type, &full, &window);
    p.kv_bytes_per_token = full.block_bytes / LG_KV_BLOCK;
    p.kv_fixed_bytes = (uint64_t)lg_kv_blocks(&window, ctx, p.chunk) * window.block_bytes;
    p.kv_bytes = (uint64_t)lg_kv_blocks(&full, ctx, p.chunk) * full.block_bytes + p.kv_fixed_bytes;
    p.draft_bytes = draft_bytes(f, &p, &work);
    work.n_tap = 0; // counted with the drafter
    p.scratch_bytes = lg_work_bytes(f->hp, &work) + f->b->scratch_bytes(f->b, &lim);
    p.total_bytes = p.resident_bytes + p.kv_bytes + p.scratch_bytes + p.draft_bytes;
    p.cut_bytes = cut_bytes(&window);
    if (f->draft) {
        lg_kv_class context = lg_dflash_kv_shape(f->draft, f->draft_kv_type);
        p.cut_bytes += cut_bytes(&context);
    }
    plan_cache(f, &p);
    return p;
}

// The longest context between lo and hi that fits, in steps; 0 when lo does not fit.
static int64_t longest(const lg_plan_for *f, int64_t lo, int64_t hi)
{
    int64_t a = 0, b = (hi - lo) / LG_CTX_STEP;

    if (!lg_plan_at(f, lo).fits)
        return 0;
    while (a < b) {
        int64_t mid = (a + b + 1) / 2;
        if (lg_plan_at(f, lo + mid * LG_CTX_STEP).fits)
            a = mid;
        else
            b = mid - 1;
    }
    return lo + a * LG_CTX_STEP;
}

static int64_t least_useful(const lg_plan_for *f)
{
    return f->hp->ctx_train < LG_CTX_MIN_USEFUL ? f->hp->ctx_train : LG_CTX_MIN_USEFUL;
}

void lg_plan_choose(const lg_plan_for *f, int64_t ctx, lg_plan *out)
{
    lg_plan p = lg_plan_at(f, ctx > 0 ? ctx : f->hp->ctx_train);

    if (ctx <= 0 && !p.fits) {
        int64_t best = longest(f, least_useful(f), f->hp->ctx_train);
        p = lg_plan_at(f, best > 0 ? best : least_useful(f));
        p.lowered = best > 0;
    }
    *out = p;
}

const char *lg_plan_size(uint64_t bytes, char *out, size_t n)
{
    bool big = bytes >= 1000000000;

    (void)snprintf(out, n, "%.1f %s", (double)bytes / (big ? 1e9 : 1e6), big ? "GB" : "MB");
    return out;
}

// "85.0 GB (weights 70.5, kv 13.0, scratch 1.5)", with the drafter's share where there is one
static const char *sum_text(const lg_plan *p, char *out, size_t n)
{
    double unit = p->total_bytes >= 1000000000 ? 1e9 : 1e6;
    char total[32], draft[32] = "";

    if (p->draft_bytes > 0)
        (void)snprintf(draft, sizeof draft, ", drafter %.1f", (double)p->draft_bytes / unit);
    (void)snprintf(out, n, "%s (weights %.1f, kv %.1f, scratch %.1f%s)",
                   lg_plan_size(p->total_bytes, total, sizeof total), (double)p->resident_bytes / unit,
                   (double)p->kv_bytes / unit, (double)p->scratch_bytes / unit, draft);
    return out;
}

lg_status lg_plan_refuse(const lg_plan_for *f, const lg_plan *p, lg_err *err)
{
    int64_t less = longest(f, least_useful(f), p->ctx);
    char need[96], have[32], remedy[96], sum[32];

    if (p->total_bytes <= p->available_bytes && f->b->info.image_bytes > 0)
        return LG_FAIL(err, LG_E_NOMEM,
                       "a prefix cache of %s does not fit the host's %s; use --cache-ram %lluMiB",
                       lg_plan_size(p->cache_bytes, sum, sizeof sum),
                       lg_plan_size(f->b->info.image_bytes, have, sizeof have),
                       (unsigned long long)(f->b->info.image_bytes >> 20));
    if (p->total_bytes <= p->available_bytes) // without the prefix cache it would fit
        return LG_FAIL(err, LG_E_NOMEM,
                       "a prefix cache of %s does not fit beside %s, %s available; use --cache-ram %lluMiB",
                       lg_plan_size(p->cache_bytes, sum, sizeof sum), sum_text(p, need, sizeof need),
                       lg_plan_size(p->available_bytes, have, sizeof have),
                       (unsigned long long)((p->available_bytes - p->total_bytes) >> 20));
    if (less > 0)
        (void)snprintf(remedy, sizeof remedy, "use --ctx %lld (%s)", (long long)less,
                       lg_plan_size(lg_plan_at(f, less).total_bytes, sum, sizeof sum));
    else
        (void)snprintf(remedy, sizeof remedy, "no useful context fits; free memory or use a smaller model");
    return LG_FAIL(err, LG_E_NOMEM, "needs %s, %s available; %s", sum_text(p, need, sizeof need),
                   lg_plan_size(p->available_bytes, have, sizeof have), remedy);
}

lg_status lg_plan_broken(const lg_plan *p, lg_err *err)
{
    char need[96];

    return LG_FAIL(err, LG_E_NOMEM, "the system refused memory of the planned %s; a smaller --ctx needs less",
                   sum_text(p, need, sizeof need));
}
