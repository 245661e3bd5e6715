/*
 * engine/kv_page: blocks of the KV cache between the device's memory and the host's; for kv.c only.
 *
 * Nothing here decides what is kept: blocks are the pool's, and a pool without pages (n_slots 0) makes every
 * function return at once.
 */
#ifndef LG_ENGINE_KV_PAGE_H
#define LG_ENGINE_KV_PAGE_H

#include "engine/kv.h"

/* n_slots > 0; the pool's table and blocks are counted already. */
LG_NODISCARD lg_status lg_kv_pages_create(lg_kv_pool *p, int n_blocks, int n_slots, lg_err *err);
void lg_kv_pages_destroy(lg_kv *kv, lg_kv_class_id c);

/* The block enters the table, or leaves it while somebody still holds it, or nobody holds it any more. */
void lg_kv_page_enter(lg_kv_pool *p, int at, int32_t block);
void lg_kv_page_leave(lg_kv_pool *p, int at, int32_t block);
void lg_kv_page_free(lg_kv_pool *p, int32_t block);
/* Rows of it were written: its image is old. */
void lg_kv_page_wrote(lg_kv_pool *p, int32_t block);

/* A slot for a block that is about to be written. */
LG_NODISCARD lg_status lg_kv_page_slot(lg_kv *kv, lg_kv_class_id c, int32_t block, lg_err *err);
/* What the table has and the device has not comes back. */
LG_NODISCARD lg_status lg_kv_page_bring(lg_kv *kv, lg_err *err);
/* Slots and images belong to one block each, and the list has what it should. For lg_kv_check. */
bool lg_kv_pages_check(const lg_kv *kv, lg_kv_class_id c);

#endif
