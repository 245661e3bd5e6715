/*
 * backend/cpu/pack: how matrices lie in memory. The answer is: as the file has them.
 *
 * Kernels read the file's blocks in place: decode is bound by memory, whatever the order of the bytes, and
 * prefill turns 16 rows at a time into its own layout in cache, which costs what two to four tokens cost. A
 * repacked copy would buy little and cost the memory of the file again (docs/decisions/0030). So a weight
 * stays in the file map, nothing is read at load, and a page comes in when it is first used.
 */
#include "backend/cpu/cpu_internal.h"

lg_status lg_cpu_pack(lg_cpu *c, const lg_source *src, lg_weight *out, lg_err *err)
{
    size_t row = 0, matrix = 0, bytes = 0;
    bool runs = (unsigned)out->type < LG_QTYPE_MAX && c->k.type[out->type].gemv != NULL;

    if (!runs)
        return LG_FAIL(err, LG_E_UNSUPPORTED, "type %u has no CPU kernels", (unsigned)out->type);
    if (!lg_row_bytes(out->type, (uint64_t)out->n_in, &row) ||
        !lg_mul_size(row, (size_t)out->n_out, &matrix) ||
        !lg_mul_size(matrix, (size_t)(out->n_expert > 0 ? out->n_expert : 1), &bytes) || bytes > src->bytes)
        return LG_FAIL(err, LG_E_INPUT, "%d x %d x %d values of type %s do not fit its %zu bytes", out->n_in,
                       out->n_out, out->n_expert, lg_qtype_get((uint32_t)out->type)->name, src->bytes);
    out->data = src->data;
    out->bytes = bytes;
    out->layout = 0;
    out->mem = (lg_mem){0};
    return LG_OK;
}

size_t lg_cpu_pack_bytes(const lg_cpu *c, const lg_source *src, lg_use use)
{
    (void)c, (void)src, (void)use;
    return 0;
}

void lg_cpu_unpack_row(const lg_cpu *c, const lg_weight *w, int row, float *dst)
{
    size_t bytes = 0;
    bool whole = lg_row_bytes(w->type, (uint64_t)w->n_in, &bytes);

    (void)c;
    LG_ASSERT(whole && row >= 0 && row < w->n_out);
    lg_dequant_row(w->type, (const uint8_t *)w->data + (size_t)row * bytes, dst, w->n_in);
    if (w->scale != 1.0f)
        for (int i = 0; i < w->n_in; i++)
            dst[i] *= w->scale;
}
