/*
 * base/json_scan: the pass of ours in front of jansson. It recognises JSON completely, so that errors carry
 * our words and the place in the caller's text, and writes a plainer text that jansson cannot stumble over.
 */
#ifndef LG_BASE_JSON_SCAN_H
#define LG_BASE_JSON_SCAN_H

#include "base/json.h"

enum { LG_JSON_DEPTH_CAP = 2000 }; /* jansson stops at 2048 */

typedef struct lg_json_scan {
    /* well-formed JSON; blanks dropped, strings repaired, each number replaced by the offset of */
    lg_buf text;
    lg_buf numbers; /* ... its own text, NUL-terminated, in here */
    size_t n_keys;
    bool repaired;
} lg_json_scan;

/* Fills *s, which lg_json_scan_free empties, also after a failure. */
LG_NODISCARD lg_status lg_json_scan_text(lg_str in, const lg_json_limits *lim, lg_json_scan *s, lg_err *err);
void lg_json_scan_free(lg_json_scan *s);

/* Steps over text that the scan has taken, with a NUL behind it: what follows the blanks at p, the string at
 * p, the value at p. */
const char *lg_json_skip_space(const char *p);
const char *lg_json_skip_string(const char *p);
const char *lg_json_skip_value(const char *p);

#endif
