/* How RMSNorms read gamma. docs/numbers.md, 3.5. */
#ifndef LORA_KERNELS_NORM_GAMMA_H
#define LORA_KERNELS_NORM_GAMMA_H

#include "isa/half.h"
#include "job.h"

/* The numerator of r. */
static inline float norm_numerator(const struct lora_vector *command) {
    return command->flags & LORA_FLAG_ONE_PLUS ? float_of_bits(command->b_line) : 1.0f;
}

/* 1 + gamma in gamma's place, where the command says so. */
static inline void norm_add_one(const struct lora_vector *command, float *gamma, uint32_t count) {
    if (!(command->flags & LORA_FLAG_ONE_PLUS)) return;
    for (uint32_t i = 0; i < count; i++) gamma[i] = 1.0f + gamma[i];
}

#endif
