/*
 * unit/test_file: maps, whole reads, and above all atomic replacement: whatever fails, the old file stays
 * whole and no temporary file is left behind.
 */
#include "check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "fault.h"

static char dir[] = "/tmp/lagoon-test-XXXXXX";

static const char *in_dir(const char *name)
{
    static char path[4][512];
    static int turn;
    char *p = path[turn++ % 4];

    (void)snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static void assert_content(const char *path, const char *want)
{
    char *p = NULL;
    size_t n = 0;

    assert_int_equal(lg_read_all(path, 1 << 20, &p, &n, NULL), LG_OK);
    assert_int_equal(n, strlen(want));
    assert_string_equal(p, want); // a NUL stands behind
    free(p);
}

static int n_entries(void)
{
    int n = 0;
    struct dirent *e;
    DIR *d = opendir(dir);

    assert_non_null(d);
    while ((e = readdir(d)) != NULL)
        n += e->d_name[0] != '.';
    (void)closedir(d);
    return n;
}

static int make_dir(void **state)
{
    (void)state;
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    struct dirent *e;
    DIR *d = opendir(dir);

    (void)state;
    while (d && (e = readdir(d)) != NULL)
        (void)remove(in_dir(e->d_name));
    if (d)
        (void)closedir(d);
    return rmdir(dir);
}

static void map(void **state)
{
    lg_err err = {0};
    lg_map m;

    (void)state;
    put(in_dir("f"), "hello");
    assert_int_equal(lg_map_open(in_dir("f"), &m, &err), LG_OK);
    assert_int_equal(m.n, 5);
    assert_memory_equal(m.p, "hello", 5);
    assert_true(m.ino != 0 && m.mtime_ns > 0);
    lg_map_close(&m);
    assert_null(m.p);
    put(in_dir("f"), "");
    assert_int_equal(lg_map_open(in_dir("f"), &m, &err), LG_OK);
    assert_null(m.p);
    assert_int_equal(m.n, 0);
    lg_map_close(&m);
    assert_int_equal(unlink(in_dir("f")), 0);
}

static void map_refuses(void **state)
{
    lg_map m = {.n = 77};
    lg_err err = {0};

    (void)state;
    assert_int_equal(lg_map_open(in_dir("none"), &m, &err), LG_E_IO);
    assert_string_equal(err.subject, in_dir("none"));
    assert_non_null(strstr(err.msg, "No such file"));
    assert_int_equal(lg_map_open(dir, &m, NULL), LG_E_INPUT);
    assert_int_equal(lg_map_open("/dev/null", &m, NULL), LG_E_INPUT);
    assert_int_equal(mkfifo(in_dir("fifo"), 0600), 0);
    assert_int_equal(lg_map_open(in_dir("fifo"), &m, NULL), LG_E_INPUT); // and does not wait for a writer
    assert_int_equal(unlink(in_dir("fifo")), 0);
    assert_int_equal(m.n, 77);
}

static lg_status write_file(const char *path, const char *text, size_t times, lg_err *err)
{
    lg_out *o;

    LG_TRY(lg_out_open(path, &o, err));
    for (size_t i = 0; i < times; i++)
        lg_out_write(o, text, strlen(text));
    assert_int_equal(lg_out_pos(o), times * strlen(text));
    return lg_out_commit(o, err);
}

static void replaces(void **state)
{
    struct stat sb;

    (void)state;
    assert_int_equal(write_file(in_dir("f"), "one", 1, NULL), LG_OK);
    assert_content(in_dir("f"), "one");
    assert_int_equal(chmod(in_dir("f"), 0640), 0);
    assert_int_equal(write_file(in_dir("f"), "two", 2, NULL), LG_OK);
    assert_content(in_dir("f"), "twotwo");
    assert_int_equal(stat(in_dir("f"), &sb), 0);
    assert_int_equal(sb.st_mode & 07777, 0640);
    // a link is followed, not replaced
    assert_int_equal(symlink("f", in_dir("link")), 0);
    assert_int_equal(write_file(in_dir("link"), "three", 1, NULL), LG_OK);
    assert_content(in_dir("f"), "three");
    assert_int_equal(lstat(in_dir("link"), &sb), 0);
    assert_true(S_ISLNK(sb.st_mode));
    // a device is written in place
    assert_int_equal(write_file("/dev/null", "four", 1, NULL), LG_OK);
    assert_int_equal(stat("/dev/null", &sb), 0);
    assert_true(S_ISCHR(sb.st_mode));
    assert_int_equal(n_entries(), 2);
    assert_int_equal(unlink(in_dir("link")), 0);
    assert_int_equal(unlink(in_dir("f")), 0);
}

static void large_and_small_writes(void **state)
{
    enum { N = 7000000 };
    unsigned char *data = malloc(N);
    lg_out *o;
    lg_map m;

    (void)state;
    assert_non_null(data);
    for (size_t i = 0; i < N; i++)
        data[i] = (unsigned char)(i * 31 >> 3);
    assert_int_equal(lg_out_open(in_dir("big"), &o, NULL), LG_OK);
    for (size_t at = 0, step = 1; at < N;
         at += step, step = step * 3 % 3000017) // around the size of the buffer
        lg_out_write(o, data + at, step < N - at ? step : N - at);
    assert_int_equal(lg_out_pos(o), N);
    assert_int_equal(lg_out_commit(o, NULL), LG_OK);
    assert_int_equal(lg_map_open(in_dir("big"), &m, NULL), LG_OK);
    assert_int_equal(m.n, N);
    assert_memory_equal(m.p, data, N);
    lg_map_close(&m);
    free(data);
    assert_int_equal(unlink(in_dir("big")), 0);
}

static void abort_leaves_the_old(void **state)
{
    lg_out *o;

    (void)state;
    put(in_dir("f"), "old");
    assert_int_equal(lg_out_open(in_dir("f"), &o, NULL), LG_OK);
    lg_out_write(o, "new", 3);
    lg_out_abort(o);
    lg_out_abort(NULL);
    assert_content(in_dir("f"), "old");
    assert_int_equal(n_entries(), 1);
}

static void refuses_targets(void **state)
{
    lg_err err = {0};
    lg_out *o = NULL;

    (void)state;
    assert_int_equal(lg_out_open(dir, &o, &err), LG_E_INPUT);
    assert_string_equal(err.subject, dir);
    assert_int_equal(lg_out_open(in_dir("no/such/folder"), &o, NULL), LG_E_IO);
    assert_int_equal(lg_out_open("", &o, NULL), LG_E_INPUT);
    assert_null(o);
    assert_int_equal(n_entries(), 1);
}

// Each allocation, write, sync and rename fails once.
static void every_fault(void **state)
{
    static const fault_kind kinds[] = {FAULT_ALLOC, FAULT_WRITE, FAULT_FSYNC, FAULT_RENAME};
    char text[100001];

    (void)state;
    if (!LG_HAVE_FAULT)
        skip();
    memset(text, 'n', sizeof text - 1);
    text[sizeof text - 1] = 0;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        int failures = 0;
        for (long n = 1;; n++) {
            lg_err err = {0};
            fault_arm(kinds[k], n);
            lg_status st = write_file(in_dir("f"), text, 24, &err);
            long hit = fault_disarm();
            assert_int_equal(n_entries(), 1);
            if (!hit) {
                assert_int_equal(st, LG_OK);
                break;
            }
            if (st == LG_OK) // the folder's own sync: the file is in place, and safe
                continue;
            failures++;
            assert_int_equal(st, kinds[k] == FAULT_ALLOC ? LG_E_NOMEM : LG_E_IO);
            assert_string_equal(err.subject, in_dir("f"));
            assert_content(in_dir("f"), "old");
        }
        assert_true(failures > 0);
        if (kinds[k] == FAULT_WRITE)
            assert_int_equal(failures, 2); // pieces of 2 MiB, which Linux keeps in large pages
        put(in_dir("f"), "old");
    }
}

// A disk that is full for real: the size limit of files, in a child because it cannot be lifted again.
static void full_disk(void **state)
{
    int status;
    pid_t child = fork();

    (void)state;
    if (child == 0) {
        struct rlimit limit = {300000, 300000};
        lg_err err = {0};
        lg_out *o;
        (void)signal(SIGXFSZ, SIG_IGN);
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0 || lg_out_open(in_dir("f"), &o, NULL) != LG_OK)
            _exit(2);
        for (int i = 0; i < 100; i++) {
            char text[30000] = {0};
            lg_out_write(o, text, sizeof text);
        }
        if (!lg_out_failed(o) || lg_out_commit(o, &err) != LG_E_IO || !strstr(err.msg, "cannot write"))
            _exit(3);
        _exit(0);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_content(in_dir("f"), "old");
    assert_int_equal(n_entries(), 1);
}

static void full_device(void **state)
{
    lg_err err = {0};

    (void)state;
    if (access("/dev/full", W_OK) != 0)
        skip();
    assert_int_equal(write_file("/dev/full", "x", 1, &err), LG_E_IO);
    assert_line(&err, "/dev/full: cannot write: No space left on device");
}

static void read_all(void **state)
{
    lg_err err = {0};
    char *p = NULL;
    size_t n = 7;

    (void)state;
    assert_int_equal(lg_read_all(in_dir("f"), 3, &p, &n, &err), LG_OK); // exactly the limit
    assert_string_equal(p, "old");
    free(p);
    p = NULL;
    assert_int_equal(lg_read_all(in_dir("f"), 2, &p, &n, &err), LG_E_LIMIT);
    assert_string_equal(err.msg, "has 3 bytes; the limit is 2");
    assert_int_equal(lg_read_all(dir, 100, &p, &n, NULL), LG_E_IO);
    assert_int_equal(lg_read_all(in_dir("none"), 100, &p, &n, NULL), LG_E_IO);
    assert_null(p);
    assert_int_equal(n, 3);
    if (access("/dev/zero", R_OK) == 0)
        assert_int_equal(lg_read_all("/dev/zero", 100000, &p, &n, NULL), LG_E_LIMIT);
    assert_null(p);
}

// Standard input from a pipe whose writer comes in pieces.
static void read_stdin(void **state)
{
    enum { N = 300000 };
    int fds[2], status, saved = dup(0);
    char *p = NULL;
    size_t n = 0;

    (void)state;
    assert_true(saved >= 0);
    assert_int_equal(pipe(fds), 0);
    pid_t child = fork();
    if (child == 0) {
        (void)close(fds[0]);
        for (int i = 0; i < N / 1000; i++) {
            char text[1000];
            memset(text, 'a' + i % 26, sizeof text);
            if (write(fds[1], text, sizeof text) != (ssize_t)sizeof text)
                _exit(1);
        }
        _exit(0);
    }
    assert_true(child > 0);
    (void)close(fds[1]);
    assert_int_equal(dup2(fds[0], 0), 0);
    (void)close(fds[0]);
    lg_status st = lg_read_all("-", 1 << 20, &p, &n, NULL);
    assert_int_equal(dup2(saved, 0), 0);
    (void)close(saved);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(st, LG_OK);
    assert_int_equal(n, N);
    assert_int_equal(p[N - 1], 'a' + (N / 1000 - 1) % 26);
    free(p);
}

static void read_faults(void **state)
{
    (void)state;
    if (!LG_HAVE_FAULT)
        skip();
    for (int k = 0; k < 2; k++) {
        fault_kind kind = k ? FAULT_READ : FAULT_ALLOC;
        for (long n = 1;; n++) {
            char *p = NULL;
            size_t len = 0;
            fault_arm(kind, n);
            lg_status st = lg_read_all(in_dir("f"), 100, &p, &len, NULL);
            if (!fault_disarm()) {
                assert_int_equal(st, LG_OK);
                free(p);
                assert_true(n > 1);
                break;
            }
            if (st == LG_OK) { // the size hint is only a hint
                free(p);
                continue;
            }
            assert_int_equal(st, k ? LG_E_IO : LG_E_NOMEM);
            assert_null(p);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(map),
        cmocka_unit_test(map_refuses),
        cmocka_unit_test(replaces),
        cmocka_unit_test(large_and_small_writes),
        cmocka_unit_test(abort_leaves_the_old), // the rest works on its "old"
        cmocka_unit_test(refuses_targets),
        cmocka_unit_test(every_fault),
        cmocka_unit_test(full_disk),
        cmocka_unit_test(full_device),
        cmocka_unit_test(read_all),
        cmocka_unit_test(read_stdin),
        cmocka_unit_test(read_faults),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
