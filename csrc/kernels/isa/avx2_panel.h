/* Rows laid into panels, and one panel times one column tile. For avx2.c alone. */
#ifndef LORA_KERNELS_AVX2_PANEL_H
#define LORA_KERNELS_AVX2_PANEL_H

#include "panel.h"
#include "unrolled.h"

/* Eight columns of four rows, transposed: within the halves of a vector, then these apart. */
AVX2_INLINE void transpose_columns(const __m256 row[4], float *x) {
    __m256 a = _mm256_unpacklo_ps(row[0], row[1]), b = _mm256_unpackhi_ps(row[0], row[1]);
    __m256 c = _mm256_unpacklo_ps(row[2], row[3]), d = _mm256_unpackhi_ps(row[2], row[3]);
    __m256 column[4] = {_mm256_shuffle_ps(a, c, 0x44), _mm256_shuffle_ps(a, c, 0xee),
                        _mm256_shuffle_ps(b, d, 0x44), _mm256_shuffle_ps(b, d, 0xee)};
    for (int i = 0; i < 4; i++) {
        _mm_storeu_ps(x + i * PANEL_ROWS, _mm256_castps256_ps128(column[i]));
        _mm_storeu_ps(x + (i + 4) * PANEL_ROWS, _mm256_extractf128_ps(column[i], 1));
    }
}

AVX2 static void pack_panel(const uint16_t *const rows[4], uint32_t columns, float *x) {
    uint32_t k = 0;
    for (; k + LANES <= columns; k += LANES, x += LANES * PANEL_ROWS) {
        __m256 row[4];
        for (int i = 0; i < 4; i++) row[i] = load_halves(rows[i] + k);
        transpose_columns(row, x);
    }
    for (; k < columns; k++, x += PANEL_ROWS)
        for (int i = 0; i < 4; i++) x[i] = half_to_float(rows[i][k]);
}

#define STEPS_AT_ONCE 8

/* The first pass over a panel's rows prefetches for all, and may convert the weights. */
enum pass { FIRST_CONVERTS, FIRST, LATER };

typedef __m256 pass_sums[PASS_ROWS][VECTORS];

struct column { /* one step along K: of x, of the weights, of what is fetched meanwhile */
    const float *x;
    float *weights;
    const uint16_t *halves, *prefetch;
    uint64_t halves_step, prefetch_step;
};

AVX2_INLINE void add_column(const struct column at, const int rows, const enum pass pass,
                            pass_sums sum) {
    __m256 value[PASS_ROWS];
    if (pass != LATER) _mm_prefetch((const char *)at.prefetch, _MM_HINT_T1);
    UNROLLED
    for (int r = 0; r < rows; r++) value[r] = _mm256_broadcast_ss(at.x + r);
    UNROLLED
    for (int v = 0; v < VECTORS; v++) {
        __m256 weight = pass == FIRST_CONVERTS ? load_halves(at.halves + v * LANES)
                                               : _mm256_load_ps(at.weights + v * LANES);
        if (pass == FIRST_CONVERTS) _mm256_store_ps(at.weights + v * LANES, weight);
        UNROLLED
        for (int r = 0; r < rows; r++) sum[r][v] = _mm256_fmadd_ps(value[r], weight, sum[r][v]);
    }
}

/* `columns` steps along K, a constant. */
AVX2_INLINE struct column add_some(struct column at, const int columns, const int rows,
                                   const enum pass pass, pass_sums sum) {
    UNROLLED
    for (int i = 0; i < columns; i++) {
        add_column(at, rows, pass, sum);
        at.x += PANEL_ROWS;
        at.weights += LORA_BLOCK_N;
        if (pass == FIRST_CONVERTS) /* otherwise NULL */
            at.halves += at.halves_step;
        if (pass != LATER) at.prefetch += at.prefetch_step;
    }
    return at;
}

AVX2_INLINE void begin_pass(const struct panel_step *step, const float *sums, const int rows,
                            pass_sums sum) {
    UNROLLED
    for (int r = 0; r < rows; r++) {
        UNROLLED
        for (int v = 0; v < VECTORS; v++)
            sum[r][v] = step->begins ? _mm256_setzero_ps()
                                     : _mm256_loadu_ps(sums + r * LORA_BLOCK_N + v * LANES);
    }
}

/* The sums of so many levels below are added. */
AVX2_INLINE void join_pass(const struct panel_step *step, float *sums, const int rows,
                           pass_sums sum) {
    for (uint32_t join = 0; join < step->joins; join++) {
        sums -= step->level;
        UNROLLED
        for (int r = 0; r < rows; r++) {
            UNROLLED
            for (int v = 0; v < VECTORS; v++)
                sum[r][v] = _mm256_add_ps(_mm256_loadu_ps(sums + r * LORA_BLOCK_N + v * LANES),
                                          sum[r][v]);
        }
    }
    UNROLLED
    for (int r = 0; r < rows; r++) store_sums(sums + r * LORA_BLOCK_N, sum[r]);
}

/* `rows` rows of a panel, a constant: their sums stay in registers. Steps along K are unrolled:
 * with fewer instructions, another thread on the core costs less. */
AVX2_INLINE void add_rows(const struct panel_step *step, const int rows, const enum pass pass,
                          uint32_t first) {
    struct column at = {step->x + first, step->weights,     step->halves,
                        step->prefetch,  step->halves_step, step->prefetch_step};
    float *sums = step->sums + first * LORA_BLOCK_N;
    uint32_t left = step->steps;
    pass_sums sum;
    begin_pass(step, sums, rows, sum);
    for (; left >= STEPS_AT_ONCE; left -= STEPS_AT_ONCE)
        at = add_some(at, STEPS_AT_ONCE, rows, pass, sum);
    for (; left; left--) at = add_some(at, 1, rows, pass, sum);
    join_pass(step, sums, rows, sum);
}

/* Three rows a pass, at the end two. A single row would wait for its own sums. */
AVX2_INLINE uint32_t pass_rows(uint32_t left) {
    return left > PASS_ROWS + 1 || left == PASS_ROWS ? PASS_ROWS : left > 1 ? 2 : 1;
}

AVX2_INLINE void add_pass(const struct panel_step *step, const enum pass pass, uint32_t rows,
                          uint32_t first) {
    if (rows == PASS_ROWS) add_rows(step, PASS_ROWS, pass, first);
    else if (rows == 2) add_rows(step, 2, pass, first);
    else add_rows(step, 1, pass, first);
}

AVX2 static void panel(const struct panel_step *step) {
    uint32_t rows = pass_rows(step->rows);
    if (step->halves) add_pass(step, FIRST_CONVERTS, rows, 0);
    else add_pass(step, FIRST, rows, 0);
    for (uint32_t row = rows; row < step->rows; row += rows) {
        rows = pass_rows(step->rows - row);
        add_pass(step, LATER, rows, row);
    }
}

#endif
