/* The window of a row and what ALiBi adds to its scores. docs/numbers.md, 3.8 and 3.13. */
#ifndef LORA_KERNELS_ATTENTION_BIAS_H
#define LORA_KERNELS_ATTENTION_BIAS_H

#include "job.h"

/* The first of `positions` logical positions that the last one sees. */
static inline uint32_t attention_first(const struct lora_attention *command, uint32_t positions) {
    uint32_t window = command->window;
    return window && positions > window ? positions - window : 0;
}

/* The slopes of the call's local query heads; NULL without. An enum lora_status. */
int lora_slopes_find(const struct lora_unit_call *call, const struct lora_head_slope **slopes);

/* Add the bias of a query head to the scores s[first .. positions-1] of a row that sees
 * `positions`, and return their maximum. */
float lora_slope_add(const struct lora_job *job, uint32_t head, uint32_t first, uint32_t positions,
                     float *s);

#endif
