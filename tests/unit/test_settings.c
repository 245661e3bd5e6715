/*
 * unit/test_settings: precedence, every way to spell a flag, the file with all its traps, exact lines of
 * errors and warnings, help and the annotated file, and memory that runs out.
 */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/settings.h"
#include "fault.h"
#include "support/scratch.h"

static char home[] = "/tmp/lagoon-test-XXXXXX";
static char conf[256];

typedef struct own {
    bool json;
    int64_t n;
    double share;
    const char *prompt;
    size_t room;
    double wait;
    lg_list stop;
} own;

static const lg_option options[] = {
    LG_OPTION(own, json, "json", 'j', bool, "", NULL, NULL, "print JSON"),
    LG_OPTION(own, n, "max-tokens", 'n', int, "N", "5", "0..100", "most tokens"),
    LG_OPTION(own, share, "share", 0, num, "P", "0.5", "0..1", "a share"),
    LG_OPTION(own, prompt, "prompt", 'p', str, "TEXT", NULL, NULL, "the prompt"),
    LG_OPTION(own, room, "room", 0, size, "SIZE", "1MB", NULL, "a size"),
    LG_OPTION(own, wait, "wait", 0, secs, "TIME", "2s", "0..60", "a time"),
    LG_OPTION(own, stop, "stop", 0, list, "S", NULL, NULL, "stop text"),
    LG_OPTION_END,
};
static const lg_setting_id ids[] = {LG_SET_model, LG_SET_draft, LG_SET_device, LG_SET_ctx, LG_SET_threads,
                                    LG_SET_kv_type, LG_SET_thinking, LG_SET_temperature, LG_SET_cache_ram,
                                    LG_SET_stop_grace, LG_SET_api_key, LG_SET_dialects, LG_SET_allowed_hosts,
                                    LG_SET_END};
static const lg_command command = {"test",  "test WORD [options]", "Tests.", ids, options, 0, 2, "WORD",
                                   "Notes."};

typedef struct loaded {
    lg_settings s;
    lg_words w;
    own o;
    lg_err err;
    lg_status st;
} loaded;

// Loads with the words given, up to NULL.
static void load(loaded *l, ...)
{
    char *argv[32] = {(char *)(uintptr_t) "test"};
    int argc = 1;
    va_list ap;

    va_start(ap, l);
    for (char *w; (w = va_arg(ap, char *)) != NULL;)
        argv[argc++] = w;
    va_end(ap);
    *l = (loaded){.o = {.prompt = "unset"}};
    l->st = lg_settings_load(&l->s, &command, argc, argv, &l->o, &l->w, &l->err);
}

static void done(loaded *l)
{
    lg_settings_free(&l->s);
}

static void write_conf(const char *text)
{
    FILE *f = fopen(conf, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(conf, 0600), 0);
}

static int make_home(void **state)
{
    char dir[256];

    (void)state;
    scratch_no_settings();
    if (!mkdtemp(home))
        return -1;
    (void)snprintf(dir, sizeof dir, "%s/.config", home);
    (void)mkdir(dir, 0700);
    (void)snprintf(dir, sizeof dir, "%s/.config/lagoon", home);
    (void)mkdir(dir, 0700);
    (void)snprintf(conf, sizeof conf, "%s/.config/lagoon/lagoon.conf", home);
    (void)unsetenv("XDG_CONFIG_HOME");
    return setenv("HOME", home, 1);
}

static int remove_home(void **state)
{
    char dir[256];

    (void)state;
    (void)unlink(conf);
    (void)snprintf(dir, sizeof dir, "%s/.config/lagoon", home);
    (void)rmdir(dir);
    (void)snprintf(dir, sizeof dir, "%s/.config", home);
    (void)rmdir(dir);
    return rmdir(home);
}

// Each test starts without file and variables.
static int clear(void **state)
{
    (void)state;
    (void)unlink(conf);
    (void)unsetenv("LAGOON_CTX");
    (void)unsetenv("LAGOON_API_KEY");
    (void)unsetenv("LAGOON_CTXX");
    return 0;
}

static void defaults(void **state)
{
    loaded l;

    (void)state;
    load(&l, NULL);
    assert_int_equal(l.st, LG_OK);
    assert_string_equal(l.s.model, "s-2.1");
    assert_int_equal(l.s.ctx, 0);
    assert_true(l.s.thinking);
    assert_true(l.s.temperature == 1.0);
    assert_true(l.s.cache_ram == LG_SIZE_AUTO);
    assert_true(l.s.stop_grace == 60);
    assert_true(l.s.max_body_bytes == 64 << 20);
    assert_int_equal(l.s.api_key.n, 0);
    assert_int_equal(l.s.dialects.n, 1);
    assert_string_equal(l.s.conf_path, conf);
    assert_false(l.s.conf_read);
    assert_int_equal(l.o.n, 5);
    assert_true(l.o.share == 0.5 && l.o.room == 1000000 && l.o.wait == 2);
    assert_string_equal(l.o.prompt, "unset"); // an option without default is left alone
    assert_int_equal(l.w.n_warning + l.w.n_arg, 0);
    done(&l);
}

static void spellings(void **state)
{
    loaded l;

    (void)state;
    load(&l, "-c", "5", "--temp=0.5", "-n7", "--stop", "a", "-j", "--stop=b=c", "--no-think", "first",
         "--kv-type", "f32", "-p", "--help", "-", "--", NULL);
    assert_int_equal(l.st, LG_OK);
    assert_int_equal(l.s.ctx, 5);
    assert_true(l.s.temperature == 0.5);
    assert_int_equal(l.o.n, 7);
    assert_true(l.o.json);
    assert_false(l.s.thinking);
    assert_string_equal(l.s.kv_type, "f32");
    assert_int_equal(l.o.stop.n, 2);
    assert_string_equal(l.o.stop.v[0], "a");
    assert_string_equal(l.o.stop.v[1], "b=c");
    assert_string_equal(l.o.prompt, "--help"); // a value may look like a flag
    assert_false(l.w.help);
    assert_int_equal(l.w.n_arg, 2);
    assert_string_equal(l.w.arg[0], "first");
    assert_string_equal(l.w.arg[1], "-");
    done(&l);

    load(&l, "-jn", "9", "--mini", "--no-draft", "--json=no", "--thinking=off", "--room=1.5GB", "--wait",
         "500ms", "--", "-x", "--y", NULL);
    assert_int_equal(l.st, LG_OK);
    assert_int_equal(l.o.n, 9);
    assert_false(l.o.json);
    assert_false(l.s.thinking);
    assert_string_equal(l.s.model, "mini");
    assert_string_equal(l.s.draft, "none");
    assert_true(l.o.room == 1500000000 && l.o.wait == 0.5);
    assert_string_equal(l.w.arg[0], "-x");
    assert_string_equal(l.w.arg[1], "--y");
    done(&l);
}

static void precedence(void **state)
{
    loaded l;
    lg_buf b;

    (void)state;
    lg_buf_init(&b, 1000);
    write_conf("ctx = 1\napi_key = f1\napi_key = f2\n");
    load(&l, NULL);
    assert_int_equal(l.s.ctx, 1);
    assert_int_equal(l.s.api_key.n, 2);
    lg_setting_origin(&l.s, LG_SET_ctx, &b);
    assert_string_equal(lg_buf_z(&b), "lagoon.conf:1");
    done(&l);
    assert_int_equal(setenv("LAGOON_CTX", "2", 1), 0);
    assert_int_equal(setenv("LAGOON_API_KEY", "e", 1), 0);
    load(&l, NULL);
    assert_int_equal(l.s.ctx, 2);
    assert_int_equal(l.s.api_key.n, 1);
    assert_string_equal(l.s.api_key.v[0], "e");
    lg_buf_clear(&b);
    lg_setting_origin(&l.s, LG_SET_ctx, &b);
    assert_string_equal(lg_buf_z(&b), "LAGOON_CTX");
    done(&l);
    load(&l, "--ctx", "3", "--api-key=x", "--api-key=y", NULL);
    assert_int_equal(l.s.ctx, 3);
    assert_int_equal(l.s.api_key.n, 2);
    lg_buf_clear(&b);
    lg_setting_value(&l.s, LG_SET_api_key, &b);
    assert_string_equal(lg_buf_z(&b), "x, y");
    done(&l);
    assert_int_equal(setenv("LAGOON_CTX", "", 1), 0); // empty is unset
    load(&l, NULL);
    assert_int_equal(l.s.ctx, 1);
    done(&l);
    lg_buf_free(&b);
}

static void warnings(void **state)
{
    loaded l;

    (void)state;
    write_conf("\nctx = 131072\nkv_type = q8_0\ndraft = some.gguf\n");
    load(&l, "-c", "65536", "--kv-type", "q8_0", "--no-draft", NULL);
    assert_int_equal(l.st, LG_OK);
    assert_int_equal(l.w.n_warning, 2); // kv_type says the same
    for (int i = 0; i < 2; i++) {
        bool ctx = strstr(l.w.warning[i], "--ctx") != NULL;
        assert_string_equal(l.w.warning[i],
                            ctx ? "--ctx 65536 overrides ctx = 131072 of ~/.config/lagoon/lagoon.conf:2"
                                : "--no-draft overrides draft = some.gguf of ~/.config/lagoon/lagoon.conf:4");
    }
    done(&l);
    write_conf("dialects = openai\nallowed_hosts = a.example\napi_key = secret\n"
               "[client bob]\napi_key = other\n");
    load(&l, "--api-key", "third", "--dialects", "openai", "--allowed-hosts=b.example", NULL);
    assert_int_equal(l.st, LG_OK);
    assert_int_equal(l.s.api_key.n, 1);
    assert_int_equal(l.w.n_warning, 2); // dialects says the same; no key is shown
    for (int i = 0; i < 2; i++) {
        bool key = strstr(l.w.warning[i], "key") != NULL;
        assert_string_equal(
            l.w.warning[i],
            key ? "--api-key overrides api_key of ~/.config/lagoon/lagoon.conf:5"
                : "--allowed-hosts overrides allowed_hosts of ~/.config/lagoon/lagoon.conf:2");
    }
    done(&l);
    write_conf("api_key = secret\n");
    assert_int_equal(chmod(conf, 0644), 0);
    assert_int_equal(setenv("LAGOON_CTXX", "1", 1), 0);
    load(&l, NULL);
    assert_int_equal(l.w.n_warning, 2);
    assert_string_equal(
        l.w.warning[0],
        "~/.config/lagoon/lagoon.conf holds an API key and others can read it; run chmod 600, "
        "or use api_key_file");
    assert_string_equal(l.w.warning[1], "LAGOON_CTXX is set but is no setting; did you mean LAGOON_CTX?");
    done(&l);
}

static void refused_words(void **state)
{
    static const struct {
        const char *a, *b, *line;
    } cases[] = {
        {"--threds", "4", "unknown flag '--threds' of test; did you mean '--threads'?"},
        {"--kv_type", "f16", "unknown flag '--kv_type' of test; did you mean '--kv-type'?"},
        {"--completely-unknown", NULL,
         "unknown flag '--completely-unknown' of test; 'lagoon test --help' lists them"},
        // not taken by this one
        {"--port", "1", "unknown flag '--port' of test; 'lagoon test --help' lists them"},
        {"-q", NULL, "unknown flag '-q' of test; 'lagoon test --help' lists them"},
        {"--ctx", NULL, "--ctx needs a value: --ctx N"},
        {"-c", NULL, "-c needs a value: -c N"},
        {"--ctx=", NULL, "--ctx: '' is not a whole number from 0 to 16777216"},
        {"-cabc", NULL, "--ctx: 'abc' is not a whole number from 0 to 16777216"},
        {"--ctx", "-1", "--ctx: '-1' is not a whole number from 0 to 16777216"},
        {"--ctx", "99999999999999999999",
         "--ctx: '99999999999999999999' is not a whole number from 0 to 16777216"},
        {"-n", "101", "--max-tokens: '101' is not a whole number from 0 to 100"},
        {"--temp", "5.1", "--temp: '5.1' is not a number from 0 to 5"},
        {"--temp", "nan", "--temp: 'nan' is not a number from 0 to 5"},
        {"--kv-type", "f15", "--kv-type: 'f15' is none of f16, f32, q8_0"},
        {"--device", "cuda:", "--device: 'cuda:' is none of auto, cpu, cuda, cuda:N, metal"},
        {"--cache-ram", "1XB", "--cache-ram: '1XB' is not a size such as 24GB or 512MiB, or auto"},
        {"--room", "auto", "--room: 'auto' is not a size such as 24GB or 512MiB"},
        {"--wait", "61s", "--wait: '61s' is not a duration such as 90s, 5min or 2h, from 0 to 60 s"},
        {"--json=maybe", NULL, "--json: 'maybe' is not yes or no"},
        {"--no-json=no", NULL, "--no-json takes no value"},
        {"--mini=yes", NULL, "--mini takes no value"},
        {"--no-ctx", NULL, "unknown flag '--no-ctx' of test; 'lagoon test --help' lists them"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        loaded l;
        load(&l, cases[i].a, cases[i].b, NULL);
        assert_int_equal(l.st, LG_E_INPUT);
        assert_line(&l.err, cases[i].line);
        done(&l);
    }
    loaded l;
    load(&l, "a", "b", "c", NULL);
    assert_int_equal(l.st, LG_E_INPUT);
    assert_line(&l.err, "unexpected word 'c' after test; see 'lagoon test --help'");
    done(&l);
}

static void too_few_words(void **state)
{
    lg_command two = command;
    char *argv[] = {(char *)(uintptr_t) "test", (char *)(uintptr_t) "a", NULL};
    lg_settings s;
    lg_words w;
    lg_err err = {0};
    own o = {0};

    (void)state;
    two.min_args = 2;
    two.args_help = "IN OUT";
    assert_int_equal(lg_settings_load(&s, &two, 2, argv, &o, &w, &err), LG_E_INPUT);
    assert_line(&err, "test needs IN OUT; see 'lagoon test --help'");
    lg_settings_free(&s);
}

static void refused_variable(void **state)
{
    loaded l;

    (void)state;
    assert_int_equal(setenv("LAGOON_CTX", "many", 1), 0);
    load(&l, NULL);
    assert_int_equal(l.st, LG_E_INPUT);
    assert_line(&l.err, "LAGOON_CTX: 'many' is not a whole number from 0 to 16777216");
    done(&l);
}

static void file_forms(void **state)
{
    loaded l;

    (void)state;
    write_conf(
        "\xEF\xBB\xBF# comment\n; another\n\n  ctx = 7 ; remark\r\n\tkv_type: f32\n"
        "model=a b = c  \nport = 1\n"
        "api_key = one\napi_key =\n[client bob the builder]\n  api_key = two\n");
    load(&l, NULL);
    assert_int_equal(l.st, LG_OK);
    assert_true(l.s.conf_read);
    assert_int_equal(l.s.ctx, 7);
    assert_string_equal(l.s.kv_type, "f32");
    assert_string_equal(l.s.model, "a b = c");
    assert_int_equal(l.s.port, 1); // read although this command does not take it
    assert_int_equal(l.s.api_key.n, 2);
    assert_null(l.s.api_key.owner[0]);
    assert_string_equal(l.s.api_key.v[1], "two");
    assert_string_equal(l.s.api_key.owner[1], "bob the builder");
    assert_int_equal(l.s.from[LG_SET_model].line, 6);
    done(&l);
}

static void refused_files(void **state)
{
    static const struct {
        const char *text, *line;
    } cases[] = {
        {"kv_typ = f16\n", "lagoon.conf:1: unknown setting 'kv_typ'; did you mean 'kv_type'?"},
        {"\n\n\n\n\n\n\n\n\n\n\nzzzzzzzzz = 1\n",
         "lagoon.conf:12: unknown setting 'zzzzzzzzz'; 'lagoon --init' writes a file with all of them"},
        {"ctx = 1\nctx = 1\n", "lagoon.conf:2: 'ctx' was set before, in line 1"},
        {"ctx = 1\nfoo bar\n", "lagoon.conf:2: is not of the form 'key = value'"},
        {"foo bar\nctx = z\n", "lagoon.conf:1: is not of the form 'key = value'"},
        {"ctx = 70000000\n", "lagoon.conf:1: ctx: '70000000' is not a whole number from 0 to 16777216"},
        {"ui = perhaps\n", "lagoon.conf:1: ui: 'perhaps' is not yes or no"},
        {"dialects = grpc\n",
         "lagoon.conf:1: dialects: 'grpc' is none of all, openai, responses, anthropic, llama, native"},
        {"ctx = 1\n\xFF\n", "lagoon.conf:2: is not UTF-8"},
        {"[server]\nport = 1\n", "lagoon.conf:1: unknown section '[server]'; only [client NAME] is one"},
        {"[client ]\n", "lagoon.conf:1: unknown section '[client ]'; only [client NAME] is one"},
        {"[client x\n", "lagoon.conf:1: unknown section '[client x'; only [client NAME] is one"},
        {"[client x]\nctx = 1\n",
         "lagoon.conf:2: 'ctx' inside [client x]; only api_key may stand there, settings come first"},
    };
    char text[400] = "ctx = 1\n#";

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        loaded l;
        write_conf(cases[i].text);
        load(&l, NULL);
        assert_int_equal(l.st, LG_E_INPUT);
        assert_line(&l.err, cases[i].line);
        done(&l);
        load(&l, "--help", NULL); // help works beside a broken file
        assert_int_equal(l.st, LG_OK);
        assert_true(l.w.help);
        done(&l);
    }
    loaded l;
    memset(text + 9, 'x', 300); // a long comment is fine, a long line is not
    (void)snprintf(text + 309, sizeof text - 309, "\n");
    write_conf(text);
    load(&l, NULL);
    assert_int_equal(l.st, LG_OK);
    done(&l);
    text[8] = 'm';
    write_conf(text);
    load(&l, NULL);
    assert_int_equal(l.st, LG_E_INPUT);
    assert_line(&l.err, "lagoon.conf:2: has 301 bytes; a line may have 199");
    done(&l);
}

static void odd_files(void **state)
{
    loaded l;
    char *big = malloc((1 << 20) + 2);

    (void)state;
    assert_non_null(big);
    memset(big, '\n', (1 << 20) + 1);
    big[(1 << 20) + 1] = 0;
    write_conf(big);
    free(big);
    load(&l, NULL);
    assert_int_equal(l.st, LG_E_LIMIT);
    assert_string_equal(l.err.subject, conf);
    done(&l);
    assert_int_equal(unlink(conf), 0);
    assert_int_equal(mkdir(conf, 0700), 0);
    load(&l, NULL);
    assert_int_equal(l.st, LG_E_IO);
    done(&l);
    assert_int_equal(rmdir(conf), 0);
    assert_int_equal(setenv("XDG_CONFIG_HOME", "/nonexistent", 1), 0);
    load(&l, NULL);
    assert_string_equal(l.s.conf_path, "/nonexistent/lagoon/lagoon.conf");
    assert_int_equal(l.st, LG_OK);
    done(&l);
    assert_int_equal(setenv("XDG_CONFIG_HOME", "relative", 1), 0); // to be ignored
    load(&l, NULL);
    assert_string_equal(l.s.conf_path, conf);
    done(&l);
    assert_int_equal(unsetenv("XDG_CONFIG_HOME"), 0);
    assert_int_equal(unsetenv("HOME"), 0);
    load(&l, NULL);
    assert_int_equal(l.st, LG_OK);
    assert_null(l.s.conf_path);
    done(&l);
    assert_int_equal(setenv("HOME", home, 1), 0);
}

static void help_and_version(void **state)
{
    loaded l;
    lg_buf b;

    (void)state;
    load(&l, "-jh", "--unknown-after-it", NULL);
    assert_int_equal(l.st, LG_OK);
    assert_true(l.w.help);
    done(&l);
    load(&l, "--version", NULL);
    assert_true(l.st == LG_OK && l.w.version && !l.w.help);
    done(&l);
    lg_buf_init(&b, 1 << 16);
    lg_settings_help(&command, &b);
    const char *text = lg_buf_z(&b);
    assert_non_null(text);
    static const char *const parts[] = {
        "usage: lagoon test WORD [options]\n\nTests.\n\nOptions:\n",
        "  -j, --json                  print JSON\n",
        "  -n, --max-tokens N          most tokens (default 5)\n",
        "  -h, --help                  print this and end\n",
        "\nDevice and memory:\n",
        "      --kv-type TYPE          element type of the KV cache (f16, f32, q8_0; default f16)\n",
        "      --[no-]thinking, --[no-]think\n",
        "      --mini                  the same as --model mini",
        "\n\nNotes.\n",
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        assert_non_null(strstr(text, parts[i]));
    assert_null(strstr(text, "--port"));
    assert_null(strstr(text, "Logs:"));
    for (const char *line = text; line; line = strchr(line + 1, '\n'))
        assert_true(strcspn(line + 1, "\n") <= 100);
    lg_buf_free(&b);
}

static void annotated_file(void **state)
{
    loaded with, without;
    char path[256];
    lg_err err = {0};
    char *text = NULL;
    size_t n = 0;
    FILE *f;

    (void)state;
    load(&without, NULL);
    assert_int_equal(lg_settings_init(NULL, path, sizeof path, &err), LG_OK);
    assert_string_equal(path, conf);
    assert_int_equal(lg_settings_init(NULL, path, sizeof path, &err), LG_E_INPUT);
    assert_line(
        &err,
        "~/.config/lagoon/lagoon.conf: exists and is left as it is; 'lagoon --init --stdout' prints a fresh one");
    load(&with, NULL); // as written, it changes nothing
    assert_int_equal(with.st, LG_OK);
    assert_true(with.s.conf_read);
    assert_int_equal(with.s.from[LG_SET_ctx].source, LG_FROM_DEFAULT);
    done(&with);

    // with every line taken in use, it still says the defaults
    f = fopen(conf, "rb");
    assert_non_null(f);
    text = calloc(1, 1 << 20);
    assert_non_null(text);
    n = fread(text, 1, (1 << 20) - 1, f);
    (void)fclose(f);
    assert_true(n > 1000);
    for (char *p = text; (p = strstr(p, "\n#")) != NULL; p++)
        if (p[2] >= 'a' && p[2] <= 'z')
            p[1] = ' ';
    write_conf(text);
    free(text);
    load(&with, NULL);
    assert_int_equal(with.st, LG_OK);
    assert_int_equal(with.w.n_warning, 0);
    for (int i = 0; i < LG_N_SETTINGS; i++) {
        lg_buf a, b;
        lg_buf_init(&a, 1000);
        lg_buf_init(&b, 1000);
        lg_setting_value(&with.s, (lg_setting_id)i, &a);
        lg_setting_value(&without.s, (lg_setting_id)i, &b);
        assert_int_equal(with.s.from[i].source, LG_FROM_FILE);
        assert_true(lg_str_eq(lg_buf_str(&a), lg_buf_str(&b)));
        lg_buf_free(&a);
        lg_buf_free(&b);
    }
    done(&with);
    done(&without);
}

static void values(void **state)
{
    static const struct {
        const char *text;
        bool ok;
        size_t bytes;
    } sizes[] = {{"0", true, 0},           {"12", true, 12 << 20}, {"12B", true, 12},
                 {"2KiB", true, 2048},     {"2kB", true, 2000},    {"1.5GB", true, 1500000000},
                 {"1G", true, 1 << 30},    {"", false, 0},         {"GB", false, 0},
                 {"-1", false, 0},         {"1 GB", false, 0},     {"1e3", false, 0},
                 {"99999999TB", false, 0}, {"1.2.3MB", false, 0},  {"1GBx", false, 0}};
    static const struct {
        const char *text;
        bool ok;
        double secs;
    } times[] = {{"5", true, 5},     {"500ms", true, 0.5}, {"1.5min", true, 90},
                 {"2h", true, 7200}, {"1d", true, 86400},  {"", false, 0},
                 {"min", false, 0},  {"5x", false, 0},     {"-5", false, 0}};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        size_t v = 7;
        assert_int_equal(lg_parse_size(lg_str_of(sizes[i].text), 1 << 20, &v), sizes[i].ok);
        assert_true(v == (sizes[i].ok ? sizes[i].bytes : 7));
    }
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
        double v = 7;
        assert_int_equal(lg_parse_secs(lg_str_of(times[i].text), &v), times[i].ok);
        assert_true(v == (times[i].ok ? times[i].secs : 7));
    }
}

static void nearest(void **state)
{
    static const char *const words[] = {"serve", "chat", "generate", "top"};
    char longest[100];

    (void)state;
    assert_string_equal(lg_nearest("sevre", words, 4), "serve");
    assert_string_equal(lg_nearest("generat", words, 4), "generate");
    assert_string_equal(lg_nearest("generte", words, 4), "generate");
    assert_null(lg_nearest("zzzz", words, 4));
    assert_null(lg_nearest("serve", words, 0));
    memset(longest, 's', sizeof longest);
    longest[sizeof longest - 1] = 0;
    assert_null(lg_nearest(longest, words, 4));
}

static void every_allocation(void **state)
{
    (void)state;
    if (!LG_HAVE_FAULT)
        skip();
    write_conf("ctx = 1\napi_key = a\n");
    for (long n = 1;; n++) {
        loaded l;
        fault_arm(FAULT_ALLOC, n);
        load(&l, "--ctx", "2", "--stop", "x", "word", NULL);
        long hit = fault_disarm();
        if (hit) {
            assert_true(l.st == LG_E_NOMEM || l.st == LG_E_LIMIT || (l.st == LG_OK && l.w.n_warning == 1));
            assert_true(l.st == LG_OK || l.err.msg[0]);
        } else {
            assert_int_equal(l.st, LG_OK);
        }
        done(&l);
        if (!hit) {
            assert_true(n > 2);
            break;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(defaults, clear),         cmocka_unit_test_setup(spellings, clear),
        cmocka_unit_test_setup(precedence, clear),       cmocka_unit_test_setup(warnings, clear),
        cmocka_unit_test_setup(refused_words, clear),    cmocka_unit_test_setup(too_few_words, clear),
        cmocka_unit_test_setup(refused_variable, clear), cmocka_unit_test_setup(file_forms, clear),
        cmocka_unit_test_setup(refused_files, clear),    cmocka_unit_test_setup(odd_files, clear),
        cmocka_unit_test_setup(help_and_version, clear), cmocka_unit_test_setup(annotated_file, clear),
        cmocka_unit_test_setup(values, clear),           cmocka_unit_test_setup(nearest, clear),
        cmocka_unit_test_setup(every_allocation, clear),
    };

    return cmocka_run_group_tests(tests, make_home, remove_home);
}
