/*
 * base/memory: how much memory this machine, and its control groups, leave to the process. Any thread; read
 * at start-up by whoever plans with it.
 */
#ifndef LG_BASE_MEMORY_H
#define LG_BASE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* Memory that the process may use in all, and of it free now. */
void lg_memory_info(uint64_t *total, uint64_t *available);
/* Does memory that is reserved count before it is used? It does where the address space is limited
 * (`ulimit -v`). */
bool lg_memory_reserved_counts(void);

#endif
