/* Where a matmul's weight blocks lie, and the order in which its column tiles are read. */
#ifndef LORA_KERNELS_MATRIX_BLOCKS_H
#define LORA_KERNELS_MATRIX_BLOCKS_H

#include "job.h"

static inline uint32_t matrix_k_blocks(const struct lora_matrix *command) {
    return (uint32_t)(((uint64_t)command->k + LORA_BLOCK_K - 1) / LORA_BLOCK_K);
}

static inline uint32_t matrix_tiles(const struct lora_matrix *command) {
    return (uint32_t)(((uint64_t)command->n + LORA_BLOCK_N - 1) / LORA_BLOCK_N);
}

/* Tiles `tiles_apart` numbers apart are stored in the same banks, one's blocks behind the other's.
 * In their order each bank is read on where the last tile ended. */
void lora_matrix_order(struct matrix_job *m, const struct lora_unit_call *call);
/* The tile at place `index` of that order, and the one that follows a tile. */
uint32_t lora_matrix_tile_at(const struct matrix_job *m, uint32_t index);
static inline uint32_t matrix_tile_after(const struct matrix_job *m, uint32_t tile) {
    tile += m->tiles_apart;
    return tile < matrix_tiles(m->command) ? tile : tile % m->tiles_apart + 1;
}

/* The first blocks of a tile, `max` at most; returns how many. NULL where one leaves its bank. */
uint32_t lora_matrix_some_blocks(const struct lora_job *job, uint32_t tile, const uint16_t **blocks,
                                 uint32_t max);
/* All blocks of a tile; no tile, no blocks. LORA_ERR_ADDRESS: one leaves its bank. */
int lora_matrix_find_blocks(const struct lora_job *job, uint32_t tile, const uint16_t **blocks);
/* The same for `tile`, where `blocks` are those of the tile `before`. */
int lora_matrix_next_blocks(const struct lora_job *job, uint32_t before,
                            const uint16_t *const *blocks, uint32_t tile, const uint16_t **next);

#endif
