/* The inner loops that have more than one implementation, chosen when the machine is known. Every
 * variant gives the same bits. */
#ifndef LORA_KERNELS_VARIANT_H
#define LORA_KERNELS_VARIANT_H

#include <stdint.h>

#include "lora/kernels.h"
#include "panel.h"

struct lora_gguf;

/* A head of the gated delta rule and a position: state [keys][values] becomes that behind it,
 * output [values] its o. */
struct delta_step {
    float *state, *output;
    const float *q, *k, *v;
    float decay, beta;
    uint32_t keys, values;
};

struct lora_variant {
    const char *name;
    int (*supported)(void);
    const struct lora_gguf *gguf; /* gguf.h: weights in GGUF's blocks */

    void (*halves_to_floats)(const uint16_t *halves, uint32_t count, float *floats);
    /* Rounds and stores; returns how many were not finite. */
    uint32_t (*floats_to_halves)(const float *floats, uint32_t count, uint16_t *halves);

    /* One row times one column tile: out[32] = the sum over k, tree included. starts[s] is where
     * segment s begins, starts[8] is k; blocks[k / 128] is the tile's block. The blocks of `next`
     * are read after these, so they may be prefetched. */
    void (*row)(const float *x, const uint32_t starts[9], const uint16_t *const *blocks,
                const uint16_t *const *next, float out[32]);
    /* The same, faster where the weights are in the cache, slower where they are not. */
    void (*row_cached)(const float *x, const uint32_t starts[9], const uint16_t *const *blocks,
                       const uint16_t *const *next, float out[32]);

    /* The same for 2..few_rows rows, faster than a panel of them: x[k][PANEL_ROWS], out[rows][32].
     * few_rows is 0 where there is none. */
    void (*few)(const float *x, uint32_t rows, const uint32_t starts[9],
                const uint16_t *const *blocks, const uint16_t *const *next, float *out);
    uint32_t few_rows;

    /* sums[row][i] = (sums[row][i]*scales[i])*own[row], and + values[i], of 32 columns. */
    void (*scale_columns)(float *sums, uint32_t rows, const float *scales, const float *own);
    void (*add_biases)(float *sums, uint32_t rows, const float *values);

    void (*delta)(const struct delta_step *step);
    void (*scan)(const struct delta_step *step); /* of the selective scan; without beta */

    /* x[column][0..3] = the four rows' FP32 values, PANEL_ROWS apart. */
    void (*pack_panel)(const uint16_t *const rows[4], uint32_t columns, float *x);
    /* A panel of rows times a column tile. */
    void (*panel)(const struct panel_step *step);

    /* q.k of the 32 positions of one K block [head_dim][32], by the segment rule. */
    void (*scores)(const float *q, const uint16_t *k, uint32_t head_dim, float out[32]);
    /* x[i] = gelu(x[i]) by the chords a, b of [-8, 8); x[i] = silu(x[i])*z[i]. */
    void (*gelu)(float *x, uint32_t count, const float *a, const float *b);
    void (*swiglu)(float *x, const float *z, uint32_t count);
    /* x[i] = (g/(1 + exp(-(g*alpha))))*(u + 1), g = x[i] up to limit, u = z[i] within it. */
    void (*swiglu_clamped)(float *x, const float *z, uint32_t count, float limit, float alpha);
    /* s[i] = s[i]*scale; returns the maximum where none is NaN. */
    float (*scale)(float *s, uint32_t count, float scale);
    /* s[i] = tanh(s[i]*(1/cap))*cap; returns the maximum where none is NaN. */
    float (*cap)(float *s, uint32_t count, float cap);
    /* s[i] = s[i] + slope*(first + i); returns the maximum. first + i is exact in FP32. */
    float (*slope)(float *s, uint32_t count, float slope, int32_t first);
    /* x[i] = exp(x[i]) */
    void (*exps)(float *x, uint32_t count);
    /* e[i] = FP16(exp(s[i] - max)) */
    void (*exponentials)(const float *s, uint32_t count, float max, uint16_t *e);
    /* sum[d] += (sequential sum over i of e[i]*v[i][d] from +0): one tile, at most 32 positions. */
    void (*weigh)(const float *e, const uint16_t *const *v, uint32_t count, uint32_t head_dim,
                  float *sum);
};

extern const struct lora_variant lora_variant_plain;
extern const struct lora_variant lora_variant_avx2;
extern const struct lora_variant lora_variant_avx512;

const struct lora_variant *lora_variant_current(void);

#endif
