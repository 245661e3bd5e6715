/*
 * base/cond: see cond.h. macOS has no condition variable on another clock, but a wait of a given length.
 */
#include "base/cond.h"

#include <time.h>

int lg_cond_init(pthread_cond_t *c)
{
#if defined(__APPLE__)
    return pthread_cond_init(c, NULL);
#else
    pthread_condattr_t attr;
    int rc = pthread_condattr_init(&attr);

    if (rc != 0)
        return rc;
    rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (rc == 0)
        rc = pthread_cond_init(c, &attr);
    (void)pthread_condattr_destroy(&attr);
    return rc;
#endif
}

void lg_cond_wait_ms(pthread_cond_t *c, pthread_mutex_t *m, int ms)
{
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

#if defined(__APPLE__)
    (void)pthread_cond_timedwait_relative_np(c, m, &t);
#else
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    t.tv_sec += now.tv_sec;
    t.tv_nsec += now.tv_nsec;
    if (t.tv_nsec >= 1000000000) {
        t.tv_sec++;
        t.tv_nsec -= 1000000000;
    }
    (void)pthread_cond_timedwait(c, m, &t);
#endif
}
