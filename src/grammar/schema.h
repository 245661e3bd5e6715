/*
 * grammar/schema: reading a JSON Schema: nodes with places, references, well-formedness of keywords.
 *
 * Nodes are numbered when they are first reached; only those are checked, so an unused definition may say
 * anything.
 */
#ifndef LG_GRAMMAR_SCHEMA_H
#define LG_GRAMMAR_SCHEMA_H

#include "grammar/compile.h"

enum {
    LG_TYPE_NULL = 1,
    LG_TYPE_BOOL = 2,
    LG_TYPE_INT = 4,
    LG_TYPE_FRAC = 8,
    LG_TYPE_STRING = 16,
    LG_TYPE_ARRAY = 32,
    LG_TYPE_OBJECT = 64,
    LG_TYPE_ALL = 127,
    LG_TYPE_NUMBER = LG_TYPE_INT | LG_TYPE_FRAC
};

/* Parses c's document from text and makes its root. */
void lg_schema_read(lg_compiler *c, lg_str text);
/* The node of a value below `parent`, by key (or by index with key.p NULL). */
uint32_t lg_schema_node(lg_compiler *c, const lg_json *j, uint32_t parent, lg_str key, uint32_t index);
/* The value of a keyword of a node, or NULL; and the node of it. */
const lg_json *lg_schema_get(const lg_compiler *c, uint32_t node, const char *keyword);
uint32_t lg_schema_child(lg_compiler *c, uint32_t node, const char *keyword);
/* Member i of an object or array node. */
uint32_t lg_schema_at(lg_compiler *c, uint32_t node, size_t i);
/* What the `$ref` of a node points to. */
uint32_t lg_schema_ref(lg_compiler *c, uint32_t node);
/* Checks a node on its first visit: kinds of values, names of types, keywords that cannot be enforced. */
void lg_schema_check(lg_compiler *c, uint32_t node);
/* The types that the node's own `type` (and `nullable`) admits. */
unsigned lg_schema_types(const lg_compiler *c, uint32_t node);
unsigned lg_schema_type_of(lg_compiler *c, const lg_json *value); /* of a value: one bit */
/* A count keyword of the node; `other` when it is absent. Saturates below LG_NONE. */
uint32_t lg_schema_count(const lg_compiler *c, uint32_t node, const char *keyword, uint32_t other);
/* Prints the pointer of a node and up to two tokens below it into out[size]; too long ones end in "...". */
void lg_schema_pointer(const lg_compiler *c, uint32_t node, const lg_str key[2], char *out, size_t size);

#endif
