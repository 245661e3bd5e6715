/*
 * text/trim: white space as Python's str.strip knows it, which is what the chat templates strip by: Unicode
 * White_Space and the four separators U+001C to U+001F. Ill-formed bytes are no white space.
 */
#ifndef LG_TEXT_TRIM_H
#define LG_TEXT_TRIM_H

#include "base/str.h"

bool lg_is_space(int32_t cp);
lg_str lg_trim_left(lg_str s);
lg_str lg_trim_right(lg_str s);
lg_str lg_trim(lg_str s);
/* Nothing but white space; true for an empty text. */
bool lg_is_blank(lg_str s);

#endif
