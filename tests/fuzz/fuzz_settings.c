/*
 * fuzz/fuzz_settings: the input is a command line (up to the first empty line, a word a line) and a
 * lagoon.conf behind it. Whatever they say, loading succeeds or gives one clean line, and what it accepted
 * can be listed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/settings.h"
#include "support/scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

enum { WORDS_MAX = 32 };

typedef struct own {
    bool json;
    int64_t n;
    double share;
    const char *text;
    size_t size;
    lg_list stop;
} own;

static const lg_option options[] = {
    LG_OPTION(own, json, "json", 0, bool, "", NULL, NULL, "a bool"),
    LG_OPTION(own, n, "max-tokens", 'n', int, "N", "5", "-1..100", "an int"),
    LG_OPTION(own, share, "share", 's', num, "P", "0.5", "0..1", "a number"),
    LG_OPTION(own, text, "prompt", 'p', str, "TEXT", "", NULL, "a text"),
    LG_OPTION(own, size, "room", 0, size, "SIZE", "1MB", "auto", "a size"),
    LG_OPTION(own, stop, "stop", 0, list, "S", NULL, NULL, "a list"),
    LG_OPTION_END,
};

static lg_setting_id ids[LG_N_SETTINGS + 1];

static char home[] = "/tmp/lagoon-fuzz-XXXXXX";
static char folder[64], path[128];

static void remove_home(void)
{
    (void)unlink(path);
    (void)rmdir(folder);
    (void)rmdir(home);
}

// A configuration directory for this process, made once.
static void make_home(void)
{
    if (path[0])
        return;
    scratch_no_settings();
    LG_ASSERT(mkdtemp(home) != NULL);
    (void)snprintf(folder, sizeof folder, "%s/lagoon", home);
    (void)snprintf(path, sizeof path, "%s/lagoon.conf", folder);
    LG_ASSERT(mkdir(folder, 0700) == 0 && atexit(remove_home) == 0);
    LG_ASSERT(setenv("XDG_CONFIG_HOME", home, 1) == 0);
    for (int i = 0; i <= LG_N_SETTINGS; i++)
        ids[i] = (lg_setting_id)i;
}

static void write_conf(const char *text, size_t n)
{
    FILE *f = fopen(path, "wb");

    LG_ASSERT(f && fwrite(text, 1, n, f) == n && fclose(f) == 0);
}

// Cuts the leading lines of text into words, in place; returns what follows the empty line.
static char *split_words(char *text, char **word, int *n_words)
{
    while (*text && *text != '\n' && *n_words < WORDS_MAX) {
        char *end = strchr(text, '\n');
        word[(*n_words)++] = text;
        if (!end)
            return text + strlen(text);
        *end = 0;
        text = end + 1;
    }
    return *text == '\n' ? text + 1 : text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static char program[] = "test";
    char *word[WORDS_MAX + 2] = {program};
    char *text = malloc(n + 1);
    int n_words = 1;
    own o = {0};
    lg_settings s;
    lg_words rest;
    lg_err err = {0};
    lg_buf out;
    lg_command cmd = {"test", "test", "A test.", ids, options, 0, 2, "WORDS", NULL};

    LG_ASSERT(text != NULL);
    make_home();
    memcpy(text, data, n);
    text[n] = 0;
    const char *file = split_words(text, word, &n_words);
    write_conf(file, n - (size_t)(file - text));
    if (lg_settings_load(&s, &cmd, n_words, word, &o, &rest, &err) == LG_OK) {
        lg_buf_init(&out, 1 << 22);
        for (int i = 0; i < LG_N_SETTINGS; i++) {
            lg_setting_value(&s, (lg_setting_id)i, &out);
            lg_setting_origin(&s, (lg_setting_id)i, &out);
        }
        LG_ASSERT(!out.failed);
        LG_ASSERT(o.n >= -1 && o.n <= 100 && o.share >= 0 && o.share <= 1 && o.text);
        LG_ASSERT(s.port >= 0 && s.port <= 65535 && rest.n_arg <= 2);
        lg_buf_free(&out);
    } else {
        LG_ASSERT(err.msg[0] && !strchr(err.msg, '\n') && !strchr(err.msg, 27));
    }
    lg_settings_free(&s);
    free(text);
    return 0;
}
