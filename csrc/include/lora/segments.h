/* Where the eight segments of a sum begin: kernels cut by it, and firmware checks norms by it. */
#ifndef LORA_SEGMENTS_H
#define LORA_SEGMENTS_H

#include <stdint.h>

#include "lora/abi.h"

/* First column of segment s of a sum over `columns`; s = 8 gives the end. */
static inline uint32_t segment_start(uint32_t columns, uint32_t s) {
    uint64_t units = ((uint64_t)columns + LORA_UNIT_COLUMNS - 1) / LORA_UNIT_COLUMNS;
    uint64_t start = s * units / LORA_SEGMENTS * LORA_UNIT_COLUMNS;
    return start < columns ? (uint32_t)start : columns;
}

#endif
