/*
 * server/http: the transport: listening, TLS, limits, a request in, a response out, and the watch over the
 * connection's socket. The only module that knows libmicrohttpd.
 *
 * A thread for each connection; the handler's functions are called on it and may block. One more thread looks
 * at all connections once a second and ends the slow ones (api.md 1.1).
 *
 * Life of a request: `begin` when its headers are there, then the body is read (or thrown away, when begin
 * refused), then `handle`, then the response goes out, then `done`. Everything in lg_request lives until
 * `done` returned.
 *
 * Surprise: while a handler waits, libmicrohttpd does not notice that the client is gone. Whoever waits for
 * the engine does so in lg_http_wait, which does.
 */
#ifndef LG_SERVER_HTTP_H
#define LG_SERVER_HTTP_H

#include "base/arena.h"
#include "base/buf.h"

typedef struct lg_http lg_http;
typedef struct lg_request lg_request;

typedef struct lg_header {
    lg_str name, value;
} lg_header;

enum { LG_REQUEST_ID_MAX = 128, LG_RESPONSE_HEADERS = 12 };

struct lg_request {
    lg_str method;
    lg_str target;               /* the path as it came, without query */
    lg_str path;                 /* aliases resolved; set by the router */
    const lg_header *header;
    size_t n_header;
    size_t header_bytes;         /* request line and headers together */
    lg_buf body;
    char id[LG_REQUEST_ID_MAX + 4]; /* x-request-id */
    char client[32];             /* key's name, or product/version of User-Agent; may be empty */
    uint64_t key;                /* hash of the API key that let the request in; 0 without keys */
    bool anthropic;              /* anthropic-version is there: errors of unknown paths in that shape */
    uint64_t start_us;
    lg_arena arena;
    void *user;                  /* the handler's own */
    struct lg_http_conn *conn;   /* NULL in tests */
};

typedef enum lg_stream_state { LG_STREAM_MORE, LG_STREAM_END, LG_STREAM_BROKEN } lg_stream_state;

/* A body that is made while it is sent. `next` blocks until it has appended at least one byte to `out`
 * (MORE), or there will be none (END), or the client is gone (BROKEN: the connection is closed without a
 * proper end). `free` is called once, whatever happened. */
typedef struct lg_stream {
    lg_stream_state (*next)(void *ctx, lg_buf *out);
    void (*free)(void *ctx);
    void *ctx;
} lg_stream;

typedef struct lg_response {
    int status;                  /* 0: none yet */
    const char *type;            /* Content-Type */
    lg_buf body;                 /* taken by the transport */
    lg_stream stream;            /* next not NULL: in place of the body */
    bool close;                  /* the connection is not kept */
    struct {
        const char *name;
        char value[512];
    } header[LG_RESPONSE_HEADERS];
    int n_header;
} lg_response;

void lg_response_init(lg_response *r);
/* One more header; a value that is too long is cut, control characters are dropped. */
void lg_response_header(lg_response *r, const char *name, const char *fmt, ...) LG_PRINTF(3, 4);

typedef struct lg_http_handler {
    void *ctx;
    /* Headers are there. A response with a status refuses the request; the body is then thrown away. */
    void (*begin)(void *ctx, lg_request *rq, lg_response *out);
    /* The body is complete. Must give a response. */
    void (*handle)(void *ctx, lg_request *rq, lg_response *out);
    /* A request that the transport itself refuses: fill body and headers for this status (408, 413, 431, 429,
     * 500). */
    void (*refuse)(void *ctx, const lg_request *rq, int status, lg_response *out);
    /* The response is out, or the connection is gone. */
    void (*done)(void *ctx, lg_request *rq, int status);
    /* Once a second, on the watching thread. `paused_us`: how long this process was stopped or the machine
     * asleep since the last time, or 0. */
    void (*tick)(void *ctx, uint64_t paused_us);
} lg_http_handler;

typedef struct lg_http_params {
    const char *host;
    int port;                    /* 0: any free one */
    const char *tls_cert, *tls_key; /* PEM texts; NULL: plain */
    size_t max_body_bytes, max_header_bytes;
    int max_connections;
    int header_s, body_s, write_s, idle_s; /* patience with slow peers, seconds */
    lg_http_handler handler;
} lg_http_params;

/* LG_E_IO: the address cannot be had (the message says who may hold it). */
LG_NODISCARD lg_status lg_http_open(const lg_http_params *p, lg_http **out, lg_err *err);
int lg_http_port(const lg_http *h);
int lg_http_connections(lg_http *h);
/* No new connections; then wait up to `ms` for responses that are on their way. */
void lg_http_drain(lg_http *h, int ms);
void lg_http_close(lg_http *h); /* takes NULL; ends every connection */

/* The body is not needed any more: its memory goes while the request goes on. */
void lg_http_body_done(lg_request *rq);

typedef enum lg_wait {
    LG_WAIT_WOKEN,  /* the descriptor is readable */
    LG_WAIT_TIME,
    LG_WAIT_HALF,   /* the client sends no more; reported once. It may still receive */
    LG_WAIT_GONE,   /* the connection is broken */
} lg_wait;
/* Wait until `fd` (-1: none) is readable, the client is gone, or `ms` passed (0: only look). */
lg_wait lg_http_wait(lg_request *rq, int fd, int ms);

#endif
