/* One panel of rows times one column tile, two vectors wide. For avx512.c alone. */
#ifndef LORA_KERNELS_AVX512_PANEL_H
#define LORA_KERNELS_AVX512_PANEL_H

#include "panel.h"

typedef __m512 panel_sums[PANEL_ROWS][VECTORS];

enum source { KEPT, CONVERTED, CONVERTED_AND_KEPT };

/* Two vectors of weights: converted, and kept where more panels follow, or those kept. */
AVX512_INLINE void take_weights(const uint16_t *halves, float *weights, const enum source source,
                                __m512 *low, __m512 *high) {
    if (source == KEPT) {
        *low = _mm512_load_ps(weights);
        *high = _mm512_load_ps(weights + LANES);
        return;
    }
    *low = load_halves(halves);
    *high = load_halves(halves + LANES);
    if (source == CONVERTED) return;
    _mm512_store_ps(weights, *low);
    _mm512_store_ps(weights + LANES, *high);
}

/* Loops over rows are unrolled first, so that their sums become registers. No masked loads: near
 * stores they cost hundreds of cycles on some machines. */
AVX512_INLINE void begin_panel(const struct panel_step *step, panel_sums sum, const int rows) {
    if (step->begins) {
        UNROLLED
        for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = _mm512_setzero_ps();
        return;
    }
    UNROLLED
    for (int r = 0; r < rows; r++) {
        sum[r][0] = _mm512_loadu_ps(step->sums + r * LORA_BLOCK_N);
        sum[r][1] = _mm512_loadu_ps(step->sums + r * LORA_BLOCK_N + LANES);
    }
}

/* The sums of so many levels below are added. */
AVX512_INLINE void join_panel(const struct panel_step *step, panel_sums sum, const int rows) {
    UNROLLED
    for (int r = 0; r < rows; r++) {
        float *sums = step->sums + r * LORA_BLOCK_N;
        __m512 low = sum[r][0], high = sum[r][1];
        for (uint32_t join = step->joins; join; join--) {
            sums -= step->level;
            low = _mm512_add_ps(_mm512_loadu_ps(sums), low);
            high = _mm512_add_ps(_mm512_loadu_ps(sums + LANES), high);
        }
        _mm512_storeu_ps(sums, low);
        _mm512_storeu_ps(sums + LANES, high);
    }
}

/* `rows` and `source` are constants: the sums stay in registers. */
AVX512_INLINE void add_panel(const struct panel_step *step, const int rows,
                             const enum source source) {
    const float *x = step->x;
    const uint16_t *prefetch = step->prefetch, *halves = step->halves;
    const uint32_t steps = step->steps, prefetch_step = step->prefetch_step;
    const uint32_t halves_step = step->halves_step;
    float *weights = step->weights;
    panel_sums sum;
    begin_panel(step, sum, rows);
    for (uint32_t k = 0; k < steps; k++) {
        __m512 low, high;
        take_weights(halves, weights, source, &low, &high);
        _mm_prefetch((const char *)prefetch, _MM_HINT_T1);
        _mm_prefetch((const char *)(x + 16 * PANEL_ROWS), _MM_HINT_T0);
        UNROLLED
        for (int r = 0; r < rows; r++) {
            __m512 value = _mm512_set1_ps(x[r]);
            sum[r][0] = _mm512_fmadd_ps(value, low, sum[r][0]);
            sum[r][1] = _mm512_fmadd_ps(value, high, sum[r][1]);
        }
        halves += halves_step;
        weights += LORA_BLOCK_N;
        prefetch += prefetch_step;
        x += PANEL_ROWS;
    }
    join_panel(step, sum, rows);
}

#define PANEL_OF(n)                                                                                \
    AVX512 static void panel_##n(const struct panel_step *step) {                                  \
        if (!step->halves) add_panel(step, n, KEPT);                                               \
        else if (step->alone) add_panel(step, n, CONVERTED);                                       \
        else add_panel(step, n, CONVERTED_AND_KEPT);                                               \
    }
PANEL_OF(1)
PANEL_OF(2)
PANEL_OF(3)
PANEL_OF(4)
PANEL_OF(5)
PANEL_OF(6)
PANEL_OF(7)
PANEL_OF(8)
PANEL_OF(9)
PANEL_OF(10)
PANEL_OF(11)
PANEL_OF(12)

static void panel(const struct panel_step *step) {
    static void (*const of[])(const struct panel_step *) = {
        panel_1, panel_2, panel_3, panel_4,  panel_5,  panel_6,
        panel_7, panel_8, panel_9, panel_10, panel_11, panel_12,
    };
    of[step->rows - 1](step);
}

#endif
