/* Attention of one row, and of several rows at once. */
#ifndef LORA_KERNELS_ATTEND_H
#define LORA_KERNELS_ATTEND_H

#include "attention_groups.h"
#include "job.h"
#include "visible.h"

#define TILE LORA_TILE_POSITIONS

struct attend {
    const struct lora_unit_call *call;
    const struct lora_attention *command;
    const struct lora_variant *variant;
    struct visible seen;
    uint16_t *wide; /* [32][head_dim], where blocks are INT8; else NULL */
};

static inline uint32_t attend_positions(const struct attend *a) {
    return a->seen.committed + a->seen.depth;
}

/* A whole block of K: wide[head_dim][32]. */
void lora_attend_widen_keys(const struct lora_variant *variant, const uint8_t *block,
                            uint32_t head_dim, uint16_t *wide);

/* A block of K as FP16: where it is stored, or widened. NULL: out of range. */
static inline const uint16_t *attend_keys(const struct attend *a, uint32_t page, uint32_t head) {
    const uint8_t *block = kv_block_at(a->call, a->command->kv_layer, page, head, 0);
    if (!block || !a->wide) return (const uint16_t *)(const void *)block;
    lora_attend_widen_keys(a->variant, block, a->command->head_dim, a->wide);
    return a->wide;
}

/* V's row of each position of the tile that begins at `start`. */
int lora_attend_values(const struct attend *a, uint32_t head, uint32_t start, uint32_t count,
                       const uint16_t *v[TILE]);

/* Several heads of several rows at once, at most GROUP_ROWS queries: attention_rows.c. `order` has
 * the rows' numbers in the call, `memory` lora_attend_rows_floats floats, aligned to a line. */
#define LORA_ATTEND_HEAD_DIM 1024 /* at most */
uint64_t lora_attend_rows_floats(const struct lora_job *job);
int lora_attend_rows(struct lora_job *job, struct attend *rows, const uint8_t *order,
                     uint32_t count, struct head_range heads, float *memory);

#endif
