/*
 * text/chat: conversation -> items -> prompt ids, both template families, hand-coded (chat.md 2, 3).
 *
 * The renderer makes a list of CTRL(id) and TEXT(bytes) items, joins adjacent text, and encodes text with
 * added-token matching off, so client text can never become a control token. Structures borrow their strings
 * from the caller (for JSON, from an arena).
 */
#ifndef LG_TEXT_CHAT_H
#define LG_TEXT_CHAT_H

#include "base/arena.h"
#include "text/bpe.h"

typedef enum lg_role { LG_ROLE_SYSTEM, LG_ROLE_USER, LG_ROLE_ASSISTANT, LG_ROLE_TOOL } lg_role;
typedef enum lg_history { LG_HISTORY_TAIL, LG_HISTORY_ALL, LG_HISTORY_NONE } lg_history;

/* One argument of a call: its value as it is rendered, i.e. a string's own text or tojson of anything else.
 */
typedef struct lg_chat_arg {
    lg_str key, value;
} lg_chat_arg;

typedef struct lg_chat_call {
    lg_str id, name;
    const lg_chat_arg *arg;
    size_t n_arg;
    const int32_t *replay; /* replay memory: exact ids from <tool_call> to </tool_call>, or NULL */
    size_t n_replay;
} lg_chat_call;

typedef struct lg_chat_message {
    lg_role role;
    lg_str content;
    lg_str reasoning; /* assistant; p NULL when none was given */
    lg_str call_id;   /* tool: which call it answers; may be empty */
    const lg_chat_call *call;
    size_t n_call;
    bool tool_result_only; /* a user turn that consists only of tool results: not a real user message (2.6) */
} lg_chat_message;

typedef struct lg_chat {
    lg_template_family family;
    bool thinking;
    lg_history history;
    bool generation_prompt;
    bool continue_final; /* prefill: the last assistant message stays open (2.8) */
    bool continue_open_think; /* ... inside its reasoning */
    const lg_chat_message *message;
    size_t n_message;
    const lg_str *tool; /* canonical tool objects, already serialised (2.3, 2.4) */
    size_t n_tool;
} lg_chat;

typedef enum lg_item_kind { LG_ITEM_CTRL, LG_ITEM_TEXT, LG_ITEM_IDS } lg_item_kind;
typedef struct lg_item {
    lg_item_kind kind;
    int32_t id; /* LG_ITEM_CTRL: one of LG_ID_*; encoding takes the vocabulary's own number for it */
    lg_str text;
    const int32_t *ids;
    size_t n_ids;
} lg_item;

/* Places in the rendered prompt that the prefix cache cares about (cache.md 3), in ascending order.
 * SYS: behind the system block; absent when none is written. TURN: behind <assistant> and <think> or </think>
 * of the first answer after the last real user message; absent when no answer is begun there. DURABLE: the
 * longest prefix that will still be one when the user speaks next; always there. MESSAGE: where each message
 * starts. */
typedef enum lg_mark_kind { LG_MARK_SYS, LG_MARK_TURN, LG_MARK_DURABLE, LG_MARK_MESSAGE } lg_mark_kind;
typedef struct lg_chat_mark {
    lg_mark_kind kind;
    int message;    /* LG_MARK_MESSAGE: index; else -1 */
    size_t item;    /* before byte `offset` of this item; n_item means the end */
    size_t offset;
    /* offset in the rendered text, special texts included and replayed calls as they would render */
    size_t byte;
    size_t token;   /* filled by lg_chat_encode: tokens that end at or before the place */
} lg_chat_mark;

typedef struct lg_rendered {
    lg_item *item;
    size_t n_item;
    lg_chat_mark *mark;
    size_t n_mark;
} lg_rendered;

/* All output lives in the arena or borrows from `c`. LG_E_LIMIT when the arena is full, LG_E_INPUT when
 * continue_final finds no assistant message at the end. */
LG_NODISCARD lg_status lg_chat_render(const lg_chat *c, lg_arena *a, lg_rendered *out, lg_err *err);
/* The prompt as text: control items by the bytes of their token. v may be NULL (the model family's own texts)
 * when no call is replayed. For reading: in the text, what a client wrote cannot be told from control tokens.
 */
LG_NODISCARD lg_status lg_chat_text(const lg_rendered *r, const lg_vocab *v, lg_buf *out, lg_err *err);
/* Append the ids and fill the marks' token positions, counted from the first id appended. LG_E_UNSUPPORTED
 * when the vocabulary lacks a control token that the prompt needs. */
LG_NODISCARD lg_status lg_chat_encode(const lg_bpe *b, lg_rendered *r, lg_ids *out, lg_err *err);

/* True when the reply to these ids starts inside the reasoning: of <think>, </think> and <assistant>, the
 * last one in the prompt is <think>. */
bool lg_chat_ends_in_reasoning(const lg_vocab *v, const int32_t *ids, size_t n);

#endif
