/*
 * app/chat_files: where chat keeps things, and the forms a conversation takes on disk (docs/formats/chat.md).
 *
 * Everything lies under $XDG_STATE_HOME/lagoon (~/.local/state/lagoon), readable by its owner only. A saved
 * chat is JSON lines: one header object, then one object a message. Files are replaced atomically.
 */
#ifndef LG_APP_CHAT_FILES_H
#define LG_APP_CHAT_FILES_H

#include "app/talk.h"

enum { LG_PATH_BYTES = 4096 };

/* The history file's path, folders made; false when there is no home. */
bool lg_chat_history_path(char *out);
/* NAME -> file of a saved chat; a NAME with a slash is a path as it is. LG_E_INPUT for a name that is none.
 */
LG_NODISCARD lg_status lg_chat_path(lg_str name, char *out, lg_err *err);

LG_NODISCARD lg_status lg_chat_save(const lg_talk *t, const char *path, lg_err *err);
/* Replaces the conversation and its system message; on failure both are as before. */
LG_NODISCARD lg_status lg_chat_load(lg_talk *t, const char *path, lg_err *err);
/* Saved chats by name, one a line. */
LG_NODISCARD lg_status lg_chat_list(lg_buf *out, lg_err *err);
/* By the ending of `path`: .md, .json (messages as the OpenAI API has them), .jsonl (the saved form). */
LG_NODISCARD lg_status lg_chat_export(const lg_talk *t, const char *path, lg_err *err);

#endif
