/*
 * engine/rates: see rates.h.
 */
#include "engine/rates.h"

static const double at[LG_RATE_POINTS] = {1024, 4096, 16384, 65536, 262144};
static const double nominal_ops = 1e11; // a second: only the unit of what was not measured
static const double smoothing = 0.2;    // weight of the newest measurement

// Operations of one token at a context, two per multiply-add.
static double operations(const lg_hparams *hp, double ctx)
{
    double h = hp->hidden, kv = 2.0 * hp->n_kv_head * hp->head_dim, sum = h * hp->vocab;

    for (int i = 0; i < hp->n_layer; i++) {
        const lg_layer_params *l = &hp->layer[i];
        double q = (double)l->n_head * hp->head_dim, seen = l->window && hp->window < ctx ? hp->window : ctx;
        double ffn = l->dense ? hp->ffn_dense : (double)hp->n_expert_used * hp->ffn_expert + hp->ffn_shared;
        sum += h * (2 * q + kv) + 3 * h * ffn + 2 * q * seen;
    }
    return 2 * sum;
}

void lg_rates_init(lg_rates *r, const lg_hparams *hp)
{
    *r = (lg_rates){0};
    for (int i = 0; i < LG_RATE_POINTS; i++)
        r->cost[i] = operations(hp, at[i]) / nominal_ops * 1e6;
}

// The measured point whose depth is nearest (as a ratio), or -1.
static int nearest(const lg_rate *m, int i)
{
    for (int d = 0; d < LG_RATE_POINTS; d++) {
        if (i - d >= 0 && m->us[i - d] > 0)
            return i - d;
        if (i + d < LG_RATE_POINTS && m->us[i + d] > 0)
            return i + d;
    }
    return -1;
}

// Straight line between points; the last one goes on, the first one is flat.
static double between(const double v[LG_RATE_POINTS], double ctx)
{
    int i = 0;

    if (ctx <= at[0])
        return v[0];
    while (i < LG_RATE_POINTS - 2 && ctx > at[i + 1])
        i++;
    double y = v[i] + (v[i + 1] - v[i]) * (ctx - at[i]) / (at[i + 1] - at[i]);
    return y > v[0] / 16 ? y : v[0] / 16; // noise must not make a far token free
}

static double rate(const lg_rates *r, const lg_rate *m, double ctx)
{
    double v[LG_RATE_POINTS];

    for (int i = 0; i < LG_RATE_POINTS; i++) {
        int known = nearest(m, i);
        v[i] = known < 0 ? r->cost[i] : m->us[known] * r->cost[i] / r->cost[known];
    }
    return between(v, ctx);
}

static void add(const lg_rates *r, lg_rate *m, double ctx, double us)
{
    int i = 0;

    while (i < LG_RATE_POINTS - 1 && ctx > at[i] * 2) // halfway to the next point, as a ratio
        i++;
    us *= r->cost[i] / between(r->cost, ctx);
    m->us[i] = m->us[i] > 0 ? m->us[i] + smoothing * (us - m->us[i]) : us;
}

void lg_rates_add_prefill(lg_rates *r, int64_t pos, int64_t n, uint64_t us)
{
    if (n > 0 && us > 0)
        add(r, &r->prefill, (double)pos + (double)n / 2, (double)us / (double)n);
}

void lg_rates_add_decode(lg_rates *r, int64_t pos, uint64_t us)
{
    if (us > 0)
        add(r, &r->decode, (double)pos, (double)us);
}

double lg_rates_prefill_us(const lg_rates *r, int64_t from, int64_t to)
{
    double sum = 0, a = (double)from, end = (double)to;

    // between points the rate is a straight line: its middle is its mean
    for (int i = 0; a < end; i++) {
        double b = i < LG_RATE_POINTS && at[i] < end ? at[i] : end;
        if (b <= a)
            continue;
        sum += (b - a) * rate(r, &r->prefill, (a + b) / 2);
        a = b;
    }
    return sum;
}

double lg_rates_decode_us(const lg_rates *r, int64_t pos)
{
    return rate(r, &r->decode, (double)pos);
}

bool lg_rates_measured(const lg_rate *r)
{
    return nearest(r, 0) >= 0;
}
