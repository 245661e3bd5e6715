/*
 * backend/cpu/product: see product.h.
 *
 * Two columns: gemv, 16 rows at a time for all columns, so that a weight comes from memory once and from L1
 * after that. Few: a tile is unpacked and multiplied from L1, then the next; where the level has `rows`, a
 * slice of a tile at a time, and few are 64. Many: a block of rows is unpacked, then columns go by in groups
 * that stay in L2 beside the tiles.
 */
#include "backend/cpu/product.h"

// From this many columns on, unpacking 16 rows and running gemm beats one gemv a column
// (docs/decisions/0030).
enum { GEMM_MIN_COLS = 4 };
// What a pass over a few tiles touches, in eighths of L2: unpacked codes, and activations (at least MIN_GROUP
// columns).
enum { TILES_EIGHTHS = 3, COLS_EIGHTHS = 2, MIN_GROUP = 32 };

static lg_mat matrix(const lg_cpu *c, const lg_weight *w, int expert)
{
    size_t row = 0;
    bool whole = lg_row_bytes(w->type, (uint64_t)w->n_in, &row);

    LG_ASSERT(whole);
    return (lg_mat){.p = (const uint8_t *)w->data + row * (size_t)w->n_out * (size_t)expert,
                    .row_bytes = row,
                    .n_in = w->n_in,
                    .to_l2 = c && c->fetch_to_l2};
}

lg_span lg_product_span(const lg_weight *w, int expert, int64_t row, int n_rows)
{
    lg_mat m = matrix(NULL, w, expert);

    if (row >= w->n_out)
        return (lg_span){0};
    if (n_rows > w->n_out - (int)row)
        n_rows = w->n_out - (int)row;
    return (lg_span){m.p + (size_t)row * m.row_bytes, (size_t)n_rows * m.row_bytes};
}

size_t lg_product_tiles(int n_in)
{
    return LG_BLOCK_ROWS / LG_TILE_ROWS * lg_tile_bytes(n_in);
}

void lg_product_quant(const lg_cpu *c, lg_act_kind kind, const float *x, size_t x_stride, int n_in, int from,
                      int to, uint8_t *out)
{
    for (int r = from; r < to; r++)
        c->k.quant[kind](x + (size_t)r * x_stride, n_in, out + (size_t)r * lg_act_bytes(kind, n_in));
}

static void few_columns(const lg_type_kernels *k, const lg_mat *matrix, const lg_product_args *a)
{
    int step = a->n_cols == 1 ? a->n_rows : LG_TILE_ROWS;
    lg_mat m = *matrix;

    for (int r = 0; r < a->n_rows; r += step) {
        int n = a->n_rows - r < step ? a->n_rows - r : step, left = a->n_rows - r - n;

        m.next = a->next;
        if (left > 0)
            m.next = (lg_span){m.p + (size_t)(a->row + r + n) * m.row_bytes, (size_t)left * m.row_bytes};
        for (int col = 0; col < a->n_cols; col++)
            k->gemv(&m, a->row + r, n, a->x->p + (size_t)(a->idx ? a->idx[col] : col) * a->x->stride,
                    a->y + (size_t)col * a->y_stride + (size_t)r);
    }
}

// Part i of n of a span.
static lg_span part_of(lg_span s, int i, int n)
{
    size_t each = (s.bytes / (size_t)n + 64) / 64 * 64, from = each * (size_t)i;

    if (from >= s.bytes)
        return (lg_span){0};
    return (lg_span){s.p + from, s.bytes - from < each ? s.bytes - from : each};
}

// Tiles [first, first + n_tiles) of a block: unpacked once, then all columns, in groups that stay in L2
// beside them.
static void tiles_times_columns(const lg_cpu *c, const lg_type_kernels *k, const lg_mat *m,
                                const lg_product_args *a, int first, int n_tiles, lg_span next)
{
    size_t tile = lg_tile_bytes(m->n_in), stride = a->x->stride;
    int group = (int)(c->l2_bytes / 8 * COLS_EIGHTHS / stride / 8 * 8);

    if (group < MIN_GROUP)
        group = MIN_GROUP;
    int n_groups = (a->n_cols + group - 1) / group;
    for (int g = -1; g < n_groups; g++) {
        int col = g * group, cols = a->n_cols - col < group ? a->n_cols - col : group;

        for (int t = 0; t < n_tiles; t++) {
            int r = (first + t) * LG_TILE_ROWS,
                n = a->n_rows - r < LG_TILE_ROWS ? a->n_rows - r : LG_TILE_ROWS;
            void *at = (char *)a->tiles + (size_t)t * tile;

            if (g < 0) {
                k->unpack(m, a->row + r, n, at);
                continue;
            }
            lg_acts x = {.p = a->idx ? a->x->p : a->x->p + (size_t)col * stride,
                         .stride = stride,
                         .ahead = part_of(next, g * n_tiles + t, n_groups * n_tiles)};
            k->gemm(at, m->n_in, n, &x, a->idx ? a->idx + col : NULL, cols,
                    a->y + (size_t)col * a->y_stride + (size_t)r, a->y_stride);
        }
    }
}

// Each tile is multiplied while it is in L1. Few columns leave gemm no time to fetch in, so unpack does it,
// which mostly waits (docs/decisions/0180).
static void tile_by_tile(const lg_type_kernels *k, const lg_mat *matrix, const lg_product_args *a)
{
    lg_acts x = {.p = a->x->p, .stride = a->x->stride};
    lg_mat m = *matrix;
    int step = k->rows ? LG_ROWS_ROWS : LG_TILE_ROWS;

    for (int r = 0; r < a->n_rows; r += step) {
        int left = a->n_rows - r - step, n = left < 0 ? a->n_rows - r : step;
        size_t tile_bytes = (size_t)step * m.row_bytes;

        m.next = a->next;
        if (left > 0)
            m.next = (lg_span){m.p + (size_t)(a->row + r + n) * m.row_bytes, (size_t)left * m.row_bytes};
        if (m.next.bytes > tile_bytes)
            m.next.bytes = tile_bytes;
        if (k->rows) {
            k->rows(&m, a->row + r, n, a->tiles, &x, a->idx, a->n_cols, a->y + (size_t)r, a->y_stride);
            continue;
        }
        k->unpack(&m, a->row + r, n, a->tiles);
        k->gemm(a->tiles, m.n_in, n, &x, a->idx, a->n_cols, a->y + (size_t)r, a->y_stride);
    }
}

static void many_columns(const lg_cpu *c, const lg_type_kernels *k, const lg_mat *m, const lg_product_args *a)
{
    int n_tiles = (a->n_rows + LG_TILE_ROWS - 1) / LG_TILE_ROWS;
    int at_once = (int)(c->l2_bytes / 8 * TILES_EIGHTHS / ((size_t)LG_TILE_ROWS * (size_t)m->n_in));

    LG_ASSERT(a->n_rows <= LG_BLOCK_ROWS);
    if (at_once < 1)
        at_once = 1;
    for (int t = 0; t < n_tiles; t += at_once) {
        int n = n_tiles - t < at_once ? n_tiles - t : at_once;

        tiles_times_columns(c, k, m, a, t, n,
                            part_of(a->next, t / at_once, (n_tiles + at_once - 1) / at_once));
    }
}

void lg_product(const lg_cpu *c, const lg_product_args *a)
{
    const lg_type_kernels *k = &c->k.type[a->w->type];
    lg_mat m = matrix(c, a->w, a->expert);
    float scale = a->w->expert_scale ? a->w->scale * a->w->expert_scale[a->expert] : a->w->scale;

    if (a->n_cols < GEMM_MIN_COLS)
        few_columns(k, &m, a);
    else if (a->n_cols <= (k->rows ? LG_ROWS_COLS : LG_CPU_EXACT_ROWS))
        tile_by_tile(k, &m, a);
    else
        many_columns(c, k, &m, a);
    if (scale != 1.0f)
        for (int col = 0; col < a->n_cols; col++)
            for (int i = 0; i < a->n_rows; i++)
                a->y[(size_t)col * a->y_stride + (size_t)i] *= scale;
}
