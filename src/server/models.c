/*
 * server/models: what is served, for clients that ask before they talk: GET /v1/models, GET /v1/models/{id}
 * and the llama-server style GET /props (api.md 7).
 *
 * Pure functions of the service, answered on the connection's thread; while the model loads, too. The numbers
 * are the served ones: clients size their conversations by them.
 */
#include <string.h>
#include <time.h>

#include "server/jsonw.h"
#include "server/request.h"

enum { DEFAULT_OUTPUT = 32768 };

static int64_t max_output(const lg_service *s)
{
    return s->n_ctx > 0 && s->n_ctx < DEFAULT_OUTPUT ? s->n_ctx : DEFAULT_OUTPUT;
}

// Clients of the Messages API send this header; their entries carry more fields.
static bool speaks_anthropic(const lg_request *rq)
{
    return lg_request_header(rq, "anthropic-version").n > 0;
}

static void write_created_at(lg_jsonw *w, int64_t seconds)
{
    char text[40];
    time_t t = (time_t)seconds;
    struct tm tm;

    if (gmtime_r(&t, &tm) && strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm) > 0)
        lg_jsonw_strz(w, "created_at", text);
    else
        lg_jsonw_null(w, "created_at");
}

static void write_entry(lg_jsonw *w, const lg_service *s, const lg_request *rq, lg_str id)
{
    lg_jsonw_open(w, NULL, '{');
    lg_jsonw_str(w, "id", id);
    lg_jsonw_strz(w, "object", "model");
    if (speaks_anthropic(rq)) {
        lg_jsonw_strz(w, "type", "model");
        lg_jsonw_str(w, "display_name", id);
        write_created_at(w, s->created);
    }
    lg_jsonw_int(w, "created", s->created);
    lg_jsonw_strz(w, "owned_by", "poolside");
    lg_jsonw_int(w, "context_length", s->n_ctx);
    lg_jsonw_int(w, "max_model_len", s->n_ctx);
    lg_jsonw_int(w, "max_output_tokens", max_output(s));
    lg_jsonw_open(w, "meta", '{');
    lg_jsonw_int(w, "n_ctx", s->n_ctx);
    lg_jsonw_int(w, "n_ctx_train", s->n_ctx_train);
    lg_jsonw_int(w, "n_vocab", s->vocab ? lg_vocab_size(s->vocab) : 0);
    lg_jsonw_int(w, "n_params", s->n_params);
    lg_jsonw_int(w, "size", s->model_bytes);
    lg_jsonw_close(w, '}');
    lg_jsonw_open(w, "capabilities", '[');
    lg_jsonw_strz(w, NULL, "completion");
    lg_jsonw_strz(w, NULL, "tools");
    lg_jsonw_strz(w, NULL, "thinking");
    lg_jsonw_close(w, ']');
    lg_jsonw_close(w, '}');
}

static size_t n_ids(const lg_service *s)
{
    return 1 + s->set->model_aliases.n;
}

static lg_str id_at(const lg_service *s, size_t i)
{
    return lg_str_of(i == 0 ? s->model_id : s->set->model_aliases.v[i - 1]);
}

lg_status lg_util_models(const lg_service *s, const lg_request *rq, const lg_json *body, lg_arena *a,
                         lg_buf *out, lg_api_error *e)
{
    lg_jsonw w = lg_jsonw_start(out);

    (void)body;
    (void)a;
    (void)e;
    lg_jsonw_open(&w, NULL, '{');
    lg_jsonw_strz(&w, "object", "list");
    lg_jsonw_open(&w, "data", '[');
    for (size_t i = 0; i < n_ids(s); i++)
        write_entry(&w, s, rq, id_at(s, i));
    lg_jsonw_close(&w, ']');
    lg_jsonw_open(&w, "models", '[');
    for (size_t i = 0; i < n_ids(s); i++) {
        lg_jsonw_open(&w, NULL, '{');
        lg_jsonw_str(&w, "slug", id_at(s, i));
        lg_jsonw_str(&w, "display_name", id_at(s, i));
        lg_jsonw_int(&w, "context_window", s->n_ctx);
        lg_jsonw_int(&w, "max_output_tokens", max_output(s));
        lg_jsonw_close(&w, '}');
    }
    lg_jsonw_close(&w, ']');
    lg_jsonw_str(&w, "first_id", id_at(s, 0));
    lg_jsonw_str(&w, "last_id", id_at(s, n_ids(s) - 1));
    lg_jsonw_bool(&w, "has_more", false);
    lg_jsonw_close(&w, '}');
    return LG_OK;
}

lg_status lg_util_model(const lg_service *s, const lg_request *rq, const lg_json *body, lg_arena *a,
                        lg_buf *out, lg_api_error *e)
{
    const lg_str prefix = LG_STR("/v1/models/");
    lg_str id = lg_request_path(rq);
    bool known = strcmp(s->set->model_policy, "strict") != 0;
    lg_jsonw w = lg_jsonw_start(out);

    (void)body;
    (void)a;
    if (lg_str_starts(id, prefix))
        id = (lg_str){id.p + prefix.n, id.n - prefix.n};
    for (size_t i = 0; i < n_ids(s) && !known; i++)
        known = lg_str_eq(id, id_at(s, i));
    if (!known) {
        lg_status st =
            lg_api_fail(e, LG_API_NOT_FOUND, "model", "the model \"%.*s\" is not served here; this is \"%s\"",
                        (int)(id.n < 64 ? id.n : 64), id.p, s->model_id);
        memcpy(e->code, "model_not_found", sizeof "model_not_found");
        return st;
    }
    write_entry(&w, s, rq, id);
    return LG_OK;
}

static void write_token(lg_jsonw *w, const char *key, const lg_vocab *v, int32_t id)
{
    lg_jsonw_str(w, key, id >= 0 ? lg_vocab_bytes(v, id) : LG_STR(""));
}

lg_status lg_util_props(const lg_service *s, const lg_request *rq, const lg_json *body, lg_arena *a,
                        lg_buf *out, lg_api_error *e)
{
    lg_jsonw w = lg_jsonw_start(out);

    (void)rq;
    (void)body;
    (void)a;
    (void)e;
    lg_jsonw_open(&w, NULL, '{');
    lg_jsonw_open(&w, "default_generation_settings", '{');
    lg_jsonw_int(&w, "n_ctx", s->n_ctx);
    lg_jsonw_open(&w, "params", '{');
    lg_jsonw_num(&w, "temperature", s->set->temperature);
    lg_jsonw_int(&w, "top_k", s->set->top_k);
    lg_jsonw_num(&w, "top_p", s->set->top_p);
    lg_jsonw_num(&w, "min_p", s->set->min_p);
    lg_jsonw_int(&w, "n_predict", max_output(s));
    lg_jsonw_bool(&w, "enable_thinking", s->set->thinking);
    lg_jsonw_int(&w, "thinking_budget", s->set->default_budget);
    lg_jsonw_close(&w, '}');
    lg_jsonw_close(&w, '}');
    lg_jsonw_int(&w, "total_slots", s->set->cache_slots);
    lg_jsonw_strz(&w, "model_path", s->model_path);
    lg_jsonw_strz(&w, "chat_template", s->family == LG_TEMPLATE_V2 ? "laguna v2" : "laguna s21");
    write_token(&w, "bos_token", s->vocab, lg_vocab_special(s->vocab)->bos);
    write_token(&w, "eos_token", s->vocab, lg_vocab_special(s->vocab)->eot);
    lg_jsonw_strz(&w, "build_info", "lagoon " LG_VERSION);
    lg_jsonw_open(&w, "modalities", '{');
    lg_jsonw_bool(&w, "vision", false);
    lg_jsonw_bool(&w, "audio", false);
    lg_jsonw_close(&w, '}');
    lg_jsonw_close(&w, '}');
    return LG_OK;
}
