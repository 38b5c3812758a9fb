/* Rows laid into panels, and one panel times one column tile. For avx2.c alone. */
#ifndef LORA_KERNELS_AVX2_PANEL_H
#define LORA_KERNELS_AVX2_PANEL_H

#include "panel.h"

/* Eight columns of four rows, turned: within the halves of a vector, then these apart. */
AVX2_INLINE void turn_columns(const __m256 row[4], float *x) {
    __m256 a = _mm256_unpacklo_ps(row[0], row[1]), b = _mm256_unpackhi_ps(row[0], row[1]);
    __m256 c = _mm256_unpacklo_ps(row[2], row[3]), d = _mm256_unpackhi_ps(row[2], row[3]);
    __m256 column[4] = {_mm256_shuffle_ps(a, c, 0x44), _mm256_shuffle_ps(a, c, 0xee),
                        _mm256_shuffle_ps(b, d, 0x44), _mm256_shuffle_ps(b, d, 0xee)};
    for (int i = 0; i < 4; i++) {
        _mm_storeu_ps(x + i * PANEL_ROWS, _mm256_castps256_ps128(column[i]));
        _mm_storeu_ps(x + (i + 4) * PANEL_ROWS, _mm256_extractf128_ps(column[i], 1));
    }
}

AVX2 static void lay_rows(const uint16_t *const rows[4], uint32_t columns, float *x) {
    uint32_t k = 0;
    for (; k + LANES <= columns; k += LANES, x += LANES * PANEL_ROWS) {
        __m256 row[4];
        for (int i = 0; i < 4; i++)
            row[i] = load_halves(rows[i] + k);
        turn_columns(row, x);
    }
    for (; k < columns; k++, x += PANEL_ROWS)
        for (int i = 0; i < 4; i++)
            x[i] = half_to_float(rows[i][k]);
}

/* `rows` rows of a panel, a constant of at most 3: their sums stay in registers. */
AVX2_INLINE void add_rows(const struct panel_step *step, const int rows, uint32_t first) {
    const float *x = step->x + first, *weights = step->weights;
    const uint16_t *ahead = step->ahead;
    float *sums = step->sums + first * LORA_BLOCK_N;
    __m256 sum[3][VECTORS];
    for (int r = 0; r < rows; r++)
        for (int v = 0; v < VECTORS; v++)
            sum[r][v] = step->begins ? _mm256_setzero_ps()
                                     : _mm256_loadu_ps(sums + r * LORA_BLOCK_N + v * LANES);
    for (uint32_t k = 0; k < step->steps; k++, weights += LORA_BLOCK_N, x += PANEL_ROWS) {
        _mm_prefetch((const char *)ahead, _MM_HINT_T1);
        ahead += step->ahead_step;
        for (int v = 0; v < VECTORS; v++) {
            __m256 weight = _mm256_loadu_ps(weights + v * LANES);
            for (int r = 0; r < rows; r++)
                sum[r][v] = _mm256_fmadd_ps(_mm256_broadcast_ss(x + r), weight, sum[r][v]);
        }
    }
    for (uint32_t join = 0; join < step->joins; join++) {
        sums -= step->level;
        for (int r = 0; r < rows; r++)
            for (int v = 0; v < VECTORS; v++)
                sum[r][v] = _mm256_add_ps(_mm256_loadu_ps(sums + r * LORA_BLOCK_N + v * LANES),
                                          sum[r][v]);
    }
    for (int r = 0; r < rows; r++)
        store_sums(sums + r * LORA_BLOCK_N, sum[r]);
}

AVX2 static void panel(const struct panel_step *step) {
    uint32_t row = 0;
    if (step->halves)
        for (uint32_t k = 0; k < step->steps; k++)
            halves_to_floats(step->halves + (uint64_t)k * step->halves_step, LORA_BLOCK_N,
                             step->weights + k * LORA_BLOCK_N);
    for (; row + 3 <= step->rows; row += 3)
        add_rows(step, 3, row);
    if (step->rows - row == 2)
        add_rows(step, 2, row);
    else if (step->rows - row == 1)
        add_rows(step, 1, row);
}

#endif
