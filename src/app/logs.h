/*
 * app/logs: where a server's log records go: standard error or a file of bounded size, as text or JSON lines
 * (docs/formats/log.md).
 *
 * One sink per process, installed by lg_logs_open and used under base/log's lock.
 */
#ifndef LG_APP_LOGS_H
#define LG_APP_LOGS_H

#include "base/settings.h"

/* log_file, log_format, log_max. LG_E_IO when the file cannot be opened. */
LG_NODISCARD lg_status lg_logs_open(const lg_settings *set, lg_err *err);
/* Open the file anew before the next record: whoever rotates logs has moved it. May run in a signal handler.
 */
void lg_logs_reopen(void);
void lg_logs_close(void); /* back to standard error */

/* One record as a JSON object, no newline: "12:04:05.123 info kv evict a=1 b=\"x y\"" becomes
 * {"ts":...,"level":"info","mod":"kv","event":"evict","a":1,"b":"x y"}. `ts` is RFC 3339, UTC. */
void lg_logs_json(lg_str line, const char *ts, lg_buf *out);

#endif
