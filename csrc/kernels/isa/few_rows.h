/* Two rows to FEW_ROWS times one column tile; see streams.h. */
#ifndef LORA_KERNELS_FEW_ROWS_H
#define LORA_KERNELS_FEW_ROWS_H

#include "streams.h"

#define ROWS_OF(n)                                                                                 \
    KERNEL static void rows_##n(const struct tile *t, float *out) {                                \
        multiply((struct few){n, STREAMS_OF(n), STREAMS_OF(n), PANEL_ROWS}, t, out);               \
    }
ROWS_OF(2)
ROWS_OF(3)
#if FEW_ROWS > 3
ROWS_OF(4)
#endif

static void few(const float *x, uint32_t rows, const uint32_t starts[LORA_SEGMENTS + 1],
                const uint16_t *const *blocks, const uint16_t *const *next, float *out) {
    const struct tile tile = {x, starts, blocks, next};
    if (rows == 2) rows_2(&tile, out);
    else if (rows == 3) rows_3(&tile, out);
#if FEW_ROWS > 3
    else rows_4(&tile, out);
#endif
}

#endif
