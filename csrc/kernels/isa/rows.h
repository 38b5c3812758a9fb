/* Rows of an operand in board memory, `stride` bytes apart. */
#ifndef LORA_KERNELS_ROWS_H
#define LORA_KERNELS_ROWS_H

#include <stdint.h>

struct rows {
    uint8_t *base; /* NULL: out of range */
    uint64_t stride;
};

static inline uint16_t *half_row(struct rows rows, uint32_t i) {
    return (uint16_t *)(void *)(rows.base + rows.stride * i);
}

static inline float *float_row(struct rows rows, uint32_t i) {
    return (float *)(void *)(rows.base + rows.stride * i);
}

#endif
