/* What attention sees of one row: its sequence's pages, its path of uncommitted rows. */
#ifndef LORA_KERNELS_ATTEND_H
#define LORA_KERNELS_ATTEND_H

#include "job.h"

#define SCRATCH_PAGES (LORA_MAX_SCRATCH / LORA_TILE_POSITIONS)
#define TILE LORA_TILE_POSITIONS

struct attend {
    struct lora_unit_call *call;
    const struct lora_attention *command;
    const struct lora_variant *variant;
    const uint16_t *pages; /* of the row's sequence */
    uint32_t committed;    /* positions of it */
    uint32_t depth;        /* uncommitted rows seen: path[0..depth-1], the row itself last */
    uint16_t path[LORA_MAX_SCRATCH];
    uint8_t page_used[SCRATCH_PAGES];
};

int lora_attend_find(struct attend *a, const struct lora_row *row);
/* K (v = 0) or V (v = 1) of one page and local KV head; NULL out of range. */
const uint16_t *lora_attend_block(const struct attend *a, uint32_t page, uint32_t head, uint32_t v);
/* V's row of each position of the tile that begins at `start`. */
int lora_attend_values(const struct attend *a, uint32_t kv_head, uint32_t start, uint32_t count,
                       const uint16_t *v[TILE]);
/* Several rows of one sequence at once, at most LORA_ATTEND_ROWS: attention_rows.c. `memory` holds
 * lora_attend_rows_floats floats, aligned to a line. */
#define LORA_ATTEND_ROWS (2 * PANEL_ROWS)
#define LORA_ATTEND_HEAD_DIM 1024 /* at most */
uint64_t lora_attend_rows_floats(const struct lora_job *job);
int lora_attend_rows(struct lora_job *job, struct attend *rows, uint32_t first, uint32_t count,
                     uint32_t head, uint32_t kv_head, float *memory);

#endif
