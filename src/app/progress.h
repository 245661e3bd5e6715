/*
 * app/progress: how far a long piece of work has come, on stderr.
 *
 * On a terminal: after the first second one line that repaints in place, with rate (over the last ten
 * seconds) and ETA, and that is gone when the work ends. Elsewhere: a start line after the first second and
 * an end line. Never goes backwards. One thread.
 */
#ifndef LG_APP_PROGRESS_H
#define LG_APP_PROGRESS_H

#include "app/term.h"

typedef enum lg_bar_unit { LG_BAR_BYTES, LG_BAR_TOKENS, LG_BAR_STEPS } lg_bar_unit; /* steps: no rate */

enum { LG_BAR_SAMPLES = 12 };
typedef struct lg_bar {
    char what[64];
    lg_bar_unit unit;
    lg_term term;
    bool quiet, shown;
    uint64_t start_us, painted_us;
    uint64_t done, total;
    struct {
        uint64_t us, done;
    } sample[LG_BAR_SAMPLES]; /* one a second, a ring */
    int n_sample;
} lg_bar;

/* `what` names the work: "loading mini.gguf". Quiet: nothing is ever shown. */
void lg_bar_start(lg_bar *b, const char *what, lg_bar_unit unit, const char *color, bool quiet);
void lg_bar_update(lg_bar *b, uint64_t done, uint64_t total);
/* Takes the line away, or writes the end line. Harmless when nothing was shown. */
void lg_bar_end(lg_bar *b, bool ok);
/* The line as it would be painted, for `width` columns and work that began `elapsed_us` ago: for tests too.
 */
void lg_bar_line(const lg_bar *b, uint64_t now_us, int width, char *out, size_t n);

#endif
