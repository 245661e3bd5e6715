/*
 * server/responses_stored: GET and DELETE /v1/responses/{id} and GET /v1/responses/{id}/input_items: what the
 * setting responses_store keeps (api.md 5.6). Without it these paths do not exist (route.c).
 */
#include <string.h>

#include "server/jsonw.h"
#include "server/request.h"
#include "server/store.h"

static lg_str last_part(const lg_request *rq)
{
    const lg_str before = LG_STR("/v1/responses/");
    lg_str path = lg_request_path(rq);

    return lg_str_starts(path, before) ? (lg_str){path.p + before.n, path.n - before.n} : (lg_str){0};
}

static lg_status none_here(lg_str id, lg_api_error *e)
{
    return lg_api_fail(e, LG_API_NOT_FOUND, "id", "no response \"%.*s\" is stored here",
                       (int)(id.n < 64 ? id.n : 64), id.n ? id.p : "");
}

static lg_status list_input(const lg_service *s, lg_str id, lg_buf *out, lg_api_error *e)
{
    (void)lg_buf_addz(out, "{\"object\":\"list\",\"data\":[");
    if (!lg_store_get(s->store, id, LG_STORE_INPUT, out))
        return none_here(id, e);
    (void)lg_buf_addz(out, "],\"has_more\":false}");
    return LG_OK;
}

lg_status lg_util_response(const lg_service *s, const lg_request *rq, const lg_json *body, lg_arena *a,
                           lg_buf *out, lg_api_error *e)
{
    const lg_str tail = LG_STR("/input_items");
    lg_str id = last_part(rq);

    (void)body;
    (void)a;
    if (id.n > tail.n && lg_str_eq((lg_str){id.p + id.n - tail.n, tail.n}, tail))
        return list_input(s, (lg_str){id.p, id.n - tail.n}, out, e);
    return lg_store_get(s->store, id, LG_STORE_RESPONSE, out) ? LG_OK : none_here(id, e);
}

lg_status lg_util_response_delete(const lg_service *s, const lg_request *rq, const lg_json *body, lg_arena *a,
                                  lg_buf *out, lg_api_error *e)
{
    lg_str id = last_part(rq);
    lg_jsonw w = lg_jsonw_start(out);

    (void)body;
    (void)a;
    if (!lg_store_drop(s->store, id))
        return none_here(id, e);
    lg_jsonw_open(&w, NULL, '{');
    lg_jsonw_str(&w, "id", id);
    lg_jsonw_strz(&w, "object", "response");
    lg_jsonw_bool(&w, "deleted", true);
    lg_jsonw_close(&w, '}');
    return LG_OK;
}
