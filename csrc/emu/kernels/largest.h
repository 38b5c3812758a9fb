/* The first largest of many values. */
#ifndef LORA_KERNELS_LARGEST_H
#define LORA_KERNELS_LARGEST_H

#include <math.h>
#include <stdbool.h>

#include "half.h"

#define LARGEST_RUN 64 /* values that are passed over together */

/* Whether a run holds a larger value, or NaN. */
static inline bool run_exceeds(const float *x, float most) {
    uint32_t exceeds = 0;
    for (uint32_t i = 0; i < LARGEST_RUN; i++)
        exceeds |= !(x[i] <= most);
    return exceeds != 0;
}

/* The first largest value, or the first NaN; columns are counted from `first`. */
static inline struct lora_argmax largest(const float *x, uint32_t columns, uint32_t first) {
    struct lora_argmax best = {-INFINITY, 0xffffffffu};
    for (uint32_t i = 0; i < columns; i++) {
        while (i % LARGEST_RUN == 0 && i && columns - i >= LARGEST_RUN &&
               !run_exceeds(x + i, best.value))
            i += LARGEST_RUN;
        if (i == columns)
            break;
        if (x[i] != x[i])
            return (struct lora_argmax){float_of_bits(LORA_FP32_NAN), first + i};
        if (i == 0 || x[i] > best.value)
            best = (struct lora_argmax){x[i], first + i};
    }
    return best;
}

#endif
