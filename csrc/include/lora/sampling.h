/* Random numbers, and what the host makes of logits FP32 [count], none of them NaN: weights, draws,
 * sums and the largest ones. docs/numbers.md, 8.1, 8.3, 8.4, 9.1, 9.2. */
#ifndef LORA_SAMPLING_H
#define LORA_SAMPLING_H

#include <stdint.h>

/* uniforms [count]: 8.1's numbers in [0, 1). */
void lora_uniforms(uint64_t seed, uint64_t sample, uint64_t position, uint64_t stream,
                   uint32_t count, double *uniforms);

struct lora_filters {
    double top_p, min_p; /* 1 and 0: keep all */
    float temperature;   /* at least 2^-126 */
    uint32_t top_k;      /* 0: keep all */
};

/* weights [count]: FP32 values of 8.3, +0 for tokens that a filter drops. keys [count] is scratch.
 * The maximum of the logits must be finite. */
void lora_token_weights(const float *logits, uint32_t count, const struct lora_filters *filters,
                        uint64_t *keys, float *weights);
/* 8.4's token, of weights [count] of which one is above 0. */
uint32_t lora_draw_token(const float *weights, uint32_t count, double u);
/* One draw of 8.4 from its own logits [count]. */
struct lora_draw {
    const float *logits;
    struct lora_filters filters;
    uint64_t seed, sample, position;
    uint32_t token;
    uint32_t failed; /* a logit is NaN, the largest one is infinite, or all tokens are forbidden */
};
/* Each draw's `token`, or `failed`. keys, weights and ids [count] are scratch. */
void lora_draw_tokens(struct lora_draw *draws, uint32_t draw_count, uint32_t count, uint64_t *keys,
                      float *weights, uint32_t *ids);
/* 9.1's total. */
double lora_exp_total(const float *logits, uint32_t count);
/* ids [wanted], at most count: the largest logits in 9.2's order. keys [wanted] is scratch. */
void lora_top_tokens(const float *logits, uint32_t count, uint32_t wanted, uint64_t *keys,
                     uint32_t *ids);

#endif
