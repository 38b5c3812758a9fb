/* What is done to a tile's sums[rows][32] before they are stored, for any width of vectors: the
 * compiler makes these loops of them. Included once by each implementation, after it has defined
 * COLUMNS_TARGET, attributes of functions. */
#include "lora/abi.h"

COLUMNS_TARGET static void scale_columns(float *restrict sums, uint32_t rows,
                                         const float *restrict scales, const float *restrict own) {
    for (uint32_t row = 0; row < rows; row++, sums += LORA_BLOCK_N)
        for (int n = 0; n < LORA_BLOCK_N; n++) sums[n] = (sums[n] * scales[n]) * own[row];
}

COLUMNS_TARGET static void add_biases(float *restrict sums, uint32_t rows,
                                      const float *restrict values) {
    for (uint32_t row = 0; row < rows; row++, sums += LORA_BLOCK_N)
        for (int n = 0; n < LORA_BLOCK_N; n++) sums[n] = sums[n] + values[n];
}
