/*
 * app/cmd_template: `lagoon template`: a Chat Completions body -> the prompt that the model would see.
 *
 * The text is printed byte for byte, without a line end of its own (but for a terminal). What a client wrote
 * cannot be told from control tokens in it; --ids can.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/commands.h"
#include "app/vocab_file.h"
#include "base/file.h"
#include "text/chat_json.h"

enum { BODY_MAX = 64 << 20, BODY_DEPTH = 512, WORK_MAX = 1 << 30 };

typedef struct own {
    lg_common common;
    const char *file;
    bool ids;
} own;

static const lg_option options[] = {
    LG_OPTION(own, file, "file", 'f', str, "FILE", "-", NULL, "where to read the body; - is standard input"),
    LG_OPTION(own, ids, "ids", 0, bool, "", NULL, NULL, "print the prompt's token ids instead"),
    LG_COMMON_OPTIONS(own),
    LG_OPTION_END,
};

static const lg_setting_id settings[] = {LG_FILE_SETTINGS,     LG_SET_chat_template,    LG_SET_thinking,
                                         LG_SET_drop_images,   LG_SET_history_thinking, LG_SET_crlf_compat,
                                         LG_SET_END};

// All that has to be given back.
typedef struct work {
    lg_vocab *v;
    lg_bpe *b;
    lg_json_doc *body;
    lg_arena arena;
    lg_ids ids;
    lg_buf text;
} work;

static void say_guess(const lg_app *app, const lg_vocab *v)
{
    bool known;

    (void)lg_vocab_template(v, &known);
    if (!known && !app->common.quiet)
        lg_app_say_guess(app);
}

static lg_status choose_family(lg_app *app, work *w, lg_template_family *out, lg_err *err)
{
    const char *name = app->set.chat_template;
    bool given = strcmp(name, "auto") != 0;

    if (((const own *)app->own)->ids)
        LG_TRY(lg_app_encoder(app, &w->v, &w->b, err));
    else if (!given)
        LG_TRY(lg_app_vocab(app, &w->v, err));
    if (given) {
        *out = strcmp(name, "v2") == 0 ? LG_TEMPLATE_V2 : LG_TEMPLATE_S21;
    } else {
        say_guess(app, w->v);
        *out = lg_vocab_template(w->v, NULL);
    }
    return LG_OK;
}

static lg_status read_body(const own *o, work *w, lg_err *err)
{
    const lg_json_limits limits = {.max_bytes = BODY_MAX, .max_depth = BODY_DEPTH, .repair = true};
    char *text = NULL;
    size_t n = 0;
    lg_status st;

    LG_TRY(lg_read_all(o->file, BODY_MAX, &text, &n, err));
    st = lg_json_parse((lg_str){text, n}, &limits, &w->body, err);
    if (st != LG_OK)
        (void)lg_err_subject(err, "%s", strcmp(o->file, "-") == 0 ? "standard input" : o->file);
    free(text);
    return st;
}

static lg_history history_named(const char *name)
{
    return strcmp(name, "all") == 0    ? LG_HISTORY_ALL
           : strcmp(name, "none") == 0 ? LG_HISTORY_NONE
                                       : LG_HISTORY_TAIL;
}

static lg_status render(lg_app *app, work *w, lg_err *err)
{
    const own *o = app->own;
    const lg_chat_json_opts opts = {.drop_images = app->set.drop_images, .template_only = true};
    lg_chat chat = {.thinking = app->set.thinking, .history = history_named(app->set.history_thinking)};
    lg_chat_tools tools;
    lg_rendered r;

    LG_TRY(choose_family(app, w, &chat.family, err));
    LG_TRY(read_body(o, w, err));
    LG_TRY(lg_chat_json_body(lg_json_root(w->body), &opts, &w->arena, &chat, &tools, err));
    LG_TRY(lg_chat_render(&chat, &w->arena, &r, err));
    return o->ids ? lg_chat_encode(w->b, &r, &w->ids, err) : lg_chat_text(&r, w->v, &w->text, err);
}

static lg_status print(const lg_app *app, work *w, lg_err *err)
{
    if (((const own *)app->own)->ids) {
        lg_app_print_ids(&w->ids, app->common.json);
        return LG_OK;
    }
    if (app->common.json) {
        lg_buf out;
        lg_buf_init(&out, SIZE_MAX / 2);
        (void)lg_buf_addz(&out, "{\"prompt\": ");
        (void)lg_json_quote(lg_buf_str(&w->text), &out);
        (void)lg_buf_addz(&out, "}\n");
        return lg_app_print(&out, "the prompt", err);
    }
    (void)fwrite(w->text.p, 1, w->text.n, stdout);
    if (isatty(STDOUT_FILENO))
        (void)putchar('\n');
    return LG_OK;
}

static int run(lg_app *app)
{
    work w = {0};
    lg_err err = {0};
    lg_status st;

    lg_arena_init(&w.arena, WORK_MAX);
    lg_buf_init(&w.text, WORK_MAX);
    st = render(app, &w, &err);
    if (st == LG_OK)
        st = print(app, &w, &err);
    lg_ids_free(&w.ids);
    lg_buf_free(&w.text);
    lg_arena_free(&w.arena);
    lg_json_free(w.body);
    lg_bpe_destroy(w.b);
    lg_vocab_destroy(w.v);
    return st == LG_OK ? LG_EXIT_OK : lg_app_fail(&err);
}

const lg_cmd lg_cmd_template = {
    .words =
        {.name = "template",
         .usage = "template [-f FILE] [flags]",
         .summary = "show the prompt that a chat request becomes",
         .settings = settings,
         .options = options,
         .notes =
             "Reads a Chat Completions body: messages, tools, and besides enable_thinking, history_thinking,\n"
             "add_generation_prompt, continue_final_message. With --chat-template s21 or v2 no model is\n"
             "needed unless --ids is given.\n"},
    .own_bytes = sizeof(own),
    .run = run,
};
