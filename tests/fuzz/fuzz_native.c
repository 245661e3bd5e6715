/*
 * fuzz/fuzz_native: bodies of POST /lagoon/v1/generate.
 */
#include "body.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n > BODY_MAX)
        return 0;
    bool accepted = body_run(&lg_dialect_native, data, n, false);
    LG_ASSERT(body_run(&lg_dialect_native, data, n, true) == accepted);
    return 0;
}
