/*
 * tests/grammar/suite: the official JSON Schema test suite (Debian: libtest-json-schema-acceptance-perl) as a
 * table: how many of its schemas are supported, how many are refused and why, and whether the verdicts agree.
 *
 * suite DIRECTORY TABLE [-v]. Skips (77) without the directory. A valid instance may be refused for its
 * spelling alone (order of members, 1.0 for an integer): then it is written otherwise, and counted as
 * `policy` when some spelling is accepted or none can be. What is accepted must be so however it is cut into
 * tokens. An invalid one that is accepted, in any spelling, is wrong; there must be none. The table is
 * compared with the recorded one as long as the suite has the same tests.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "feed.h"

enum { CODES = LG_GRAMMAR_TOO_COMPLEX + 1, SPELLINGS = 40, CUTS = 4, FILE_MAX = 4 << 20 };

typedef struct draft {
    const char *folder, *uri;
    int schemas, refused[CODES];
    int tests, agree, policy, wrong; /* of supported schemas */
} draft;

typedef struct suite {
    fd_world world;
    draft *d;
    bool verbose;
    const char *file;
} suite;

// A value compactly; `shuffle`: members in random order; `shorten`: numbers without an empty fraction.
static void spell(suite *s, const lg_json *j, bool shuffle, bool shorten, lg_buf *out)
{
    bool object = lg_json_is(j, LG_JSON_OBJECT);
    size_t n = lg_json_len(j), *order;
    int64_t whole;

    if (lg_json_is(j, LG_JSON_STRING)) {
        (void)lg_json_quote(lg_json_str(j), out);
    } else if (lg_json_is(j, LG_JSON_NUMBER)) {
        if (shorten && lg_json_i64(j, &whole))
            (void)lg_buf_addf(out, "%lld", (long long)whole);
        else
            (void)lg_buf_adds(out, lg_json_number_text(j));
    } else if (!object && !lg_json_is(j, LG_JSON_ARRAY)) {
        (void)lg_json_dump(j, out);
    } else {
        order = calloc(n + 1, sizeof *order);
        for (size_t i = 0; i < n; i++) {
            size_t k = shuffle && object ? fd_pick(&s->world, (uint32_t)i + 1) : i;
            order[i] = order[k];
            order[k] = i;
        }
        (void)lg_buf_addc(out, object ? '{' : '[');
        for (size_t i = 0; i < n; i++) {
            lg_str key;
            const lg_json *v = object ? lg_json_member(j, order[i], &key) : lg_json_at(j, i);
            if (i)
                (void)lg_buf_addc(out, ',');
            if (object) {
                (void)lg_json_quote(key, out);
                (void)lg_buf_addc(out, ':');
            }
            spell(s, v, shuffle, shorten, out);
        }
        (void)lg_buf_addc(out, object ? '}' : ']');
        free(order);
    }
}

static bool accepted_somehow(suite *s, lg_grammar *g, const lg_json *value, bool shorten, bool *at_once)
{
    lg_buf text;
    bool ok = false;

    lg_buf_init(&text, FILE_MAX);
    for (int i = 0; i < SPELLINGS && !ok; i++) {
        lg_buf_clear(&text);
        spell(s, value, i > 0, shorten && i > 0, &text);
        ok = fd_accepts(&s->world, g, lg_buf_str(&text));
        for (int k = 0; k < CUTS && ok; k++)
            if (!fd_accepts_cut(&s->world, g, lg_buf_str(&text))) {
                printf("WRONG: %s is refused when it is cut into other tokens\n", lg_buf_z(&text));
                s->d->wrong++;
            }
        if (i == 0)
            *at_once = ok;
    }
    lg_buf_free(&text);
    return ok;
}

static void say(const suite *s, const char *what, const lg_json *group, const lg_json *test)
{
    lg_str a = lg_json_str(lg_json_get(group, "description")),
           b = lg_json_str(lg_json_get(test, "description"));

    printf("%s %s/%s: %.*s: %.*s\n", what, s->d->folder, s->file, (int)a.n, a.p, (int)b.n, b.p);
}

static void run_group(suite *s, const lg_json *group)
{
    const lg_json *schema = lg_json_get(group, "schema"), *tests = lg_json_get(group, "tests");
    lg_grammar_error why = {0};
    lg_grammar *g = NULL;
    lg_err err = {0};
    lg_buf text;

    lg_buf_init(&text, FILE_MAX);
    if (lg_json_is(schema, LG_JSON_OBJECT) && !lg_json_get(schema, "$schema")) {
        (void)lg_buf_addf(&text, "{\"$schema\":\"%s\"%s", s->d->uri, lg_json_len(schema) ? "," : "");
        size_t at = text.n;
        spell(s, schema, false, false, &text);
        memmove(text.p + at, text.p + at + 1, text.n - at - 1); // its own brace
        text.n--;
    } else {
        spell(s, schema, false, false, &text);
    }
    s->d->schemas++;
    if (lg_grammar_schema(lg_buf_str(&text), NULL, &g, &why, &err) != LG_OK) {
        s->d->refused[why.code]++;
        if (s->verbose)
            printf("refused %s/%s: %s\n", s->d->folder, s->file, err.msg);
        tests = NULL;
    }
    for (size_t i = 0; i < lg_json_len(tests); i++) {
        const lg_json *test = lg_json_at(tests, i);
        bool valid = false, at_once = false, somehow;
        (void)lg_json_bool(lg_json_get(test, "valid"), &valid);
        somehow = accepted_somehow(s, g, lg_json_get(test, "data"), valid, &at_once);
        s->d->tests++;
        s->d->agree += valid ? at_once : !somehow;
        s->d->policy += valid && !at_once;
        s->d->wrong += !valid && somehow;
        if (!valid && somehow)
            say(s, "WRONG", group, test);
        else if (s->verbose && valid && !somehow)
            say(s, "never", group, test);
    }
    lg_grammar_destroy(g);
    lg_buf_free(&text);
}

static void run_file(suite *s, const char *path)
{
    lg_json_limits lim = {.max_bytes = FILE_MAX, .max_depth = 500, .repair = true};
    lg_json_doc *doc;
    lg_err err = {0};
    char *text;
    size_t n;

    if (lg_read_all(path, FILE_MAX, &text, &n, &err) != LG_OK ||
        lg_json_parse((lg_str){text, n}, &lim, &doc, &err) != LG_OK) {
        fprintf(stderr, "%s: %s\n", path, err.msg);
        exit(1);
    }
    for (size_t i = 0; i < lg_json_len(lg_json_root(doc)); i++)
        run_group(s, lg_json_at(lg_json_root(doc), i));
    lg_json_free(doc);
    free(text);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

// Every .json file of a folder and of those below it, in the order of their names.
static void run_folder(suite *s, const char *path)
{
    char *name[512], below[1024];
    struct dirent *e;
    size_t n = 0;
    DIR *d = opendir(path);

    if (!d)
        return;
    while ((e = readdir(d)) != NULL && n < sizeof name / sizeof *name)
        if (e->d_name[0] != '.')
            name[n++] = strdup(e->d_name);
    (void)closedir(d);
    qsort(name, n, sizeof *name, by_name);
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(below, sizeof below, "%s/%s", path, name[i]);
        s->file = name[i];
        // draft7/optional/content.json takes contentEncoding for an assertion; for us, as since 2019-09, it
        // is none
        if (strcmp(name[i], "content.json") != 0 || !strstr(path, "draft7")) {
            if (strstr(name[i], ".json"))
                run_file(s, below);
            else
                run_folder(s, below);
        }
        free(name[i]);
    }
}

static void table(const draft *d, size_t n, lg_buf *out)
{
    (void)lg_buf_addz(out, "draft         schemas supported refused    tests   agree  policy   wrong\n");
    for (size_t i = 0; i < n; i++) {
        int refused = 0;
        for (int k = 0; k < CODES; k++)
            refused += d[i].refused[k];
        (void)lg_buf_addf(out, "%-12s %8d %9d %7d %8d %7d %7d %7d\n", d[i].folder, d[i].schemas,
                          d[i].schemas - refused, refused, d[i].tests, d[i].agree, d[i].policy, d[i].wrong);
    }
    (void)lg_buf_addz(out, "\nrefused for");
    for (size_t i = 0; i < n; i++)
        (void)lg_buf_addf(out, " %12s", d[i].folder);
    for (int k = 1; k < CODES; k++) {
        bool any = false;
        for (size_t i = 0; i < n; i++)
            any |= d[i].refused[k] > 0;
        if (!any)
            continue;
        (void)lg_buf_addf(out, "\n%-20s", lg_grammar_code_name((lg_grammar_code)k));
        for (size_t i = 0; i < n; i++)
            (void)lg_buf_addf(out, " %5d", d[i].refused[k]);
    }
    (void)lg_buf_addc(out, '\n');
}

// Was the recorded table made of a suite with as many schemas?
static bool same_suite(const draft *d, size_t n, lg_str recorded)
{
    for (size_t i = 0; i < n; i++) {
        char line[64];
        (void)snprintf(line, sizeof line, "%-12s %8d ", d[i].folder, d[i].schemas);
        if (lg_str_find(recorded, lg_str_of(line), 0) == SIZE_MAX)
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    static draft drafts[] = {
        {.folder = "draft4", .uri = "http://json-schema.org/draft-04/schema#"},
        {.folder = "draft6", .uri = "http://json-schema.org/draft-06/schema#"},
        {.folder = "draft7", .uri = "http://json-schema.org/draft-07/schema#"},
        {.folder = "draft2019-09", .uri = "https://json-schema.org/draft/2019-09/schema"},
        {.folder = "draft2020-12", .uri = "https://json-schema.org/draft/2020-12/schema"}};
    enum { N = sizeof drafts / sizeof *drafts };
    suite s = {.verbose = argc > 3};
    char path[1024], *recorded = NULL;
    size_t n_recorded = 0;
    int wrong = 0, tests = 0;
    lg_err err = {0};
    lg_buf out;

    if (argc < 3)
        return 2;
    (void)snprintf(path, sizeof path, "%s/draft7", argv[1]);
    DIR *there = opendir(path);
    if (!there) {
        printf("skipped: no official tests (Debian: libtest-json-schema-acceptance-perl) in %s\n", argv[1]);
        return 77;
    }
    (void)closedir(there);
    fd_open(&s.world, VOCAB);
    for (int i = 0; i < N; i++) {
        s.d = &drafts[i];
        (void)snprintf(path, sizeof path, "%s/%s", argv[1], drafts[i].folder);
        run_folder(&s, path);
        wrong += drafts[i].wrong;
        tests += drafts[i].tests;
    }
    fd_close(&s.world);
    lg_buf_init(&out, 1 << 20);
    table(drafts, N, &out);
    (void)fwrite(out.p, 1, out.n, stdout);
    if (lg_read_all(argv[2], 1 << 20, &recorded, &n_recorded, &err) != LG_OK)
        printf("%s\n", err.msg);
    bool recorded_at_all = recorded != NULL, other = !same_suite(drafts, N, (lg_str){recorded, n_recorded}),
         same = lg_str_eq(lg_buf_str(&out), (lg_str){recorded, n_recorded});
    if (other)
        printf("not the suite of %s: nothing is compared\n", argv[2]);
    else if (!same)
        printf("the table differs from %s\n", argv[2]);
    free(recorded);
    lg_buf_free(&out);
    return wrong > 0 || tests == 0 || !recorded_at_all || !(same || other);
}
