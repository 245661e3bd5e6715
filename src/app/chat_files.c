/*
 * app/chat_files: see chat_files.h.
 */
#include "app/chat_files.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json.h"

enum { FILE_MAX = 256 << 20, FORMAT = 1, NAME_MAX_CHARS = 64, NAMES_MAX = 1000 };

/* --- places --- */

/* Make every folder of `path`, for the owner only. */
static bool make_dirs(const char *path)
{
    char part[LG_PATH_BYTES];
    size_t n = strlen(path);

    if (n >= sizeof part)
        return false;
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST)
            return false;
    }
    return true;
}

/* $XDG_STATE_HOME/lagoon/SUB, made when it is not there. */
static bool state_dir(const char *sub, char *out)
{
    const char *state = lg_env(LG_ENV_XDG_STATE_HOME), *home = lg_env(LG_ENV_HOME);
    int n;

    if (state && state[0] == '/') // a relative one is to be ignored, says its specification
        n = snprintf(out, LG_PATH_BYTES, "%s/lagoon%s", state, sub);
    else if (home)
        n = snprintf(out, LG_PATH_BYTES, "%s/.local/state/lagoon%s", home, sub);
    else
        return false;
    return n > 0 && n < LG_PATH_BYTES && make_dirs(out);
}

bool lg_chat_history_path(char *out)
{
    if (!state_dir("", out) || strlen(out) + sizeof "/chat_history" > LG_PATH_BYTES)
        return false;
    (void)memcpy(out + strlen(out), "/chat_history", sizeof "/chat_history");
    return true;
}

static bool good_name(lg_str name)
{
    if (name.n == 0 || name.n > NAME_MAX_CHARS || name.p[0] == '.')
        return false;
    for (size_t i = 0; i < name.n; i++) {
        unsigned char c = (unsigned char)name.p[i];

        if (c <= ' ' || c == '/' || c == 0x7F)
            return false;
    }
    return true;
}

lg_status lg_chat_path(lg_str name, char *out, lg_err *err)
{
    char dir[LG_PATH_BYTES] = "";
    int n;

    if (name.n > 0 && name.n < LG_PATH_BYTES && memchr(name.p, '/', name.n) &&
        !memchr(name.p, '\0', name.n)) {
        (void)snprintf(out, LG_PATH_BYTES, "%.*s", (int)name.n, name.p);
        return LG_OK;
    }
    if (!good_name(name))
        return LG_FAIL(err, LG_E_INPUT,
                       "a chat's name is one word of at most %d characters, or a path with a slash",
                       NAME_MAX_CHARS);
    if (!state_dir("/chats", dir))
        return LG_FAIL(err, LG_E_IO, "no folder for saved chats: %s", dir[0] ? dir : "HOME is not set");
    n = snprintf(out, LG_PATH_BYTES, "%s/%.*s.jsonl", dir, (int)name.n, name.p);
    if (n < 0 || n >= LG_PATH_BYTES)
        return LG_FAIL(err, LG_E_INPUT, "the path is too long");
    return LG_OK;
}

/* --- writing --- */

static const char *role_word(lg_role role)
{
    return role == LG_ROLE_SYSTEM ? "system" : role == LG_ROLE_USER ? "user" : "assistant";
}

static void put_field(lg_buf *b, const char *key, const char *text, size_t n)
{
    (void)lg_buf_addf(b, ", \"%s\": ", key);
    (void)lg_json_quote((lg_str){text, n}, b);
}

static void put_message(lg_buf *b, const lg_talk_msg *m, bool marks)
{
    (void)lg_buf_addf(b, "{\"role\": \"%s\"", role_word(m->role));
    put_field(b, "content", m->text, m->n_text);
    if (m->thought)
        put_field(b, "reasoning_content", m->thought, m->n_thought);
    if (marks && m->stopped)
        (void)lg_buf_addf(b, ", \"stopped\": \"%s\"", m->open_thought ? "thinking" : "answer");
    (void)lg_buf_addc(b, '}');
}

static lg_status write_file(const char *path, lg_buf *b, lg_err *err)
{
    lg_out *o = NULL;
    lg_status st;

    if (b->failed)
        return LG_FAIL(err, LG_E_LIMIT, "the conversation is too long to write");
    LG_TRY(lg_out_open(path, &o, err));
    lg_out_write(o, b->p, b->n);
    st = lg_out_commit(o, err);
    (void)lg_err_subject(err, "%s", path);
    return st;
}

static void put_saved(const lg_talk *t, lg_buf *b)
{
    (void)lg_buf_addf(b, "{\"lagoon_chat\": %d", FORMAT);
    if (t->system)
        put_field(b, "system", t->system, strlen(t->system));
    (void)lg_buf_addz(b, "}\n");
    for (size_t i = 0; i < t->n_msg; i++) {
        put_message(b, &t->msg[i], true);
        (void)lg_buf_addc(b, '\n');
    }
}

static void put_openai(const lg_talk *t, lg_buf *b)
{
    (void)lg_buf_addz(b, "[\n");
    if (t->system) {
        (void)lg_buf_addz(b, "  {\"role\": \"system\"");
        put_field(b, "content", t->system, strlen(t->system));
        (void)lg_buf_addz(b, t->n_msg > 0 ? "},\n" : "}\n");
    }
    for (size_t i = 0; i < t->n_msg; i++) {
        (void)lg_buf_addz(b, "  ");
        put_message(b, &t->msg[i], false);
        (void)lg_buf_addz(b, i + 1 < t->n_msg ? ",\n" : "\n");
    }
    (void)lg_buf_addz(b, "]\n");
}

static void put_markdown(const lg_talk *t, lg_buf *b)
{
    if (t->system)
        (void)lg_buf_addf(b, "## System\n\n%s\n\n", t->system);
    for (size_t i = 0; i < t->n_msg; i++) {
        const lg_talk_msg *m = &t->msg[i];

        (void)lg_buf_addz(b, m->role == LG_ROLE_USER ? "## You\n\n" : "## Laguna\n\n");
        (void)lg_buf_add(b, m->text, m->n_text);
        (void)lg_buf_addz(b, m->stopped ? "\n\n[stopped]\n\n" : "\n\n");
    }
}

lg_status lg_chat_save(const lg_talk *t, const char *path, lg_err *err)
{
    mode_t mask = umask(077); // what was said is its owner's, from the first byte on
    lg_buf b;
    lg_status st;

    lg_buf_init(&b, FILE_MAX);
    put_saved(t, &b);
    st = write_file(path, &b, err);
    lg_buf_free(&b);
    (void)umask(mask);
    if (st == LG_OK)
        (void)chmod(path, 0600); // a file that was there had its mode
    return st;
}

lg_status lg_chat_export(const lg_talk *t, const char *path, lg_err *err)
{
    lg_str p = lg_str_of(path);
    lg_buf b;
    lg_status st = LG_OK;

    lg_buf_init(&b, FILE_MAX);
    if (lg_str_ends(p, LG_STR(".md")))
        put_markdown(t, &b);
    else if (lg_str_ends(p, LG_STR(".jsonl")))
        put_saved(t, &b);
    else if (lg_str_ends(p, LG_STR(".json")))
        put_openai(t, &b);
    else
        st = LG_FAIL(err, LG_E_INPUT, "/export wants a file that ends in .md, .json or .jsonl");
    if (st == LG_OK)
        st = write_file(path, &b, err);
    lg_buf_free(&b);
    return st;
}

/* --- reading --- */

static const lg_json_limits limits = {.max_bytes = FILE_MAX, .max_depth = 8, .repair = true};

static lg_status read_header(lg_talk *t, lg_str line, lg_err *err)
{
    lg_json_doc *doc = NULL;
    const lg_json *root, *system;
    int64_t version = 0;
    lg_status st;

    LG_TRY(lg_json_parse(line, &limits, &doc, err));
    root = lg_json_root(doc);
    system = lg_json_get(root, "system");
    if (!lg_json_i64(lg_json_get(root, "lagoon_chat"), &version))
        st = LG_FAIL(err, LG_E_INPUT, "not a saved chat: the first line has no \"lagoon_chat\"");
    else if (version != FORMAT)
        st = LG_FAIL(err, LG_E_UNSUPPORTED, "a saved chat of format %lld; this version reads %d",
                     (long long)version, FORMAT);
    else
        st = lg_talk_set_system(t, lg_json_is(system, LG_JSON_STRING) ? lg_json_str(system) : (lg_str){0},
                                err);
    lg_json_free(doc);
    return st;
}

static lg_status read_message(lg_talk *t, lg_str line, lg_err *err)
{
    lg_json_doc *doc = NULL;
    const lg_json *root, *content, *thought;
    lg_str role, stopped;
    lg_status st;

    LG_TRY(lg_json_parse(line, &limits, &doc, err));
    root = lg_json_root(doc);
    role = lg_json_str(lg_json_get(root, "role"));
    content = lg_json_get(root, "content");
    thought = lg_json_get(root, "reasoning_content");
    stopped = lg_json_str(lg_json_get(root, "stopped"));
    if ((!lg_str_eqz(role, "user") && !lg_str_eqz(role, "assistant")) ||
        !lg_json_is(content, LG_JSON_STRING)) {
        st = LG_FAIL(err, LG_E_INPUT,
                     "a message needs \"role\" (user or assistant) and \"content\" (a string)");
    } else {
        st = lg_talk_add(t, lg_str_eqz(role, "user") ? LG_ROLE_USER : LG_ROLE_ASSISTANT, lg_json_str(content),
                         lg_json_is(thought, LG_JSON_STRING) ? lg_json_str(thought) : (lg_str){0}, err);
        if (st == LG_OK && t->msg[t->n_msg - 1].role == LG_ROLE_ASSISTANT && stopped.n > 0) {
            t->msg[t->n_msg - 1].stopped = true;
            t->msg[t->n_msg - 1].open_thought = lg_str_eqz(stopped, "thinking");
        }
    }
    lg_json_free(doc);
    return st;
}

lg_status lg_chat_load(lg_talk *t, const char *path, lg_err *err)
{
    lg_talk old = *t;
    char *text = NULL;
    size_t n = 0;
    int line_no = 0;
    lg_status st;

    LG_TRY(lg_read_all(path, FILE_MAX, &text, &n, err));
    t->system = NULL;
    t->msg = NULL;
    t->n_msg = t->cap_msg = 0;
    st = n > 0 ? LG_OK : LG_FAIL(err, LG_E_INPUT, "not a saved chat: the file is empty");
    for (size_t at = 0; st == LG_OK && at < n;) {
        size_t nl = lg_str_find((lg_str){text, n}, LG_STR("\n"), at);
        lg_str line = {text + at, (nl == SIZE_MAX ? n : nl) - at};

        at = nl == SIZE_MAX ? n : nl + 1;
        line_no++;
        st = line_no == 1 ? read_header(t, line, err) : line.n > 0 ? read_message(t, line, err) : LG_OK;
    }
    free(text);
    if (st != LG_OK) {
        (void)lg_err_subject(err, "%s:%d", path, line_no);
        lg_talk_clear(t);
        free(t->msg);
        free(t->system);
        *t = old;
        return st;
    }
    while (old.n_msg > 0)
        lg_talk_pop(&old);
    free(old.msg);
    free(old.system);
    return LG_OK;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

lg_status lg_chat_list(lg_buf *out, lg_err *err)
{
    char dir[LG_PATH_BYTES] = "";
    char *names[NAMES_MAX];
    size_t n = 0;
    struct dirent *e;
    DIR *d;

    if (!state_dir("/chats", dir) || !(d = opendir(dir)))
        return LG_FAIL(err, LG_E_IO, "no folder for saved chats: %s", dir[0] ? dir : "HOME is not set");
    while (n < NAMES_MAX && (e = readdir(d)) != NULL) {
        size_t len = strlen(e->d_name);

        if (len <= 6 || strcmp(e->d_name + len - 6, ".jsonl") != 0 || e->d_name[0] == '.')
            continue;
        names[n] = strndup(e->d_name, len - 6);
        if (names[n])
            n++;
    }
    (void)closedir(d);
    qsort(names, n, sizeof names[0], by_name);
    for (size_t i = 0; i < n; i++) {
        (void)lg_buf_addf(out, "%s\n", names[i]);
        free(names[i]);
    }
    return LG_OK;
}
