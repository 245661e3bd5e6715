/*
 * app/cmd_perplexity: `lagoon perplexity`, how well the model predicts a text.
 *
 * The text is read in windows of --ctx tokens that advance by --stride; each token but the first is scored
 * once, in the first window that holds it, so that with the default stride of half a window a token has at
 * least half a window of context (the first window excepted). Every window is evaluated from nothing.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app/commands.h"
#include "app/id_list.h"
#include "app/progress.h"
#include "base/file.h"

enum { INPUT_MAX = 1 << 30, WINDOW = 2048 };

typedef struct own {
    lg_common common;
    const char *file;
    int64_t stride;
    bool tokens;
} own;

static const lg_option options[] = {
    LG_OPTION(own, file, "file", 'f', str, "FILE", NULL, NULL, "the text; - is standard input"),
    LG_OPTION(own, stride, "stride", 0, int, "N", "0", "0..1073741824",
              "tokens scored in a window; 0 = half of it"),
    LG_OPTION(own, tokens, "tokens", 0, bool, "", NULL, NULL, "FILE holds token ids instead of text"),
    LG_COMMON_OPTIONS(own),
    LG_OPTION_END,
};

static const lg_setting_id settings[] = {LG_MODEL_SETTINGS, LG_SET_END};

typedef struct job {
    const own *o;
    lg_app *app;
    lg_engine *e;
    lg_ids ids;
    size_t window, stride;
    size_t start, scored_to; // the window's first token; tokens before scored_to have their score
    size_t base;             // of the running eval: index in ids of its first row
    double sum, sum_squares;
    size_t n;
    lg_bar bar;
} job;

// -log p of the id under the row.
static double nll_of(const float *row, int vocab, int32_t id)
{
    double max = -INFINITY, sum = 0;

    for (int i = 0; i < vocab; i++)
        max = (double)row[i] > max ? (double)row[i] : max; // not fmax: tools/check-style.sh
    for (int i = 0; i < vocab; i++)
        sum += exp((double)row[i] - max);
    return max + log(sum) - (double)row[id];
}

// Row r of the eval says what comes after token base + r.
static lg_status on_rows(void *ctx, size_t first, size_t n, lg_err *err)
{
    job *j = ctx;
    int vocab = lg_engine_hparams(j->e)->vocab;

    for (size_t i = 0; i < n; i++) {
        size_t next = j->base + first + i + 1;
        const float *row;
        if (next >= j->ids.n || next >= j->start + j->window)
            continue;
        LG_TRY(lg_engine_logits(j->e, (int)i, &row, err));
        double nll = nll_of(row, vocab, j->ids.p[next]);
        if (!isfinite(nll))
            return LG_FAIL(err, LG_E_INTERNAL, "the logits after token %zu are not finite", next - 1);
        j->sum += nll;
        j->sum_squares += nll * nll;
        j->n++;
    }
    lg_bar_update(&j->bar, j->base + first + n, j->ids.n);
    return LG_OK;
}

static lg_status score_window(job *j, lg_err *err)
{
    size_t end = j->start + j->window < j->ids.n ? j->start + j->window : j->ids.n;
    // the row before the first token without a score is the first whose logits matter
    size_t from = j->scored_to > j->start + 1 ? j->scored_to - 1 : j->start;
    lg_eval lead = {
        .ids = j->ids.p + j->start, .n = from - j->start, .no_logits = true, .cancel = j->app->cancel};
    lg_eval rest = {.ids = j->ids.p + from,
                    .n = end - from,
                    .all_logits = true,
                    .cancel = j->app->cancel,
                    .chunk_done = on_rows,
                    .ctx = j};

    (void)lg_engine_truncate(j->e, 0);
    LG_TRY(lg_engine_eval(j->e, &lead, err));
    j->base = from;
    LG_TRY(lg_engine_eval(j->e, &rest, err));
    j->scored_to = end;
    return LG_OK;
}

static lg_status score(job *j, lg_err *err)
{
    for (j->start = 0; j->scored_to < j->ids.n; j->start += j->stride)
        LG_TRY(score_window(j, err));
    return LG_OK;
}

static lg_status read_input(job *j, lg_err *err)
{
    int32_t bos = lg_vocab_special(lg_engine_vocab(j->e))->bos;
    char *text = NULL;
    size_t n;
    lg_status st = lg_read_all(j->o->file, INPUT_MAX, &text, &n, err);

    if (st != LG_OK)
        return st;
    if (j->o->tokens) {
        st = lg_app_read_ids((lg_str){text, n}, lg_engine_hparams(j->e)->vocab, &j->ids, err);
    } else {
        if (bos >= 0)
            st = lg_ids_add(&j->ids, bos, err);
        if (st == LG_OK)
            st = lg_bpe_encode(lg_engine_bpe(j->e), (lg_str){text, n}, false, &j->ids, err);
    }
    if (st == LG_OK && j->ids.n < 2)
        st = LG_FAIL(err, LG_E_INPUT, "at least two tokens are needed; there are %zu", j->ids.n);
    if (st != LG_OK)
        (void)lg_err_subject(err, "%s", j->o->file);
    free(text);
    return st;
}

static lg_status open_engine(job *j, lg_err *err)
{
    lg_engine_params p;

    LG_TRY(lg_app_engine_params(j->app, &p, err));
    p.draft_path = NULL; // nothing is decoded
    if (p.ctx == 0)
        p.ctx = WINDOW;
    LG_TRY(lg_app_engine_open(j->app, &p, &j->e, err));
    j->window = (size_t)lg_engine_plan(j->e)->ctx;
    j->stride = j->o->stride > 0 ? (size_t)j->o->stride : (j->window + 1) / 2;
    LG_ASSERT(j->stride <= j->window);
    return LG_OK;
}

static void print_result(const job *j)
{
    double n = (double)j->n, mean = j->sum / n, ppl = exp(mean);
    double variance = j->n > 1 ? fmax(0, (j->sum_squares - j->sum * mean) / (n - 1)) : 0;
    double se = sqrt(variance / n);

    if (j->app->common.json)
        (void)printf("{\"tokens\": %zu, \"nll\": %.6f, \"nll_se\": %.6f, \"perplexity\": %.6g, "
                     "\"perplexity_se\": %.6g, "
                     "\"ctx\": %zu, \"stride\": %zu}\n",
                     j->n, mean, se, ppl, ppl * se, j->window, j->stride);
    else
        (void)printf("perplexity %.4f +- %.4f   nll %.5f +- %.5f   %zu tokens, window %zu, stride %zu\n", ppl,
                     ppl * se, mean, se, j->n, j->window, j->stride);
}

static int run(lg_app *app)
{
    job j = {.o = app->own, .app = app};
    lg_err err = {0};
    lg_status st;

    if (!j.o->file)
        return lg_app_usage("perplexity wants -f FILE ('-' reads stdin)");
    if (app->set.ctx == 1)
        return lg_app_usage("a window (--ctx) of 1 token has nothing to predict");
    if (j.o->stride > (app->set.ctx > 0 ? app->set.ctx : WINDOW))
        return lg_app_usage("--stride %lld is longer than the window (--ctx)", (long long)j.o->stride);
    st = open_engine(&j, &err);
    if (st == LG_OK)
        st = read_input(&j, &err);
    if (st == LG_OK) {
        lg_app_catch_interrupt(app, 2);
        lg_bar_start(&j.bar, "scoring", LG_BAR_TOKENS, app->set.color, app->common.quiet);
        st = score(&j, &err);
        lg_bar_end(&j.bar, st == LG_OK);
        if (st == LG_OK)
            print_result(&j);
    }
    lg_engine_close(j.e);
    lg_ids_free(&j.ids);
    return st == LG_OK ? LG_EXIT_OK : lg_app_fail(&err);
}

const lg_cmd lg_cmd_perplexity = {
    .words = {.name = "perplexity",
              .usage = "perplexity -f FILE [flags]",
              .summary = "mean negative log-likelihood and perplexity of a text",
              .settings = settings,
              .options = options,
              .notes = "Text gets one begin token in front; ids are taken as they are. Without --ctx a "
                       "window has 2048 tokens.\n"
                       "The figure behind +- is one standard error.\n"},
    .own_bytes = sizeof(own),
    .run = run,
};
