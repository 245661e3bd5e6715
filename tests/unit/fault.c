/*
 * unit/fault: see fault.h. The linker's --wrap sends each call of f to __wrap_f, from which __real_f is the
 * original.
 */
#include "fault.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
ssize_t __real_read(int fd, void *p, size_t n);
ssize_t __real_write(int fd, const void *p, size_t n);
int __real_fsync(int fd);
int __real_rename(const char *from, const char *to);

void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
ssize_t __wrap_read(int fd, void *p, size_t n);
ssize_t __wrap_write(int fd, const void *p, size_t n);
int __wrap_fsync(int fd);
int __wrap_rename(const char *from, const char *to);

static atomic_long calls[FAULT_KINDS];
static atomic_long left[FAULT_KINDS]; // calls until the one that fails; 0 or less = none
static atomic_long failed;

void fault_arm(fault_kind kind, long n)
{
    atomic_store(&failed, 0);
    atomic_store(&left[kind], n);
}

long fault_disarm(void)
{
    for (int i = 0; i < FAULT_KINDS; i++)
        atomic_store(&left[i], 0);
    return atomic_exchange(&failed, 0);
}

long fault_calls(fault_kind kind)
{
    return atomic_load(&calls[kind]);
}

static int fails(fault_kind kind)
{
    atomic_fetch_add(&calls[kind], 1);
    if (atomic_load(&left[kind]) <= 0 || atomic_fetch_sub(&left[kind], 1) != 1)
        return 0;
    atomic_fetch_add(&failed, 1);
    errno = kind == FAULT_ALLOC ? ENOMEM : kind == FAULT_WRITE ? ENOSPC : EIO;
    return 1;
}

void *fault_malloc(size_t n)
{
    return fails(FAULT_ALLOC) ? NULL : __real_malloc(n);
}

void *__wrap_malloc(size_t n)
{
    return fault_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails(FAULT_ALLOC) ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails(FAULT_ALLOC) ? NULL : __real_realloc(p, n);
}

ssize_t __wrap_read(int fd, void *p, size_t n)
{
    return fails(FAULT_READ) ? -1 : __real_read(fd, p, n);
}

ssize_t __wrap_write(int fd, const void *p, size_t n)
{
    return fails(FAULT_WRITE) ? -1 : __real_write(fd, p, n);
}

int __wrap_fsync(int fd)
{
    return fails(FAULT_FSYNC) ? -1 : __real_fsync(fd);
}

int __wrap_rename(const char *from, const char *to)
{
    return fails(FAULT_RENAME) ? -1 : __real_rename(from, to);
}
