/*
 * fuzz/fuzz_gguf: any bytes as a model file. See walk_gguf.h for what is done with them.
 */
#include <stdlib.h>

#include "walk_gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    lg_gguf *g = NULL;
    lg_err err = {0};

    lg_log_set_level(LG_LOG_OFF);
    // the input itself is the file: its end is where a sanitizer sees a read past it
    lg_status st = lg_gguf_open_mem("input", data, n, &g, &err);
    if (st != LG_OK) {
        LG_ASSERT(!g);
        walk_check_error(st, &err);
        return 0;
    }
    (void)walk_gguf(g);
    lg_gguf_close(g);
    return 0;
}
