/*
 * app/figures: numbers as people read them: 85,914 / 23.4 GB / 1:51 / 3:12:15.
 *
 * SI units (1 GB = 10^9 bytes). Every function writes into the caller's buffer and returns it, so that calls
 * can stand inside a printf. JSON and logs have raw numbers and do not use these.
 */
#ifndef LG_APP_FIGURES_H
#define LG_APP_FIGURES_H

#include <stddef.h>
#include <stdint.h>

enum { LG_FIGURE_BYTES = 32 };
typedef struct lg_figure {
    char s[LG_FIGURE_BYTES];
} lg_figure;

/* "85,914" */
const char *lg_fig_count(lg_figure *f, int64_t n);
/* "23.4 GB", three digits */
const char *lg_fig_bytes(lg_figure *f, double bytes);
/* "0:21", "3:12:15" */
const char *lg_fig_time(lg_figure *f, double seconds);
/* A rate of tokens: "1,102" from 100 on, "30.7", "4.12" */
const char *lg_fig_rate(lg_figure *f, double per_second);

#endif
