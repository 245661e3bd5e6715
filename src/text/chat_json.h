/*
 * text/chat_json: the messages and tools of an OpenAI Chat Completions body -> lg_chat
 * (chat.md 2.3-2.6, 2.8).
 *
 * Content parts are flattened, Anthropic-style parts that gateways leave inside are translated, call
 * arguments become key and text, tool results are put into the order of their calls, tools are written in the
 * one canonical form. Errors are LG_E_INPUT with the field's path as subject ("messages[3].content[0].type").
 *
 * Results borrow from the JSON document and the arena. null counts as absent everywhere.
 */
#ifndef LG_TEXT_CHAT_JSON_H
#define LG_TEXT_CHAT_JSON_H

#include "text/chat.h"
#include "text/reply.h"

enum { LG_CHAT_MAX_MESSAGES = 16384, LG_CHAT_MAX_TOOLS = 1024 };

typedef struct lg_chat_tools {
    const lg_str *canonical; /* as rendered */
    const lg_tool *tool;     /* as the reply parser wants them */
    size_t n;
    const bool *strict;      /* `strict` of each; NULL: none has it */
} lg_chat_tools;

/* `messages` must be an array; an empty one is fine. drop_images: parts that are no text become "[image]". */
LG_NODISCARD lg_status lg_chat_json_messages(const lg_json *messages, bool drop_images, lg_arena *a,
                                             const lg_chat_message **out, size_t *n, lg_err *err);

/* Content, a string or an array of text parts (NULL: none), as text: *out has p NULL when there is nothing.
 * `path` names it in errors. */
LG_NODISCARD lg_status lg_chat_json_content(const lg_json *content, bool drop_images, const char *path,
                                            lg_arena *a, lg_str *out, lg_err *err);

/* When the results behind a turn of several calls are a permutation of the calls, put them in the calls'
 * order. */
LG_NODISCARD lg_status lg_chat_order_results(lg_chat_message *message, size_t n, lg_arena *a, lg_err *err);

/* The arguments of a call in history: an object, or a string that holds one; what is neither becomes the one
 * argument `input`. Fills call->arg and n_arg. */
LG_NODISCARD lg_status lg_chat_json_arguments(const lg_json *arguments, lg_arena *a, lg_chat_call *call,
                                              lg_err *err);

/* `tools` of Chat Completions and the older `functions`, each an array, null or absent (NULL). */
LG_NODISCARD lg_status lg_chat_json_tools(const lg_json *tools, const lg_json *functions, lg_arena *a,
                                          lg_chat_tools *out, lg_err *err);

/* One tool in canonical form. description.p and parameters may be NULL. */
LG_NODISCARD lg_status lg_chat_tool_text(lg_str name, lg_str description, const lg_json *parameters,
                                         lg_arena *a, lg_str *out, lg_err *err);

typedef struct lg_chat_json_opts {
    bool drop_images;
    /* add_generation_prompt: false leaves turns closed; else it continues a last assistant turn */
    bool template_only;
} lg_chat_json_opts;

/* A whole body: messages, tools, functions, enable_thinking, history_thinking, chat_template_kwargs
 * (enable_thinking, preserve_thinking), add_generation_prompt, continue_final_message. Other fields are
 * ignored. `c` holds the defaults on entry. */
LG_NODISCARD lg_status lg_chat_json_body(const lg_json *body, const lg_chat_json_opts *o, lg_arena *a,
                                         lg_chat *c, lg_chat_tools *tools, lg_err *err);

#endif
