/* The window of a row, the cap of its scores, what ALiBi adds to them, and sinks.
 * docs/numbers.md, 3.8, 3.13 and 3.14. */
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

/* What joins the sum of a query head's e, whose maximum score is `max`: +0 without a sink. */
float lora_sink_weight(const struct lora_job *job, uint32_t head, float max);

/* What is done to the scaled scores s[first .. positions-1] of a query head of a row that sees
 * `positions`, whose maximum is `max`. Returns their new maximum. */
float lora_scores_finish(const struct lora_job *job, uint32_t head, uint32_t first,
                         uint32_t positions, float *s, float max);

#endif
