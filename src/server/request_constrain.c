/*
 * server/request_constrain: response formats and forced calls -> what the reply must look like (api.md 3.5, 3.6).
 */
#include <string.h>

#include "server/request_int.h"

lg_status lg_request_constrain(const lg_service *s, const lg_chat_request *r, lg_job *job, lg_api_error *e)
{
    bool tools = r->chat->n_tool > 0 && r->choice.mode != LG_CHOICE_NONE;

    (void)job;
    if (r->format.kind != LG_FORMAT_TEXT && tools && !s->set->format_with_tools)
        return lg_api_fail(e, LG_API_INVALID, "response_format", "%s cannot be combined with tools",
                           "response_format");
    if (r->format.kind != LG_FORMAT_TEXT)
        return lg_api_fail(e, LG_API_INVALID, r->format.param, "%s is not supported yet", r->format.param);
    if (r->choice.mode == LG_CHOICE_REQUIRED)
        return lg_api_fail(e, LG_API_INVALID, "tool_choice",
                           "tool_choice must be \"auto\" or \"none\": forced calls are not supported yet");
    return LG_OK;
}
