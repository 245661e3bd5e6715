/*
 * base/cond: condition variables that wait in monotonic time, so that a clock that is set changes no wait.
 */
#ifndef LG_BASE_COND_H
#define LG_BASE_COND_H

#include <pthread.h>

/* 0, or an errno; ends with pthread_cond_destroy. */
int lg_cond_init(pthread_cond_t *c);
/* Until signalled, or `ms` have passed; may return early, as every such wait. The mutex is held. */
void lg_cond_wait_ms(pthread_cond_t *c, pthread_mutex_t *m, int ms);

#endif
