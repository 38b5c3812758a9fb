/* The units and the tree of a sum along K: lora/segments.h says where it is cut.
 * docs/numbers.md, 2. */
#ifndef LORA_KERNELS_SEGMENTS_H
#define LORA_KERNELS_SEGMENTS_H

#include "lora/segments.h"

/* Whole units that each of `count` segments from s on has. */
static inline uint32_t common_units(const uint32_t starts[LORA_SEGMENTS + 1], uint32_t s,
                                    uint32_t count) {
    uint32_t min = 0xffffffffu;
    for (uint32_t i = s; i < s + count; i++) {
        uint32_t units = (starts[i + 1] - starts[i]) / LORA_UNIT_COLUMNS;
        min = units < min ? units : min;
    }
    return min;
}

static inline float segment_tree(const float sums[LORA_SEGMENTS]) {
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) +
           ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

#endif
