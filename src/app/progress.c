/*
 * app/progress: see progress.h. Called from inside the work (load, prefill), so it looks at the clock first
 * and does nothing most of the time.
 */
#include "app/progress.h"

#include <string.h>

#include "app/figures.h"
#include "base/clock.h"
#include "base/str.h"

enum {
    FIRST_US = 1000 * 1000,     /* work shorter than this shows nothing */
    REPAINT_US = 100 * 1000,
    SAMPLE_US = 1000 * 1000,
    RATE_US = 10 * 1000 * 1000, /* the rate looks back this far */
    CELLS_MAX = 40,
};

void lg_bar_start(lg_bar *b, const char *what, lg_bar_unit unit, const char *color, bool quiet)
{
    size_t n = strlen(what), w = 0;

    *b = (lg_bar){.unit = unit, .quiet = quiet, .term = lg_term_of(stderr, color), .start_us = lg_now_us()};
    for (size_t i = 0; i < n;) { // whole characters; what could drive the terminal becomes '?'
        int32_t cp;
        size_t len = (size_t)lg_utf8_step(what + i, n - i, &cp);
        bool plain = cp >= 0x20 && (cp < 0x7F || cp >= 0xA0);

        if (w + (plain ? len : 1) >= sizeof b->what)
            break;
        memcpy(b->what + w, plain ? what + i : "?", plain ? len : 1);
        w += plain ? len : 1;
        i += len;
    }
}

/* Bytes of the first `columns` characters at most, and how many characters that are. */
static size_t first_columns(const char *s, int columns, int *got)
{
    size_t n = strlen(s), at = 0;
    int32_t cp;

    for (*got = 0; at < n && *got < columns; (*got)++)
        at += (size_t)lg_utf8_step(s + at, n - at, &cp);
    return at;
}

static const char *amount(const lg_bar *b, lg_figure *f, uint64_t n)
{
    return b->unit == LG_BAR_BYTES ? lg_fig_bytes(f, (double)n) : lg_fig_count(f, (int64_t)n);
}

/* "23.4 of 68.2 GB": a unit that both have is said once. */
static void part_of(const lg_bar *b, char *out, size_t n)
{
    lg_figure f[2];
    const char *all = strchr(amount(b, &f[1], b->total), ' ');
    char *part = strchr(amount(b, &f[0], b->done), ' ');

    if (part && all && strcmp(part, all) == 0)
        *part = '\0';
    (void)snprintf(out, n, "%s of %s", f[0].s, f[1].s);
}

/* Units a second over the last ten seconds, 0 when unknown. */
static double rate(const lg_bar *b, uint64_t now_us)
{
    uint64_t us = b->start_us, done = 0;

    // the oldest sample that is young enough
    for (int i = b->n_sample - 1; i >= 0 && i > b->n_sample - LG_BAR_SAMPLES; i--) {
        if (now_us - b->sample[i % LG_BAR_SAMPLES].us > RATE_US)
            break;
        us = b->sample[i % LG_BAR_SAMPLES].us;
        done = b->sample[i % LG_BAR_SAMPLES].done;
    }
    if (now_us - us < SAMPLE_US / 2) {
        us = b->start_us;
        done = 0;
    }
    return now_us > us ? (double)(b->done - done) * 1e6 / (double)(now_us - us) : 0;
}

static void cells(char *out, int n, double share, bool utf8)
{
    int full = (int)(share * n + 0.5);

    for (int i = 0; i < n; i++) { // at most CELLS_MAX * 3 bytes
        const char *cell = i < full ? (utf8 ? "█" : "#") : (utf8 ? "░" : ".");
        size_t bytes = strlen(cell);

        memcpy(out, cell, bytes);
        out += bytes;
    }
    *out = '\0';
}

void lg_bar_line(const lg_bar *b, uint64_t now_us, int width, char *out, size_t n)
{
    lg_figure f;
    char bar[CELLS_MAX * 3 + 1], part[2 * LG_FIGURE_BYTES + 8], speed[LG_FIGURE_BYTES + 8] = "", tail[160];
    double share = b->total ? (double)b->done / (double)b->total : 0;
    double r = rate(b, now_us);
    int room, named;

    if (b->unit == LG_BAR_BYTES)
        (void)snprintf(speed, sizeof speed, "  %s/s", lg_fig_bytes(&f, r));
    else if (b->unit == LG_BAR_TOKENS)
        (void)snprintf(speed, sizeof speed, "  %s tok/s", lg_fig_rate(&f, r));
    part_of(b, part, sizeof part);
    (void)snprintf(tail, sizeof tail, " %3.0f %%  %s%s  ETA %s", share * 100, part, speed,
                   lg_fig_time(&f, r > 0 ? (double)(b->total - b->done) / r : -1));
    (void)first_columns(b->what, width, &named);
    room = width - 1 - named - 2 - (int)strlen(tail);
    if (room > CELLS_MAX)
        room = CELLS_MAX;
    bar[0] = '\0';
    if (room >= 8)
        cells(bar, room, share, b->term.utf8);
    (void)snprintf(out, n, "%s  %s%s", b->what, bar, tail);
    if (room < 8)
        out[first_columns(out, width - 1, &named)] = '\0';
}

void lg_bar_update(lg_bar *b, uint64_t done, uint64_t total)
{
    uint64_t now = lg_now_us();
    char line[512];

    if (b->quiet)
        return;
    if (total > 0 && done > total)
        done = total;
    if (done > b->done || total != b->total)
        b->done = done > b->done ? done : b->done;
    b->total = total;
    if (b->n_sample == 0 || now - b->sample[(b->n_sample - 1) % LG_BAR_SAMPLES].us >= SAMPLE_US) {
        b->sample[b->n_sample % LG_BAR_SAMPLES].us = now;
        b->sample[b->n_sample % LG_BAR_SAMPLES].done = b->done;
        b->n_sample++;
    }
    if (now - b->start_us < FIRST_US)
        return;
    if (!b->term.tty || !b->term.attrs) {
        lg_figure f;

        if (!b->shown)
            (void)fprintf(stderr, "lagoon: %s: %s%s\n", b->what, amount(b, &f, total),
                          b->unit == LG_BAR_BYTES ? "" : b->unit == LG_BAR_TOKENS ? " tokens" : " steps");
        b->shown = true;
        return;
    }
    if (b->shown && now - b->painted_us < REPAINT_US)
        return;
    b->shown = true;
    b->painted_us = now;
    lg_bar_line(b, now, lg_term_width(stderr), line, sizeof line);
    (void)fprintf(stderr, "\r%s\033[K", line);
    (void)fflush(stderr);
}

void lg_bar_end(lg_bar *b, bool ok)
{
    lg_figure f;

    if (!b->shown)
        return;
    b->shown = false;
    if (b->term.tty && b->term.attrs)
        (void)fputs("\r\033[K", stderr);
    else
        (void)fprintf(stderr, "lagoon: %s: %s after %s\n", b->what, ok ? "done" : "stopped",
                      lg_fig_time(&f, (double)(lg_now_us() - b->start_us) / 1e6));
    (void)fflush(stderr);
}
