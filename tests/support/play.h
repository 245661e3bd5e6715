/*
 * tests/support/play: runs a dialect without sockets, queue or engine: a body is parsed to a job, a script of
 * what the model writes goes through the real reply parser, and its events straight into the dialect. Several
 * choices, log-probabilities and recorded transcripts are possible.
 *
 * A script is text in which {NN} stands for the control token NN; the rest is cut into ordinary tokens of
 * `step` bytes (0: as the encoder cuts it). What is random or depends on the clock is replaced: `created` is
 * 1, each random id becomes its prefix and a number in the order of appearance, the version becomes VERSION.
 * A broken fixture ends the process.
 */
#ifndef PLAY_H
#define PLAY_H

#include "server/dialect.h"

/* Settings are the defaults and may be changed by a test, which restores them. n_ctx is 4096. */
lg_service *td_service(void);
lg_settings *td_settings(void);

typedef struct td_script {
    const char *text[8];  /* one for each choice */
    lg_end how;           /* how the reply ends when the script does not end it */
    bool error;           /* an error of the engine in place of the end */
    bool logprobs;        /* a TOKEN event for each content event */
} td_script;

typedef struct td_run {
    lg_status st;        /* of parse */
    lg_api_error error;
    lg_buf out;          /* stream or body, ids replaced */
    lg_job *job;         /* valid until td_free */
} td_run;

/* Parse only; td_take: a body that is JSON already, and becomes the job's. */
void td_parse(const lg_dialect *d, const char *body, td_run *r);
void td_take(const lg_dialect *d, lg_json_doc *doc, td_run *r);
/* After a parse that succeeded: open, events, finish. Ids stay as they are. */
void td_go(const td_script *s, size_t step, td_run *r);
/* The body is answered with 400, this field, this code and a message with these words (NULL: any). */
void td_refuse(const lg_dialect *d, const char *body, const char *param, const char *code, const char *words);
/* Both, with the ids replaced. */
void td_play(const lg_dialect *d, const char *body, const td_script *s, size_t step, td_run *r);
void td_free(td_run *r);

/* The prompt as text, control tokens as their texts. */
void td_prompt(const lg_job *job, lg_buf *out);

/* Walk the events of a stream: each call gives the next event's name (empty: none) and data; false at the
 * end. */
bool td_event(lg_str stream, size_t *at, lg_str *name, lg_str *data);

/* One recorded run: "=== NAME stream" or "=== NAME body", then what td_play gives. */
void td_record(const lg_dialect *d, const char *name, const char *body, const td_script *s, size_t step,
               lg_buf *all);
/* Compare with tests/golden/NAME, or write it when the process was started with --write. */
void td_golden(const char *name, lg_str got);
void td_main(int argc, char **argv);

#endif
