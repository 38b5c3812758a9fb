/* One row times one column tile; see streams.h. */
#ifndef LORA_KERNELS_ROW_H
#define LORA_KERNELS_ROW_H

#include "streams.h"

KERNEL static void row(const float *x, const uint32_t starts[LORA_SEGMENTS + 1],
                       const uint16_t *const *blocks, const uint16_t *const *next, float *out) {
    const struct tile tile = {x, starts, blocks, next};
    multiply(ROW_ALONE, &tile, out);
}

#endif
