/*
 * backend/cpu/product: see product.h.
 *
 * Few columns: gemv, 16 rows at a time for all columns, so that a weight comes from memory once and from L1 after that.
 * Many: a block of rows is unpacked once, then columns go by in groups that stay in L2 beside the tiles.
 */
#include "backend/cpu/product.h"

// From this many columns on, unpacking 16 rows and running gemm beats one gemv a column (docs/decisions/0030).
enum { GEMM_MIN_COLS = 4 };
// Activation bytes that a pass over the tiles of a block touches.
enum { COLS_BYTES = 128 << 10 };

lg_mat lg_product_mat(const lg_weight *w, int expert)
{
    size_t row = 0;
    bool whole = lg_row_bytes(w->type, (uint64_t)w->n_in, &row);

    LG_ASSERT(whole);
    return (lg_mat){(const uint8_t *)w->data + row * (size_t)w->n_out * (size_t)expert, row, w->n_in};
}

size_t lg_product_tiles(int n_in)
{
    return LG_BLOCK_ROWS / LG_TILE_ROWS * lg_tile_bytes(n_in);
}

void lg_product_quant(const lg_cpu *c, lg_act_kind kind, const float *x, size_t x_stride, int n_in, int from, int to,
                      uint8_t *out)
{
    for (int r = from; r < to; r++)
        c->k.quant[kind](x + (size_t)r * x_stride, n_in, out + (size_t)r * lg_act_bytes(kind, n_in));
}

static void few_columns(const lg_type_kernels *k, const lg_mat *w, int row, int n_rows, const lg_acts *x,
                        const int32_t *idx, int n_cols, float *y, size_t y_stride)
{
    int step = n_cols == 1 ? n_rows : LG_TILE_ROWS;

    for (int r = 0; r < n_rows; r += step) {
        int n = n_rows - r < step ? n_rows - r : step;

        for (int col = 0; col < n_cols; col++)
            k->gemv(w, row + r, n, x->p + (size_t)(idx ? idx[col] : col) * x->stride,
                    y + (size_t)col * y_stride + (size_t)r);
    }
}

static void many_columns(const lg_type_kernels *k, const lg_mat *w, int row, int n_rows, const lg_acts *x,
                         const int32_t *idx, int n_cols, float *y, size_t y_stride, char *tiles)
{
    size_t tile = lg_tile_bytes(w->n_in);
    int group = (int)(COLS_BYTES / x->stride / 8 * 8);

    LG_ASSERT(n_rows <= LG_BLOCK_ROWS);
    if (group < 8)
        group = 8;
    for (int r = 0; r < n_rows; r += LG_TILE_ROWS) {
        int n = n_rows - r < LG_TILE_ROWS ? n_rows - r : LG_TILE_ROWS;

        k->unpack(w, row + r, n, tiles + (size_t)(r / LG_TILE_ROWS) * tile);
    }
    for (int col = 0; col < n_cols; col += group) {
        int cols = n_cols - col < group ? n_cols - col : group;
        lg_acts from = {idx ? x->p : x->p + (size_t)col * x->stride, x->stride};

        for (int r = 0; r < n_rows; r += LG_TILE_ROWS) {
            int n = n_rows - r < LG_TILE_ROWS ? n_rows - r : LG_TILE_ROWS;

            k->gemm(tiles + (size_t)(r / LG_TILE_ROWS) * tile, w->n_in, n, &from, idx ? idx + col : NULL, cols,
                    y + (size_t)col * y_stride + (size_t)r, y_stride);
        }
    }
}

// What the products of matrix m, one of w's, are multiplied by.
static float scale_of(const lg_weight *w, const lg_mat *m)
{
    size_t bytes = m->row_bytes * (size_t)w->n_out;

    if (!w->expert_scale)
        return w->scale;
    return w->scale * w->expert_scale[(size_t)(m->p - (const uint8_t *)w->data) / bytes];
}

void lg_product(const lg_cpu *c, const lg_weight *w, const lg_mat *m, int row, int n_rows, const lg_acts *x,
                const int32_t *idx, int n_cols, float *y, size_t y_stride, void *tiles)
{
    const lg_type_kernels *k = &c->k.type[w->type];
    float scale = scale_of(w, m);

    if (n_cols < GEMM_MIN_COLS)
        few_columns(k, m, row, n_rows, x, idx, n_cols, y, y_stride);
    else
        many_columns(k, m, row, n_rows, x, idx, n_cols, y, y_stride, tiles);
    if (scale != 1.0f)
        for (int col = 0; col < n_cols; col++)
            for (int i = 0; i < n_rows; i++)
                y[(size_t)col * y_stride + (size_t)i] *= scale;
}
