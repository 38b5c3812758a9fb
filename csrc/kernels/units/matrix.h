/* Matmuls: what the scheduler asks of them, and what weights other than FP16 need. */
#ifndef LORA_KERNELS_MATRIX_H
#define LORA_KERNELS_MATRIX_H

#include "job.h"
#include "matrix_blocks.h"

/* Weights whose x is INT8, with a scale a column. */
static inline int matrix_is_integer(const struct matrix_job *m) {
    return m->type == LORA_WEIGHT_INT8 || m->type == LORA_WEIGHT_W4A8;
}

/* enum lora_gguf_block of such weights. */
static inline uint32_t matrix_gguf_block(const struct matrix_job *m) {
    return m->command->weight_type >> LORA_WEIGHT_GROUP_SHIFT;
}

/* Whether a tile's blocks become FP16 before they are multiplied. GGUF's of a single row are
 * multiplied as they are. */
static inline bool matrix_is_widened(const struct lora_job *job) {
    uint32_t type = job->matrix.type;
    return type == LORA_WEIGHT_W4A16 || (type == LORA_WEIGHT_GGUF && job->rows > 1);
}

/* Whether y of a single row may be written while `bytes` of x are read. */
static inline bool matrix_y_is_apart(const struct matrix_job *m, uint64_t bytes) {
    const struct lora_matrix *c = m->command;
    uintptr_t x = (uintptr_t)m->x_rows.base, y = (uintptr_t)m->y.base;
    return x + bytes <= y || y + (c->y_type == LORA_FP32 ? 4ull : 2ull) * c->n <= x;
}

/* The blocks that a thread reads first in a matmul, in its order; returns how many. */
uint32_t lora_matrix_first_blocks(const struct lora_job *job, uint32_t thread,
                                  const uint16_t **blocks, uint32_t max);

/* matrix_quantized.c */
/* Fills type, group and block_bytes: an enum lora_status. */
int lora_quantized_type(struct matrix_job *m);
/* Scales and, behind them, the bias of INT8 activations: an enum lora_status. */
int lora_quantized_scales(struct lora_job *job);
uint64_t lora_quantized_row_bytes(const struct matrix_job *m);

/* Working memory of the job's rows, or of each thread's widened blocks, and what goes into it. */
uint64_t lora_quantized_bytes(const struct lora_job *job);
void lora_quantized_fill(struct lora_job *job, void *memory);

/* sums[row][32] of one tile of INT8 activations, scales included. */
void lora_quantized_multiply(const struct lora_job *job, uint32_t tile,
                             const uint16_t *const *blocks, const uint16_t *const *next,
                             float *sums);
/* The tile's blocks in FP16, one more than there are. */
const uint16_t *const *lora_quantized_widen(const struct lora_job *job, uint32_t thread,
                                            const uint16_t *const *blocks);

#endif
