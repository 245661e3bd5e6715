/*
 * server/http: see http.h. libmicrohttpd with a thread for each connection.
 *
 * A connection is in one phase at a time (reading headers, reading a body, busy, sending, idle); the watching
 * thread looks at the phase and at the time since something last happened in it. It ends a connection by
 * shutting its socket down, which wakes whoever waits on it. Time in which the process was stopped, or the
 * machine slept, is taken out of all of this: the watching thread notices by waking late.
 *
 * Surprise: a response cannot be queued in the middle of a body, and one sent while the client still writes
 * is lost in the reset that follows. So a refused body is read to its end and thrown away, up to DRAIN_MAX
 * bytes.
 */
#include "server/http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#if defined(__linux__)
#include <linux/tcp.h>
#else
#include <netinet/tcp.h>
#endif

#include "base/clock.h"
#include "base/cond.h"
#include "base/log.h"

#if !defined(MSG_NOSIGNAL)
#define MSG_NOSIGNAL 0 // SIGPIPE is ignored anyway
#endif

enum {
    POOL_BYTES = 192 << 10,     // of each connection: headers and one write buffer
    STACK_BYTES = 2 << 20,
    STREAM_BLOCK = 64 << 10,
    ARENA_BYTES = 1 << 20,      // headers of a request
    DRAIN_MAX = 256 << 20,
    BODIES = 8,                 // bodies of the largest size that may be held at the same time
    TICK_US = 1000000,          // between looks at all connections
    PAUSE_US = 5000000,         // later than that, this process or the machine was stopped
};

typedef enum phase { PHASE_HEAD, PHASE_BODY, PHASE_BUSY, PHASE_SEND, PHASE_IDLE } phase;

typedef struct lg_http_conn {
    struct lg_http_conn *prev, *next; // under lg_http.lock
    lg_http *h;
    int fd;
    bool half;            // the end of input was reported
    atomic_int refused;   // the status that the watching thread wrote, or 0
    atomic_int phase;     // of type phase
    atomic_ullong since;  // when it last got on, us
    unsigned long long acked; // the watching thread's: bytes that the peer took, and when that last changed
    uint64_t taken_us;
    bool ended;
} conn;

// One request on its way.
typedef struct exchange {
    lg_request rq;
    lg_response out;
    conn *c;
    lg_buf frame;         // of a stream: what next made
    size_t frame_at;
    size_t body_seen;
    bool refused;
    int status;
} exchange;

struct lg_http {
    struct MHD_Daemon *daemon;
    lg_http_params p;
    int port, listen_fd;
    pthread_mutex_t lock; // of the list
    conn *first;
    int n_conn, n_active;
    size_t body_bytes;    // held in bodies, under lock
    pthread_t watcher;
    pthread_cond_t wake;
    bool stop, watching;
};

static void set_phase(conn *c, phase p)
{
    atomic_store(&c->phase, (int)p);
    atomic_store(&c->since, lg_now_us());
}

static conn *conn_of(struct MHD_Connection *mc)
{
    const union MHD_ConnectionInfo *i = MHD_get_connection_info(mc, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return i ? i->socket_context : NULL;
}

// --- connections ---

static void connected(void *cls, struct MHD_Connection *mc, void **slot,
                      enum MHD_ConnectionNotificationCode what)
{
    lg_http *h = cls;
    conn *c = *slot;

    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *i = MHD_get_connection_info(mc, MHD_CONNECTION_INFO_CONNECTION_FD);
        int yes = 1;

        c = calloc(1, sizeof *c);
        if (!c)
            return; // the first request finds no context and is dropped
        c->h = h;
        c->fd = i ? i->connect_fd : -1;
        (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
        (void)setsockopt(c->fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
        set_phase(c, PHASE_HEAD);
        (void)pthread_mutex_lock(&h->lock);
        c->next = h->first;
        if (h->first)
            h->first->prev = c;
        h->first = c;
        h->n_conn++;
        (void)pthread_mutex_unlock(&h->lock);
        *slot = c;
    } else if (c) {
        (void)pthread_mutex_lock(&h->lock);
        if (c->prev)
            c->prev->next = c->next;
        else
            h->first = c->next;
        if (c->next)
            c->next->prev = c->prev;
        h->n_conn--;
        (void)pthread_mutex_unlock(&h->lock);
        free(c);
        *slot = NULL;
    }
}

static enum MHD_Result may_connect(void *cls, const struct sockaddr *addr, socklen_t n)
{
    lg_http *h = cls;
    bool room;

    (void)addr;
    (void)n;
    (void)pthread_mutex_lock(&h->lock);
    room = h->n_conn < h->p.max_connections;
    (void)pthread_mutex_unlock(&h->lock);
    return room ? MHD_YES : MHD_NO;
}

static void *first_line(void *cls, const char *uri, struct MHD_Connection *mc)
{
    conn *c = conn_of(mc);

    (void)cls;
    (void)uri;
    if (c)
        set_phase(c, PHASE_HEAD);
    return NULL;
}

lg_wait lg_http_wait(lg_request *rq, int fd, int ms)
{
    conn *c = rq->conn;
    struct pollfd p[2] = {{.fd = fd, .events = POLLIN}, {.fd = c ? c->fd : -1}};
    int n;

#if defined(POLLRDHUP)
    if (c && !c->half)
        p[1].events = POLLRDHUP;
#endif
    do
        n = poll(p, 2, ms);
    while (n < 0 && errno == EINTR);
    if (p[1].revents & (POLLERR | POLLHUP | POLLNVAL))
        return LG_WAIT_GONE;
#if defined(POLLRDHUP)
    if (p[1].revents & POLLRDHUP) {
        c->half = true;
        return LG_WAIT_HALF;
    }
#else
    char one;
    if (c && !c->half && recv(c->fd, &one, 1, MSG_PEEK | MSG_DONTWAIT) == 0) {
        c->half = true;
        return LG_WAIT_HALF;
    }
#endif
    return n > 0 && (p[0].revents & (POLLIN | POLLERR | POLLHUP)) ? LG_WAIT_WOKEN : LG_WAIT_TIME;
}

// --- a request ---

typedef struct header_copy {
    lg_request *rq;
    lg_header *to;
    bool full;
} header_copy;

static enum MHD_Result copy_header(void *cls, enum MHD_ValueKind kind, const char *name, const char *value)
{
    header_copy *c = cls;
    lg_request *rq = c->rq;
    size_t n = strlen(name), m = value ? strlen(value) : 0;

    (void)kind;
    rq->header_bytes += n + m + 4;
    c->to->name = (lg_str){lg_arena_dup(&rq->arena, name, n), n};
    c->to->value = (lg_str){lg_arena_dup(&rq->arena, value ? value : "", m), m};
    c->full = c->full || !c->to->name.p || !c->to->value.p;
    c->to++;
    return c->full ? MHD_NO : MHD_YES;
}

// Copies method, path and headers. False: out of memory.
static bool copy_head(lg_request *rq, struct MHD_Connection *mc, const char *method, const char *url)
{
    int n = MHD_get_connection_values(mc, MHD_HEADER_KIND, NULL, NULL);
    lg_header *h = LG_NEW_N(&rq->arena, lg_header, (size_t)(n > 0 ? n : 0));
    header_copy copy = {.rq = rq, .to = h};
    const char *m = lg_arena_dup(&rq->arena, method, strlen(method));
    const char *u = lg_arena_dup(&rq->arena, url, strlen(url));

    if (!h || !m || !u)
        return false;
    rq->method = lg_str_of(m);
    rq->target = rq->path = lg_str_of(u);
    rq->header_bytes = rq->method.n + rq->target.n + 12;
    (void)MHD_get_connection_values(mc, MHD_HEADER_KIND, copy_header, &copy);
    rq->header = h;
    rq->n_header = (size_t)(copy.to - h);
    return !copy.full;
}

static void exchange_free(exchange *x)
{
    lg_http *h = x->c->h;

    lg_http_body_done(&x->rq);
    if (x->out.stream.free)
        x->out.stream.free(x->out.stream.ctx);
    lg_buf_free(&x->out.body);
    lg_buf_free(&x->frame);
    lg_arena_free(&x->rq.arena);
    free(x);
    (void)pthread_mutex_lock(&h->lock);
    h->n_active--;
    (void)pthread_mutex_unlock(&h->lock);
}

static exchange *exchange_new(conn *c)
{
    exchange *x = calloc(1, sizeof *x);

    if (!x)
        return NULL;
    x->c = c;
    x->rq.conn = c;
    x->rq.start_us = lg_now_us();
    lg_arena_init(&x->rq.arena, ARENA_BYTES);
    lg_buf_init(&x->rq.body, c->h->p.max_body_bytes);
    lg_buf_init(&x->frame, (size_t)1 << 30);
    lg_response_init(&x->out);
    (void)pthread_mutex_lock(&c->h->lock);
    c->h->n_active++;
    (void)pthread_mutex_unlock(&c->h->lock);
    return x;
}

static void finished(void *cls, struct MHD_Connection *mc, void **slot, enum MHD_RequestTerminationCode why)
{
    lg_http *h = cls;
    exchange *x = *slot;

    (void)mc;
    (void)why;
    if (!x)
        return;
    *slot = NULL;
    set_phase(x->c, PHASE_IDLE);
    h->p.handler.done(h->p.handler.ctx, &x->rq, x->status ? x->status : atomic_load(&x->c->refused));
    exchange_free(x);
}

// --- responses ---

static ssize_t read_stream(void *cls, uint64_t pos, char *to, size_t max)
{
    exchange *x = cls;
    size_t n;

    (void)pos;
    if (x->frame_at == x->frame.n) {
        lg_stream_state state;

        lg_buf_clear(&x->frame);
        x->frame_at = 0;
        set_phase(x->c, PHASE_BUSY);
        state = x->out.stream.next(x->out.stream.ctx, &x->frame);
        set_phase(x->c, PHASE_SEND);
        if (state == LG_STREAM_BROKEN || x->frame.failed)
            return MHD_CONTENT_READER_END_WITH_ERROR;
        if (x->frame.n == 0)
            return MHD_CONTENT_READER_END_OF_STREAM;
    }
    n = x->frame.n - x->frame_at;
    if (n > max)
        n = max;
    memcpy(to, x->frame.p + x->frame_at, n);
    x->frame_at += n;
    return (ssize_t)n;
}

static struct MHD_Response *make_response(exchange *x)
{
    lg_response *r = &x->out;
    struct MHD_Response *m;

    if (r->stream.next)
        return MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, x, NULL);
    if (r->body.failed)
        return NULL;
    m = MHD_create_response_from_buffer(r->body.n, r->body.n ? r->body.p : (void *)(uintptr_t) "",
                                        r->body.n ? MHD_RESPMEM_MUST_FREE : MHD_RESPMEM_PERSISTENT);
    if (m && r->body.n) { // it is the library's now
        r->body.p = NULL;
        r->body.n = r->body.cap = 0;
    }
    return m;
}

static enum MHD_Result send_response(exchange *x, struct MHD_Connection *mc)
{
    lg_response *r = &x->out;
    struct MHD_Response *m;
    enum MHD_Result ok;

    LG_ASSERT(r->status != 0);
    set_phase(x->c, PHASE_SEND);
    m = make_response(x);
    if (!m)
        return MHD_NO;
    if (r->type)
        (void)MHD_add_response_header(m, "Content-Type", r->type);
    for (int i = 0; i < r->n_header; i++)
        (void)MHD_add_response_header(m, r->header[i].name, r->header[i].value);
    if (r->close)
        (void)MHD_add_response_header(m, "Connection", "close");
    else if (r->stream.next)
        (void)MHD_set_response_options(m, MHD_RF_SEND_KEEP_ALIVE_HEADER, MHD_RO_END);
    x->status = r->status;
    ok = MHD_queue_response(mc, (unsigned)r->status, m);
    MHD_destroy_response(m);
    return ok;
}

static void refuse(exchange *x, int status)
{
    lg_http *h = x->c->h;

    if (x->refused)
        return;
    x->refused = true;
    h->p.handler.refuse(h->p.handler.ctx, &x->rq, status, &x->out);
}

/* Straight onto the socket: for a connection whose thread cannot answer because it waits for bytes. On TLS
 * there is only the end. */
static void refuse_raw(conn *c, int status)
{
    lg_http *h = c->h;
    lg_response r;
    lg_buf text;

    lg_response_init(&r);
    lg_buf_init(&text, 4096);
    h->p.handler.refuse(h->p.handler.ctx, NULL, status, &r);
    (void)lg_buf_addf(&text,
                      "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: close\r\n",
                      status, MHD_get_reason_phrase_for((unsigned)status), r.type, r.body.n);
    for (int i = 0; i < r.n_header; i++)
        (void)lg_buf_addf(&text, "%s: %s\r\n", r.header[i].name, r.header[i].value);
    (void)lg_buf_addz(&text, "\r\n");
    (void)lg_buf_adds(&text, lg_buf_str(&r.body));
    atomic_store(&c->refused, status);
    if (!text.failed && !h->p.tls_cert) {
        ssize_t n = send(c->fd, text.p, text.n, MSG_DONTWAIT | MSG_NOSIGNAL);

        (void)n; // a slow client that cannot take this line does not get it
    }
    lg_buf_free(&text);
    lg_buf_free(&r.body);
}

// --- the body ---

static size_t declared_length(const lg_request *rq)
{
    int64_t n = 0;

    for (size_t i = 0; i < rq->n_header; i++)
        if (rq->header[i].name.n == 14 && strncasecmp(rq->header[i].name.p, "content-length", 14) == 0)
            (void)lg_str_i64(rq->header[i].value, &n);
    return n > 0 ? (size_t)n : 0;
}

static bool expects_continue(const lg_request *rq)
{
    for (size_t i = 0; i < rq->n_header; i++)
        if (rq->header[i].name.n == 6 && strncasecmp(rq->header[i].name.p, "expect", 6) == 0)
            return true;
    return false;
}

void lg_http_body_done(lg_request *rq)
{
    lg_http *h = rq->conn->h;

    (void)pthread_mutex_lock(&h->lock);
    h->body_bytes -= rq->body.cap;
    (void)pthread_mutex_unlock(&h->lock);
    lg_buf_free(&rq->body);
}

// False: the connection must end now.
static bool take_body(exchange *x, const char *p, size_t n)
{
    lg_http *h = x->c->h;
    size_t before = x->rq.body.cap;
    bool room;

    atomic_store(&x->c->since, lg_now_us());
    x->body_seen += n;
    if (x->refused) {
        if (x->body_seen <= DRAIN_MAX)
            return true;
        refuse_raw(x->c, x->out.status);
        return false;
    }
    if (x->body_seen > h->p.max_body_bytes) {
        lg_http_body_done(&x->rq);
        refuse(x, 413);
        return true;
    }
    if (!lg_buf_add(&x->rq.body, p, n)) {
        lg_http_body_done(&x->rq);
        refuse(x, 429);
        return true;
    }
    (void)pthread_mutex_lock(&h->lock);
    h->body_bytes += x->rq.body.cap - before;
    room = h->body_bytes / BODIES <= h->p.max_body_bytes;
    (void)pthread_mutex_unlock(&h->lock);
    if (!room) {
        lg_http_body_done(&x->rq);
        refuse(x, 429);
    }
    return true;
}

static enum MHD_Result on_headers(lg_http *h, struct MHD_Connection *mc, const char *method, const char *url,
                                  void **slot)
{
    conn *c = conn_of(mc);
    exchange *x = c ? exchange_new(c) : NULL;
    size_t length;

    if (!x)
        return MHD_NO;
    *slot = x;
    if (!copy_head(&x->rq, mc, method, url)) {
        refuse(x, 431);
    } else {
        h->p.handler.begin(h->p.handler.ctx, &x->rq, &x->out);
        x->refused = x->out.status != 0;
    }
    if (x->rq.header_bytes > h->p.max_header_bytes)
        refuse(x, 431);
    length = declared_length(&x->rq);
    if (length > h->p.max_body_bytes)
        refuse(x, 413);
    set_phase(c, PHASE_BODY);
    // nothing of the body is on its way yet, or more than we are willing to read
    if (x->refused && (length > DRAIN_MAX || expects_continue(&x->rq))) {
        x->out.close = true;
        return send_response(x, mc);
    }
    return MHD_YES;
}

static enum MHD_Result on_request(void *cls, struct MHD_Connection *mc, const char *url, const char *method,
                                  const char *version, const char *data, size_t *n, void **slot)
{
    lg_http *h = cls;
    exchange *x = *slot;

    (void)version;
    if (!x)
        return on_headers(h, mc, method, url, slot);
    if (*n > 0) {
        bool go_on = take_body(x, data, *n);

        *n = 0;
        return go_on ? MHD_YES : MHD_NO;
    }
    if (!x->refused) {
        set_phase(x->c, PHASE_BUSY);
        h->p.handler.handle(h->p.handler.ctx, &x->rq, &x->out);
    }
    if (x->out.status == 0) // the client is gone
        return MHD_NO;
    return send_response(x, mc);
}

// --- slow peers ---

/* Whether bytes of ours wait for the peer without one being taken, for at least `patience` seconds. The phase
 * does not tell: a stream to a peer that vanished goes on with keep-alives as long as the system takes them.
 */
static bool takes_nothing(conn *c, bool sending, uint64_t now, uint64_t idle_s, uint64_t patience)
{
#if defined(__linux__)
    struct tcp_info info = {0};
    socklen_t n = sizeof info;

    if (getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &n) == 0) {
        bool waiting = info.tcpi_unacked > 0 || info.tcpi_notsent_bytes > 0;

        if (!waiting || info.tcpi_bytes_acked != c->acked || c->taken_us == 0) {
            c->acked = info.tcpi_bytes_acked;
            c->taken_us = now;
        }
        return now - c->taken_us >= patience * 1000000;
    }
#endif
    return sending && idle_s >= patience;
}

static void look_at(lg_http *h, conn *c, uint64_t now)
{
    phase p = (phase)atomic_load(&c->phase);
    uint64_t since = atomic_load(&c->since), idle_s = now > since ? (now - since) / 1000000 : 0;

    if (c->ended)
        return;
    if (p != PHASE_SEND && p != PHASE_BUSY)
        c->taken_us = 0;
    switch (p) {
    case PHASE_HEAD:
    case PHASE_BODY:
        if (idle_s < (uint64_t)(p == PHASE_HEAD ? h->p.header_s : h->p.body_s))
            return;
        refuse_raw(c, 408);
        break;
    case PHASE_SEND:
    case PHASE_BUSY:
        if (!takes_nothing(c, p == PHASE_SEND, now, idle_s, (uint64_t)h->p.write_s))
            return;
        LG_INFO("http", "drop", "reason=client-takes-nothing");
        break;
    case PHASE_IDLE:
        if (idle_s < (uint64_t)h->p.idle_s)
            return;
        break;
    }
    c->ended = true;
    (void)shutdown(c->fd, SHUT_RDWR);
}

// Time in which this process did not run is no time in which a peer did nothing.
static void forgive(conn *c, uint64_t paused)
{
    atomic_fetch_add(&c->since, paused); // may pass the present, if something happened meanwhile
    if (c->taken_us > 0)
        c->taken_us += paused;
}

static void *watch(void *arg)
{
    lg_http *h = arg;
    uint64_t before = lg_now_us();

    (void)pthread_mutex_lock(&h->lock);
    while (!h->stop) {
        uint64_t now, paused;

        lg_cond_wait_ms(&h->wake, &h->lock, TICK_US / 1000);
        now = lg_now_us();
        paused = now - before >= PAUSE_US ? now - before - TICK_US : 0;
        before = now;
        for (conn *c = h->first; c && !h->stop; c = c->next) {
            if (paused > 0)
                forgive(c, paused);
            look_at(h, c, now);
        }
        (void)pthread_mutex_unlock(&h->lock);
        h->p.handler.tick(h->p.handler.ctx, paused);
        (void)pthread_mutex_lock(&h->lock);
    }
    (void)pthread_mutex_unlock(&h->lock);
    return NULL;
}

// --- opening ---

// Each connection takes two descriptors; the usual soft limit of 1024 is less than 512 of them need.
static void want_descriptors(int connections)
{
    struct rlimit lim;
    rlim_t need = (rlim_t)connections * 2 + 256;

    if (getrlimit(RLIMIT_NOFILE, &lim) != 0 || lim.rlim_cur >= need)
        return;
    lim.rlim_cur = lim.rlim_max == RLIM_INFINITY || lim.rlim_max >= need ? need : lim.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &lim) != 0 || lim.rlim_cur < need)
        LG_WARN("http", "limit", "descriptors=%llu wanted=%llu", (unsigned long long)lim.rlim_cur,
                (unsigned long long)need);
}

static int try_listen(const struct addrinfo *a)
{
    int fd = socket(a->ai_family, a->ai_socktype, a->ai_protocol), yes = 1;

    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 511) == 0)
        return fd;
    int saved = errno;
    (void)close(fd);
    errno = saved;
    return -1;
}

static lg_status open_socket(const lg_http_params *p, int *fd, int *port, lg_err *err)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *list = NULL;
    struct sockaddr_storage own;
    socklen_t n = sizeof own;
    char text[16];
    int rc, why = 0;

    (void)snprintf(text, sizeof text, "%d", p->port);
    rc = getaddrinfo(p->host, text, &hints, &list);
    if (rc != 0)
        return LG_FAIL(err, LG_E_IO, "cannot listen on %s: %s", p->host, gai_strerror(rc));
    // of a name with addresses of both kinds (localhost) the one that clients are told, 127.0.0.1
    *fd = -1;
    for (int pass = 0; pass < 2; pass++)
        for (const struct addrinfo *a = list; a && *fd < 0; a = a->ai_next) {
            if ((a->ai_family == AF_INET) != (pass == 0))
                continue;
            *fd = try_listen(a);
            why = errno;
        }
    freeaddrinfo(list);
    if (*fd < 0)
        return LG_FAIL(
            err, LG_E_IO, "cannot listen on %s port %d: %s%s", p->host, p->port, strerror(why),
            why == EADDRINUSE ? "; another program has it: end that one, or choose another with --port" : "");
    *port = p->port;
    if (getsockname(*fd, (struct sockaddr *)&own, &n) == 0) {
        if (own.ss_family == AF_INET)
            *port = ntohs(((struct sockaddr_in *)(void *)&own)->sin_port);
        else if (own.ss_family == AF_INET6)
            *port = ntohs(((struct sockaddr_in6 *)(void *)&own)->sin6_port);
    }
    return LG_OK;
}

static void on_library_log(void *cls, const char *fmt, va_list ap)
{
    char line[256];

    (void)cls;
    if (!lg_log_on(LG_LOG_DEBUG))
        return;
    (void)vsnprintf(line, sizeof line, fmt, ap);
    LG_DEBUG("http", "library", "%s", line);
}

static struct MHD_Daemon *start_daemon(lg_http *h)
{
    unsigned flags = MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
                     MHD_USE_ERROR_LOG | MHD_USE_ITC | (h->p.tls_cert ? MHD_USE_TLS : 0u);
    struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)h->p.tls_cert},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)h->p.tls_key},
        {MHD_OPTION_END, 0, NULL},
    };

    return MHD_start_daemon(flags, 0, may_connect, h, on_request, h, MHD_OPTION_EXTERNAL_LOGGER,
                            on_library_log, NULL, MHD_OPTION_LISTEN_SOCKET, h->listen_fd,
                            MHD_OPTION_NOTIFY_CONNECTION, connected, h, MHD_OPTION_NOTIFY_COMPLETED, finished,
                            h, MHD_OPTION_URI_LOG_CALLBACK, first_line, h, MHD_OPTION_CONNECTION_LIMIT,
                            (unsigned)h->p.max_connections + 64, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                            (size_t)POOL_BYTES, MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK_BYTES,
                            MHD_OPTION_ARRAY, h->p.tls_cert ? tls : &tls[2], MHD_OPTION_END);
}

lg_status lg_http_open(const lg_http_params *p, lg_http **out, lg_err *err)
{
    lg_http *h = calloc(1, sizeof *h);
    lg_status st;

    if (!h)
        return LG_FAIL(err, LG_E_NOMEM, "out of memory");
    h->p = *p;
    h->listen_fd = -1;
    (void)pthread_mutex_init(&h->lock, NULL);
    (void)lg_cond_init(&h->wake);
    want_descriptors(p->max_connections);
    st = open_socket(p, &h->listen_fd, &h->port, err);
    if (st != LG_OK)
        goto out;
    h->daemon = start_daemon(h);
    if (!h->daemon) {
        st =
            LG_FAIL(err, LG_E_IO, "%s",
                    p->tls_cert ? "cannot start: are --tls-cert and --tls-key PEM files that belong together?"
                                : "the HTTP server cannot start");
        goto out;
    }
    if (pthread_create(&h->watcher, NULL, watch, h) != 0) {
        st = LG_FAIL(err, LG_E_NOMEM, "no thread for the HTTP server");
        goto out;
    }
    h->watching = true;
    *out = h;
out:
    if (st != LG_OK)
        lg_http_close(h);
    return st;
}

int lg_http_port(const lg_http *h)
{
    return h->port;
}

int lg_http_connections(lg_http *h)
{
    int n;

    (void)pthread_mutex_lock(&h->lock);
    n = h->n_conn;
    (void)pthread_mutex_unlock(&h->lock);
    return n;
}

void lg_http_drain(lg_http *h, int ms)
{
    uint64_t until = lg_now_us() + (uint64_t)ms * 1000;
    int fd = MHD_quiesce_daemon(h->daemon), n;

    if (fd >= 0)
        (void)close(fd);
    do {
        (void)pthread_mutex_lock(&h->lock);
        n = h->n_active;
        (void)pthread_mutex_unlock(&h->lock);
        if (n > 0)
            (void)poll(NULL, 0, 10);
    } while (n > 0 && lg_now_us() < until);
}

void lg_http_close(lg_http *h)
{
    if (!h)
        return;
    if (h->watching) {
        (void)pthread_mutex_lock(&h->lock);
        h->stop = true;
        (void)pthread_cond_signal(&h->wake);
        (void)pthread_mutex_unlock(&h->lock);
        (void)pthread_join(h->watcher, NULL);
    }
    if (h->daemon)
        MHD_stop_daemon(h->daemon);
    else if (h->listen_fd >= 0)
        (void)close(h->listen_fd);
    (void)pthread_cond_destroy(&h->wake);
    (void)pthread_mutex_destroy(&h->lock);
    free(h);
}
