/*
 * Tests of engine/prefix: the tree of cached conversations against a plain list of token arrays, block by
 * block.
 *
 * A backend of four functions stands in for a device. What is "written" into a row is a hash of all tokens up
 * to it, so that every row which the live sequence gets back can be held to what it should have: wrong
 * blocks, missing copies and rows that were let go too early all show. After every step lg_prefix_check
 * recomputes all counters. On the device with memory of its own, copies to and from images are done no
 * earlier than a fence asks for, so that a missing one shows too.
 *
 *     test_prefix [steps [seed [test]]]     a longer random walk; only the tests whose name fits
 */
#include <stdio.h>
#include <stdlib.h>

#include "check.h"
#include "engine/prefix_int.h"
#include "fault.h"
#include "support/maker.h"

enum { CTX = 3000, WINDOW = 100, CHUNK = 90, MAX_BLOCKS = 1 << 15 };

static int walk_steps = 4000;
static uint64_t walk_seed = 2026;

// --- a device whose rows are hashes ---

static uint64_t *rows_of[LG_KV_CLASSES]; // [block][row]

static char places[LG_KV_CLASSES]; // addresses of the classes' memories, in the order in which they are made
static int n_places;

static lg_status fake_alloc(lg_backend *b, size_t bytes, lg_mem *out, lg_err *err)
{
    (void)b;
    (void)err;
    *out = (lg_mem){.p = &places[n_places++ % LG_KV_CLASSES], .bytes = bytes};
    return LG_OK;
}

static void fake_release(lg_backend *b, lg_mem *m)
{
    (void)b;
    *m = (lg_mem){0};
}

static void fake_move(lg_backend *b, const lg_kv_class *c, const lg_kv_copy *m, int n)
{
    (void)b;
    for (int i = 0; i < n; i++)
        memcpy(rows_of[c->id] + (size_t)m[i].dst_block * LG_KV_BLOCK,
               rows_of[c->id] + (size_t)m[i].src_block * LG_KV_BLOCK, (size_t)m[i].rows * sizeof(uint64_t));
}

static void fake_discard(lg_backend *b, const lg_mem *m, size_t off, size_t bytes)
{
    (void)b;
    (void)m;
    (void)off;
    (void)bytes;
}

static const lg_ops ops = {.alloc = fake_alloc, .release = fake_release, .kv_move = fake_move};
static lg_backend backend = {.ops = &ops, .discard = fake_discard};

// --- one with memory of its own ---

enum { BLOCK_BYTES = 1024, COPIES = 1 << 12, ROWS_BYTES = LG_KV_BLOCK * sizeof(uint64_t) };

static struct {
    void *dst;
    const void *src;
} copies[COPIES];
static int n_copies, n_images;
static int64_t copies_done;

static void finish_copies(void)
{
    for (int i = 0; i < n_copies; i++)
        memcpy(copies[i].dst, copies[i].src, ROWS_BYTES);
    copies_done += n_copies;
    n_copies = 0;
}

static lg_status fake_image(lg_backend *b, size_t bytes, void **out, lg_err *err)
{
    (void)b;
    (void)err;
    assert_int_equal(bytes, BLOCK_BYTES);
    *out = test_malloc(bytes);
    n_images++;
    return LG_OK;
}

static void fake_forget(lg_backend *b, void *p)
{
    (void)b;
    finish_copies();
    test_free(p);
    n_images--;
}

static uint64_t *block_at(const lg_mem *m, size_t off)
{
    const char *p = m->p;

    assert_true(off % BLOCK_BYTES == 0 && off + BLOCK_BYTES <= m->bytes);
    return rows_of[p - places] + off / BLOCK_BYTES * LG_KV_BLOCK;
}

static void enqueue(void *dst, const void *src)
{
    assert_true(n_copies < COPIES);
    copies[n_copies].dst = dst;
    copies[n_copies++].src = src;
}

static void fake_out(lg_backend *b, const lg_mem *m, size_t off, void *image, size_t n)
{
    (void)b;
    assert_int_equal(n, BLOCK_BYTES);
    enqueue(image, block_at(m, off));
}

static void fake_in(lg_backend *b, const lg_mem *m, size_t off, const void *image, size_t n)
{
    (void)b;
    assert_int_equal(n, BLOCK_BYTES);
    enqueue(block_at(m, off), image);
}

static void fake_fence(lg_backend *b)
{
    (void)b;
    finish_copies();
}

static const lg_images images = {
    .alloc = fake_image, .release = fake_forget, .out = fake_out, .in = fake_in, .fence = fake_fence};
static lg_backend paged_backend = {.ops = &ops, .images = &images};

// --- the cache under test and its live sequence ---

typedef struct rig {
    lg_kv kv;
    lg_prefix *px;
    lg_rates rates;
    int32_t tokens[CTX];
    uint64_t budget;
} rig;

static uint64_t mix(uint64_t h, int32_t tok)
{
    h = (h ^ (uint64_t)(uint32_t)tok) * UINT64_C(0x9E3779B97F4A7C15);
    return h ^ h >> 29;
}

static lg_kv_class make_class(lg_kv_class_id id, int window)
{
    return (lg_kv_class){.id = id,
                         .type = LG_F16,
                         .n_layer = 1,
                         .n_kv_head = 1,
                         .head_dim = 4,
                         .window = window,
                         .row_bytes = 8,
                         .tile_bytes = 512,
                         .layer_bytes = 1024,
                         .block_bytes = 1024};
}

typedef struct setup {
    uint64_t budget;
    int slots, min_tokens, step;
    bool no_window, draft;
    bool paged;
    int slots_near; /* paged: spare slots of each class on the device */
} setup;

static void make_pools(lg_kv *kv, const setup *s, const lg_kv_class *full, const lg_kv_class *win)
{
    lg_kv_spare f = {.blocks = lg_prefix_spare(full, s->budget, s->slots, CTX, true)};
    lg_kv_spare w = {.blocks = lg_prefix_spare(win, s->budget, s->slots, CTX, true)};

    f.slots = s->paged ? s->slots_near : f.blocks;
    w.slots = s->paged ? s->slots_near : w.blocks;
    n_places = 0;
    assert_int_equal(lg_kv_create_paged(s->paged ? &paged_backend : &backend, full, win, CTX, CHUNK, &f, &w,
                                        s->budget, kv, NULL),
                     LG_OK);
}

static void rig_make(rig *r, const setup *s)
{
    lg_kv_class full = make_class(LG_KV_FULL, 0), win = make_class(LG_KV_WINDOW, WINDOW);
    lg_kv_class draft = make_class(LG_KV_DRAFT, WINDOW);
    lg_hparams hp = {.n_layer = 1, .hidden = 8, .vocab = 8, .n_kv_head = 1, .head_dim = 4};

    if (s->no_window)
        win.n_layer = 0;
    r->budget = s->budget;
    lg_rates_init(&r->rates, &hp);
    make_pools(&r->kv, s, &full, &win);
    if (s->draft)
        assert_int_equal(lg_kv_add_draft(&r->kv, &draft, CHUNK, -1, NULL), LG_OK);
    for (int c = 0; c < LG_KV_CLASSES; c++) {
        assert_true(r->kv.cls[c].n_blocks < MAX_BLOCKS);
        rows_of[c] = test_calloc(MAX_BLOCKS * LG_KV_BLOCK, sizeof(uint64_t));
    }
    assert_int_equal(lg_prefix_create(&(lg_prefix_params){.kv = &r->kv,
                                                          .tokens = r->tokens,
                                                          .rates = &r->rates,
                                                          .slots = s->slots,
                                                          .budget_bytes = s->budget,
                                                          .min_tokens = s->min_tokens,
                                                          .step = s->step},
                                      &r->px, NULL),
                     LG_OK);
}

static void rig_free(rig *r)
{
    lg_prefix_destroy(r->px);
    (void)lg_kv_truncate(&r->kv, 0);
    for (int c = 0; c < LG_KV_CLASSES; c++) // nothing is held by anybody
        if (r->kv.cls[c].n_layer > 0)
            assert_int_equal(lg_kv_free_blocks(&r->kv, (lg_kv_class_id)c), r->kv.cls[c].n_blocks);
    lg_kv_destroy(&r->kv);
    assert_int_equal(n_images, 0);
    for (int c = 0; c < LG_KV_CLASSES; c++)
        test_free(rows_of[c]);
}

static uint64_t *row(const rig *r, int c, int64_t pos)
{
    int32_t block = lg_kv_where(&r->kv, (lg_kv_class_id)c)[pos / LG_KV_BLOCK];

    assert_true(block >= 0);
    return rows_of[c] + (size_t)block * LG_KV_BLOCK + pos % LG_KV_BLOCK;
}

// The rows of the live sequence that the next step looks at are those of its tokens.
static void check_rows(rig *r)
{
    uint64_t h = 0;
    int64_t end = r->kv.pos,
            draft = r->kv.draft_from > end - WINDOW + 1 ? r->kv.draft_from : end - WINDOW + 1;

    assert_int_equal(lg_kv_grow(&r->kv, 0, NULL), LG_OK); // what is away comes back
    for (int64_t p = 0; p < end; p++) {
        h = mix(h, r->tokens[p]);
        assert_true(*row(r, LG_KV_FULL, p) == h);
        if (r->kv.cls[LG_KV_WINDOW].n_layer > 0 && p > end - WINDOW)
            assert_true(*row(r, LG_KV_WINDOW, p) == h);
        if (r->kv.cls[LG_KV_DRAFT].n_layer > 0 && r->kv.draft_to == end && p >= draft && p >= 0)
            assert_true(*row(r, LG_KV_DRAFT, p) == h);
    }
}

// n rows for ids; `ok` false: the step fails.
static void step(rig *r, const int32_t *ids, int n, bool ok)
{
    int64_t pos = r->kv.pos;
    uint64_t h = 0;

    assert_int_equal(lg_kv_grow(&r->kv, n, NULL), LG_OK);
    for (int64_t p = 0; p < pos; p++)
        h = mix(h, r->tokens[p]);
    for (int i = 0; i < n; i++) {
        h = mix(h, ids[i]);
        for (int c = 0; c < LG_KV_DRAFT; c++)
            if (r->kv.cls[c].n_layer > 0)
                *row(r, c, pos + i) = ok ? h : 1;
    }
    if (!ok)
        return;
    memcpy(r->tokens + pos, ids, (size_t)n * sizeof *ids);
    lg_kv_commit(&r->kv, n);
    if (r->kv.cls[LG_KV_DRAFT].n_layer > 0) {
        int skip = lg_kv_draft_skip(&r->kv, pos, n);
        h = 0;
        for (int64_t p = 0; p < pos + n; p++) {
            h = mix(h, r->tokens[p]);
            if (p >= pos + skip)
                *row(r, LG_KV_DRAFT, p) = h;
        }
        lg_kv_draft_commit(&r->kv, n - skip);
    }
    lg_kv_page_ahead(&r->kv, n);
}

static void settled(const rig *r)
{
    lg_prefix_stats s;

    assert_true(lg_prefix_check(r->px));
    lg_prefix_get_stats(r->px, &s);
    // what is left when all cuts are gone are the tokens of the live sequence
    assert_true(s.bytes <= r->budget || s.n_pins > 0 || !r->px->cuts);
    assert_true(s.slots <= s.slots_max || s.n_pins > 0);
}

// --- the plain model: every cut as an array of tokens ---

static int64_t cut_tokens(const lg_prefix_cut *c, int32_t *out)
{
    for (const node *n = c->node; n->parent; n = n->parent)
        for (int64_t p = n->begin; p < n->end && p < c->kv.pos; p++)
            out[p] = n->tok[p - n->begin];
    return c->kv.pos;
}

static int64_t same(const int32_t *a, int64_t na, const int32_t *b, int64_t nb)
{
    int64_t i = 0;

    while (i < na && i < nb && a[i] == b[i])
        i++;
    return i;
}

static int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void check_find(const rig *r, uint64_t scope, const int32_t *ids, int64_t n, int64_t most)
{
    static int32_t t[CTX];
    const lg_prefix *px = r->px;
    lg_prefix_match m;
    int64_t lcp = 0, k = 0, next_to = -1; // next_to: where a cut is one token behind what is shared with it

    for (const lg_prefix_cut *c = px->cuts; c; c = c->next) {
        int64_t len = cut_tokens(c, t), l = same(t, len, ids, n), use = at_most(len, most);
        if (c->node->root->scope != scope)
            continue;
        lcp = l > lcp ? l : lcp;
        if (l == len && use >= len - 1 && use > k)
            k = use;
        if (l == len - 1 && l > next_to && l <= most)
            next_to = l;
    }
    if (!px->live.detached && (px->live.root ? px->live.root->scope : 0) == scope) {
        int64_t l = same(r->tokens, r->kv.pos, ids, n), use = at_most(l, most);
        lcp = l > lcp ? l : lcp;
        if (lg_kv_holds(&r->kv, use) && use > k)
            k = use;
    }
    if (next_to == lcp && lcp > k) // it helps when the prompt shares nothing more with any other
        k = lcp;
    lg_prefix_find(px, scope, ids, n, most, &m);
    assert_int_equal(m.lcp, lcp);
    assert_int_equal(m.k, k);
    assert_true(!m.live || !m.cut);
    assert_true(m.k == 0 || m.live || m.cut);
}

// --- a request, as the engine makes it ---

typedef struct request {
    uint64_t scope;
    const int32_t *ids;
    int64_t n, sys, turn;
    int reply;
    int64_t fail_at, stop_at; /* a step fails, or the client is gone, at this many rows; 0: never */
    bool trace_free;
} request;

static int64_t run(rig *r, const request *q, uint64_t *rng)
{
    lg_prefix_match m;
    lg_prefix_pin parked = {0};
    int64_t k;

    lg_prefix_commit(r->px, r->kv.pos);
    if (q->trace_free)
        lg_prefix_park(r->px, &parked);
    lg_prefix_find(r->px, q->scope, q->ids, q->n, q->n - 1, &m);
    k = m.k;
    lg_prefix_adopt(r->px, q->scope, &m, q->n);
    if (q->trace_free)
        lg_prefix_detach(r->px);
    assert_int_equal(r->kv.pos, k);
    assert_int_equal(same(r->tokens, k, q->ids, q->n), k);
    check_rows(r);
    while (r->kv.pos < q->n) {
        int n = 1 + (int)(mk_uniform(rng) * CHUNK);
        int64_t from = r->kv.pos;
        n = n < q->n - from ? n : (int)(q->n - from);
        bool fails = q->fail_at > from && q->fail_at <= from + n;
        step(r, q->ids + from, n, !fails);
        if (fails)
            break;
        if (!q->trace_free) {
            lg_prefix_commit(r->px, r->kv.pos);
            const int64_t at[] = {q->sys, q->turn, m.lcp, q->n};
            const lg_cut_kind kind[] = {LG_CUT_SYS, LG_CUT_TURN, LG_CUT_BRANCH, LG_CUT_END};
            for (int i = 0; i < 4; i++)
                if (at[i] > from && at[i] <= r->kv.pos)
                    (void)lg_prefix_cut_at(r->px, at[i], kind[i]);
            lg_prefix_settle(r->px);
        }
        if (q->stop_at && r->kv.pos >= q->stop_at)
            break;
    }
    for (int i = 0; i < q->reply && r->kv.pos >= q->n && r->kv.pos < CTX; i++) {
        int32_t tok = (int32_t)(mk_uniform(rng) * 3);
        step(r, &tok, 1, true);
    }
    check_rows(r);
    if (q->trace_free) {
        lg_prefix_unpark(r->px, &parked);
    } else {
        lg_prefix_commit(r->px, r->kv.pos);
        lg_prefix_settle(r->px);
    }
    check_rows(r);
    // looking made the block at the end the live sequence's own, as a step does, and steps are settled
    lg_prefix_settle(r->px);
    return k;
}

// --- random walk ---

enum { PROMPTS = 24, PINS = 4 };

typedef struct prompt {
    int32_t ids[CTX];
    int64_t n;
    uint64_t scope;
} prompt;

static prompt pool[PROMPTS];

// The beginning of one that was there, then something else: agents, edits, retries and strangers.
static const prompt *next_prompt(uint64_t *rng)
{
    prompt *p = &pool[(int)(mk_uniform(rng) * PROMPTS)];
    const prompt *from = &pool[(int)(mk_uniform(rng) * PROMPTS)];
    double what = mk_uniform(rng);

    if (what < 0.25 && p->n > 0)
        return p; // a retry
    if (p != from) {
        memcpy(p->ids, from->ids, (size_t)from->n * sizeof *p->ids);
        p->n = from->n;
    }
    if (what < 0.5)
        p->n = (int64_t)(mk_uniform(rng) * (double)p->n);
    int more = 1 + (int)(mk_uniform(rng) * mk_uniform(rng) * 500);
    if (p->n + more > CTX - 200)
        p->n = (int64_t)(mk_uniform(rng) * 300);
    for (int i = 0; i < more; i++)
        p->ids[p->n++] = (int32_t)(mk_uniform(rng) * 3);
    p->scope = mk_uniform(rng) < 0.1;
    return p;
}

static void walk_request(rig *r, uint64_t *rng)
{
    const prompt *p = next_prompt(rng);
    request q = {.scope = p->scope, .ids = p->ids, .n = p->n, .reply = (int)(mk_uniform(rng) * 80)};

    q.sys = (int64_t)(mk_uniform(rng) * 200);
    q.turn = (int64_t)(mk_uniform(rng) * (double)p->n);
    q.fail_at = mk_uniform(rng) < 0.1 ? (int64_t)(mk_uniform(rng) * (double)p->n) : 0;
    q.stop_at = mk_uniform(rng) < 0.1 ? (int64_t)(mk_uniform(rng) * (double)p->n) : 0;
    q.trace_free = mk_uniform(rng) < 0.1;
    (void)run(r, &q, rng);
}

static void walk_find(const rig *r, uint64_t *rng)
{
    const prompt *p = &pool[(int)(mk_uniform(rng) * PROMPTS)];
    int64_t n = p->n - (int64_t)(mk_uniform(rng) * mk_uniform(rng) * (double)p->n);

    if (n > 0)
        check_find(r, p->scope, p->ids, n, mk_uniform(rng) < 0.7 ? n - 1 : n);
}

static void walk_one(rig *r, lg_prefix_pin *pins, uint64_t *rng)
{
    double what = mk_uniform(rng);
    lg_prefix_pin *pin = &pins[(int)(mk_uniform(rng) * PINS)];
    const prompt *p = &pool[(int)(mk_uniform(rng) * PROMPTS)];
    lg_prefix_match m;

    if (what < 0.6) {
        walk_request(r, rng);
    } else if (what < 0.75 && p->n > 0) {
        lg_prefix_find(r->px, p->scope, p->ids, p->n, p->n - 1, &m);
        lg_prefix_pin_match(r->px, &m, pin);
    } else if (what < 0.9) {
        lg_prefix_unpin(r->px, pin);
        lg_prefix_settle(r->px);
    } else if (what < 0.95) {
        int64_t to = r->kv.pos - (int64_t)(mk_uniform(rng) * mk_uniform(rng) * 800);
        int64_t kept = lg_prefix_truncate(r->px, to > 0 ? to : 0);
        assert_true(kept == r->kv.pos && kept <= (to > 0 ? to : 0));
    } else if (what < 0.97) {
        lg_prefix_detach(r->px);
        (void)lg_kv_truncate(&r->kv, 0);
        lg_prefix_settle(r->px);
    } else if (what < 0.975) {
        lg_prefix_clear(r->px);
    }
}

static void walk(const setup *s, int steps, double faults)
{
    static rig r;
    lg_prefix_pin pins[PINS] = {{0}};
    uint64_t rng = walk_seed;

    print_message("seed %llu\n", (unsigned long long)walk_seed);
    memset(pool, 0, sizeof pool);
    rig_make(&r, s);
    for (int i = 0; i < steps; i++) {
        bool faulty = mk_uniform(&rng) < faults;
        if (faulty)
            fault_arm(FAULT_ALLOC, 1 + (long)(mk_uniform(&rng) * 6));
        walk_one(&r, pins, &rng);
        if (faulty)
            (void)fault_disarm();
        settled(&r);
        for (int k = 0; k < 3; k++)
            walk_find(&r, &rng);
    }
    for (int i = 0; i < PINS; i++)
        lg_prefix_unpin(r.px, &pins[i]);
    lg_prefix_settle(r.px);
    settled(&r);
    rig_free(&r);
}

static void walk_with_room(void **state)
{
    (void)state;
    walk(&(setup){.budget = 8 << 20, .slots = 16, .min_tokens = 60, .step = 300}, walk_steps, 0);
}

static void walk_with_little(void **state)
{
    (void)state;
    walk(&(setup){.budget = 90 << 10, .slots = 5, .min_tokens = 60, .step = 300, .draft = true}, walk_steps,
         0);
}

static void walk_with_nothing(void **state)
{
    (void)state;
    walk(&(setup){.budget = 1, .slots = 1, .min_tokens = 60, .step = 300}, walk_steps / 4, 0);
}

static void walk_without_windows(void **state)
{
    (void)state;
    walk(&(setup){.budget = 200 << 10, .slots = 6, .min_tokens = 60, .step = 300, .no_window = true},
         walk_steps / 2, 0);
}

// Most of what is kept has no room on the device.
static void walk_with_images(void **state)
{
    (void)state;
    copies_done = 0;
    walk(&(setup){.budget = 8 << 20, .slots = 16, .min_tokens = 60, .step = 300, .draft = true, .paged = true,
                  .slots_near = 6},
         walk_steps, 0);
    assert_true(copies_done > walk_steps);
}

static void walk_with_few_images(void **state)
{
    (void)state;
    walk(&(setup){.budget = 120 << 10, .slots = 5, .min_tokens = 60, .step = 300, .paged = true}, walk_steps,
         0);
}

static void walk_without_memory(void **state)
{
    (void)state;
    if (!LG_HAVE_FAULT)
        skip();
    walk(&(setup){.budget = 300 << 10, .slots = 6, .min_tokens = 60, .step = 300, .draft = true}, walk_steps,
         0.5);
}

// --- single cases ---

static const setup roomy = {.budget = 8 << 20, .slots = 16, .min_tokens = 10, .step = 100000};

static void letters(int32_t *ids, int from, int to, int32_t first)
{
    for (int i = from; i < to; i++)
        ids[i] = first + i % 7;
}

static int64_t request_at(rig *r, const int32_t *ids, int64_t n)
{
    uint64_t rng = 1;
    int64_t k = run(r, &(request){.ids = ids, .n = n}, &rng);

    settled(r);
    return k;
}

static void matching(void **state)
{
    static rig r;
    static int32_t ids[CTX];
    static const int at[] = {0, 1, 63, 64, 65, 127, 128, 499};
    lg_prefix_match m;

    (void)state;
    rig_make(&r, &roomy);
    lg_prefix_find(r.px, 0, ids, 0, -1, &m); // nothing in nothing
    assert_true(m.lcp == 0 && m.k == 0 && !m.live && !m.cut);
    letters(ids, 0, 500, 100);
    assert_int_equal(request_at(&r, ids, 500), 0);
    check_find(&r, 0, ids, 0, -1);
    check_find(&r, 0, ids, 1, 0);
    check_find(&r, 0, ids, 300, 299); // shorter than what is cached
    check_find(&r, 0, ids, 500, 499);
    check_find(&r, 0, ids, 500, 500);
    check_find(&r, 5, ids, 500, 499); // another scope
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        ids[at[i]] += 50;
        check_find(&r, 0, ids, 500, 499);
        lg_prefix_find(r.px, 0, ids, 500, 499, &m);
        assert_int_equal(m.lcp, at[i]);
        ids[at[i]] -= 50;
    }
    rig_free(&r);
}

static void siblings(void **state)
{
    static rig r;
    static int32_t ids[CTX];
    setup s = roomy;
    uint64_t rng = 1;
    lg_prefix_match m;

    (void)state;
    s.slots = 100;
    rig_make(&r, &s);
    letters(ids, 0, 500, 100);
    for (int i = 0; i < 64; i++) {
        letters(ids, 300, 400, 1000 + (i * 37 % 64) * 10);
        int64_t k = run(&r, &(request){.ids = ids, .n = 400, .sys = 300}, &rng);
        assert_int_equal(k, i ? 300 : 0);
        settled(&r);
    }
    assert_int_equal(r.px->n_nodes, 65);
    for (int i = 0; i < 64; i++) {
        letters(ids, 300, 400, 1000 + i * 10);
        lg_prefix_find(r.px, 0, ids, 400, 399, &m);
        assert_true(m.lcp == 400 && m.k == 399);
    }
    rig_free(&r);
}

// Two that part inside a block: each goes on in a block of its own, with the same rows before.
static void split_in_a_block(void **state)
{
    static rig r;
    static int32_t a[CTX], b[CTX];

    (void)state;
    rig_make(&r, &roomy);
    letters(a, 0, 600, 100);
    memcpy(b, a, sizeof a);
    letters(b, 410, 600, 300);
    assert_int_equal(request_at(&r, a, 410), 0);
    assert_int_equal(request_at(&r, a, 500), 410);
    assert_int_equal(request_at(&r, b, 500), 410);
    assert_int_equal(request_at(&r, a, 600), 500);
    assert_int_equal(request_at(&r, b, 600), 500);
    assert_int_equal(request_at(&r, a, 600), 599);
    assert_int_equal(r.px->n_nodes, 3);
    rig_free(&r);
}

static void no_dead_rows(void **state)
{
    static rig r;
    static int32_t ids[CTX];
    lg_prefix_stats s;

    (void)state;
    rig_make(&r, &roomy);
    letters(ids, 0, 1000, 100);
    assert_int_equal(request_at(&r, ids, 1000), 0);
    letters(ids, 0, 20, 300);
    assert_int_equal(request_at(&r, ids, 20), 0);
    lg_prefix_get_stats(r.px, &s);
    assert_int_equal(s.tokens, 1020);
    lg_prefix_clear(r.px); // the cuts of the one that is not live
    lg_prefix_get_stats(r.px, &s);
    assert_int_equal(s.tokens, 20);
    settled(&r);
    assert_int_equal(r.kv.pool[LG_KV_FULL].n_kept, 1);
    (void)lg_prefix_truncate(r.px, 0);
    lg_prefix_get_stats(r.px, &s);
    assert_true(s.tokens == 0 && s.n_nodes == 0 && r.kv.pool[LG_KV_FULL].n_kept == 0 &&
                r.kv.pool[LG_KV_WINDOW].n_kept == 0);
    rig_free(&r);
}

// A long tool loop leaves the system text, the last turns, the last two ends.
static void retention(void **state)
{
    static rig r;
    static int32_t ids[CTX];
    uint64_t rng = 1;
    lg_prefix_stats s;

    (void)state;
    rig_make(&r, &roomy);
    letters(ids, 0, CTX, 100);
    for (int i = 0; i < 50; i++) {
        request q = {.ids = ids, .n = 300 + i * 50, .sys = 200, .turn = 290 + i / 10 * 500};
        q.turn = q.turn < q.n ? q.turn : 0;
        int64_t k = run(&r, &q, &rng);
        assert_true(i == 0 || k == q.n - 50);
        lg_prefix_get_stats(r.px, &s);
        assert_int_equal(s.n_cuts[LG_CUT_SYS], 1);
        assert_true(s.n_cuts[LG_CUT_TURN] <= 3 && s.n_cuts[LG_CUT_END] <= 2 && s.n_cuts[LG_CUT_SLOT] <= 1);
        settled(&r);
    }
    assert_int_equal(s.n_cuts[LG_CUT_TURN], 3);
    assert_int_equal(s.n_cuts[LG_CUT_END], 2);
    rig_free(&r);
}

// The conversation that was away the longest goes first, and one that is needed soon not at all.
static void slots(void **state)
{
    static rig r;
    static int32_t ids[8][CTX];
    setup s = roomy;
    lg_prefix_pin pin = {0};
    lg_prefix_slot list[8];
    lg_prefix_match m;

    (void)state;
    s.slots = 3;
    rig_make(&r, &s);
    for (int i = 0; i < 6; i++) {
        letters(ids[i], 0, 400, 100 + 20 * i);
        assert_int_equal(request_at(&r, ids[i], 400), 0);
        if (i == 1) {
            lg_prefix_find(r.px, 0, ids[0], 400, 399, &m);
            lg_prefix_pin_match(r.px, &m, &pin);
            assert_non_null(pin.cut);
        }
    }
    assert_int_equal(lg_prefix_slots(r.px, list, 8), 3);
    assert_true(list[0].live && list[0].tokens == 400 && !list[1].live && list[1].age <= list[2].age);
    assert_int_equal(lg_prefix_slots(r.px, list, 2), 2);
    for (int i = 0; i < 6; i++) {
        lg_prefix_find(r.px, 0, ids[i], 400, 399, &m);
        assert_int_equal(m.k, i == 0 || i >= 4 ? 399 : 0);
    }
    lg_prefix_unpin(r.px, &pin);
    settled(&r);
    rig_free(&r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matching),             cmocka_unit_test(siblings),
        cmocka_unit_test(split_in_a_block),     cmocka_unit_test(no_dead_rows),
        cmocka_unit_test(retention),            cmocka_unit_test(slots),
        cmocka_unit_test(walk_with_room),       cmocka_unit_test(walk_with_little),
        cmocka_unit_test(walk_with_nothing),    cmocka_unit_test(walk_without_windows),
        cmocka_unit_test(walk_without_memory),  cmocka_unit_test(walk_with_images),
        cmocka_unit_test(walk_with_few_images),
    };

    if (argc > 1)
        walk_steps = atoi(argv[1]);
    if (argc > 2)
        walk_seed = strtoull(argv[2], NULL, 10);
    if (argc > 3)
        cmocka_set_test_filter(argv[3]);
    return cmocka_run_group_tests_name("prefix", tests, NULL, NULL);
}
