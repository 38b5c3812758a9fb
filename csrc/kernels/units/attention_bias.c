/* Soft-capped scores, ALiBi, a bias of the scores that grows with the position, and sinks.
 * docs/numbers.md, 3.8, 3.13 and 3.14. */
#include "attention_bias.h"

#include <math.h>
#include <string.h>

#include "isa/exponential.h"

int lora_slopes_find(const struct lora_unit_call *call, const struct lora_head_slope **slopes) {
    const struct lora_attention *c = (const struct lora_attention *)(const void *)call->command;
    *slopes = NULL;
    if (c->slope_kind == LORA_SLOPE_NONE) return LORA_OK;
    if (c->slope_kind > LORA_SLOPE_SINK) return LORA_ERR_OPCODE;
    *slopes = call_at(call, c->slope_bank, (uint64_t)c->slope_line * LORA_LINE_BYTES,
                      (uint64_t)c->q_heads * sizeof **slopes, sizeof(float));
    return *slopes ? LORA_OK : LORA_ERR_ADDRESS;
}

static bool has_sinks(const struct lora_job *job) {
    return job->attention.command->slope_kind == LORA_SLOPE_SINK;
}

/* BF16(x), ties to even, of a finite x. */
static float round_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float add_rounded(struct lora_head_slope by, uint32_t first, uint32_t positions, float *s) {
    float max = -INFINITY;
    for (uint32_t p = first; p < positions; p++) {
        s[p] = s[p] + round_bf16(by.slope * round_bf16((float)p)) * by.factor;
        max = s[p] > max ? s[p] : max;
    }
    return max;
}

static float add_slope(const struct lora_job *job, uint32_t head, uint32_t first,
                       uint32_t positions, float *s) {
    struct lora_head_slope by = job->attention.slopes[head];
    if (job->attention.command->slope_kind == LORA_SLOPE_BF16_POSITION)
        return add_rounded(by, first, positions, s);
    return job->variant->slope(s + first, positions - first, by.slope,
                               (int32_t)first - (int32_t)(positions - 1));
}

float lora_scores_finish(const struct lora_job *job, uint32_t head, uint32_t first,
                         uint32_t positions, float *s, float max) {
    float cap = float_of_bits(job->attention.command->cap);
    if (cap != 0.0f) max = job->variant->cap(s + first, positions - first, cap);
    return job->attention.slopes && !has_sinks(job) ? add_slope(job, head, first, positions, s)
                                                    : max;
}

float lora_sink_weight(const struct lora_job *job, uint32_t head, float max) {
    return has_sinks(job) ? exp32(job->attention.slopes[head].slope - max) : 0.0f;
}
