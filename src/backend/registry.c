/*
 * backend/registry: see registry.h. "auto" takes the first backend that opens: a card when the build and the
 * machine have one, else the CPU. A device that was named must open.
 */
#include "backend/registry.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "backend/cpu/cpu.h"
#include "base/log.h"
#ifdef LG_HAVE_CUDA
#include "backend/cuda/cuda.h"
#endif

lg_status lg_backend_open(const lg_backend_params *p, lg_backend **out, lg_err *err)
{
    const char *device = p->device ? p->device : "auto";

#ifdef LG_HAVE_CUDA
    if (strcmp(device, "cuda") == 0 || strncmp(device, "cuda:", 5) == 0)
        return lg_cuda_backend_create(p, out, err);
    if (strcmp(device, "auto") == 0) {
        lg_err why = {0};
        lg_status st = lg_cuda_backend_create(p, out, &why);
        if (st == LG_OK)
            return LG_OK;
        if (st != LG_E_DEVICE) // a card is there and cannot be used
            LG_WARN("device", "cpu", "%s", why.msg);
    }
#endif
    if (strcmp(device, "auto") == 0 || strcmp(device, "cpu") == 0)
        return lg_cpu_backend_create(p, out, err);
    if (strncmp(device, "cuda", 4) == 0 || strcmp(device, "metal") == 0)
        return LG_FAIL(err, LG_E_UNSUPPORTED, "this build has no %s backend; it has %s",
                       *device == 'c' ? "CUDA" : "Metal", lg_backend_list());
    return LG_FAIL(err, LG_E_INPUT, "device \"%s\" is unknown; use auto, cpu, cuda, cuda:N or metal", device);
}

void lg_backend_close(lg_backend *b)
{
    if (b)
        b->destroy(b);
}

static char list[64];

static void make_list(void)
{
#ifdef LG_HAVE_CUDA
    const char *more = ", cuda";
#else
    const char *more = "";
#endif
    (void)snprintf(list, sizeof list, "cpu (%s)%s", lg_cpu_isa_list(), more);
}

const char *lg_backend_list(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, make_list);
    return list;
}
