/*
 * server/server: the whole: transport, queue, engine thread, dialects.
 *
 * lg_server_open listens and starts the engine thread, which loads the model while /health and /v1/models
 * answer. lg_server_run blocks until a stop (signals arrive as bytes on a descriptor of the caller's) and
 * ends as api.md 1.5 says.
 */
#ifndef LG_SERVER_SERVER_H
#define LG_SERVER_SERVER_H

#include "base/settings.h"
#include "engine/engine.h"

typedef struct lg_server lg_server;

typedef struct lg_server_params {
    const lg_settings *set;     /* lives as long as the server */
    lg_engine_params engine;    /* likewise its texts */
    const char *model_id;       /* served id */
} lg_server_params;

LG_NODISCARD lg_status lg_server_open(const lg_server_params *p, lg_server **out, lg_err *err);
void lg_server_close(lg_server *s); /* takes NULL */
int lg_server_port(const lg_server *s);
bool lg_server_tls(const lg_server *s);

typedef enum lg_server_end {
    LG_SERVER_STOPPED,  /* after one signal, or idle_exit: all was finished */
    LG_SERVER_CUT,      /* a second signal */
    LG_SERVER_UNLOADED, /* a signal while the model loads: the engine thread still does; only _exit is left */
    LG_SERVER_FAILED,   /* the model could not be loaded: err says why */
} lg_server_end;
/* `signal_fd`: each byte read from it is one signal. */
lg_server_end lg_server_run(lg_server *s, int signal_fd, lg_err *err);

#endif
