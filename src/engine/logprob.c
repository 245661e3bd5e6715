/*
 * engine/logprob: see logprob.h.
 */
#include "engine/logprob.h"

#include <math.h>
#include <string.h>

// Log of the sum of exponentials, in double: a vocabulary's worth of small terms.
static double log_sum(const float *row, int n)
{
    double max = -INFINITY, sum = 0;

    for (int i = 0; i < n; i++)
        if ((double)row[i] > max)
            max = row[i];
    if (!isfinite(max))
        return max;
    for (int i = 0; i < n; i++)
        if (isfinite(row[i]))
            sum += exp((double)row[i] - max);
    return max + log(sum);
}

void lg_logprobs_of(const float *row, int n, int32_t id, int top, lg_logprobs *out)
{
    double lse = log_sum(row, n);

    if (top > LG_LOGPROBS_MAX)
        top = LG_LOGPROBS_MAX;
    out->n_top = 0;
    for (int i = 0; i < n && top > 0; i++) {
        int at = out->n_top;

        // the first `top` entries are kept in order; a later equal one stands behind
        if (!isfinite(row[i]) || (at == top && row[i] <= out->top[top - 1].logprob))
            continue;
        if (at < top)
            out->n_top++;
        else
            at--;
        for (; at > 0 && row[i] > out->top[at - 1].logprob; at--)
            out->top[at] = out->top[at - 1];
        out->top[at] = (lg_logprob){.id = i, .logprob = row[i]};
    }
    for (int i = 0; i < out->n_top; i++)
        out->top[i].logprob = (float)((double)out->top[i].logprob - lse);
    out->logprob = (float)((double)row[id] - lse);
}
