/* Attention of one row, and of several rows at once. */
#ifndef LORA_KERNELS_ATTEND_H
#define LORA_KERNELS_ATTEND_H

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

/* A block of K as FP16: where it stands, or widened. NULL: out of range. */
const uint16_t *lora_attend_keys(const struct attend *a, uint32_t page, uint32_t head);
/* V's row of each position of the tile that begins at `start`. */
int lora_attend_values(const struct attend *a, uint32_t head, uint32_t start, uint32_t count,
                       const uint16_t *v[TILE]);

/* Several rows of one sequence at once, at most LORA_ATTEND_ROWS: attention_rows.c. `memory` holds
 * lora_attend_rows_floats floats, aligned to a line. */
#define LORA_ATTEND_ROWS (2 * PANEL_ROWS)
#define LORA_ATTEND_HEAD_DIM 1024 /* at most */
uint64_t lora_attend_rows_floats(const struct lora_job *job);
int lora_attend_rows(struct lora_job *job, struct attend *rows, uint32_t first, uint32_t count,
                     uint32_t head, uint32_t kv_head, float *memory);

#endif
