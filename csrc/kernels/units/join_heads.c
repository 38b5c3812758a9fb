/* JOIN_HEADS: rows of heads from shared columns and from columns of each head. docs/numbers.md,
 * 3.21. */
#include <string.h>

#include "job.h"

#define COLUMNS_PER_NS 8
#define HALF 2 /* bytes */

static void join(const struct lora_vector *c, const uint8_t *x, const uint8_t *z, uint8_t *y) {
    uint32_t shared = c->a_line, own = c->scalar, heads = c->columns / c->extra;
    for (uint32_t head = 0; head < heads; head++, y += (uint64_t)HALF * c->extra) {
        uint64_t from = shared ? (uint64_t)(head % c->b_line) * shared : 0;
        if (shared) memmove(y, z + HALF * from, (size_t)HALF * shared);
        memmove(y + (uint64_t)HALF * shared, x + (uint64_t)HALF * head * c->first,
                (size_t)HALF * own);
        memset(y + (uint64_t)HALF * (shared + own), 0, (size_t)HALF * (c->extra - shared - own));
    }
}

static int run(struct lora_job *job, uint32_t item, uint32_t thread) {
    const struct vector_job *v = &job->vector;
    uint32_t first = item * v->rows;
    uint32_t end = job->rows - first < v->rows ? job->rows : first + v->rows;
    (void)thread;
    for (uint32_t row = first; row < end; row++) {
        const uint8_t *z = v->z_rows.base ? v->z_rows.base + v->z_rows.stride * row : NULL;
        join(v->command, v->x_rows.base + v->x_rows.stride * row, z,
             v->y_rows.base + v->y_rows.stride * row);
    }
    return LORA_OK;
}

static bool fits(const struct lora_vector *c) {
    uint64_t shared = c->a_line, own = c->scalar;
    if (c->extra == 0 || c->columns % c->extra || c->first > MAX_COLUMNS) return false;
    if (shared + own > c->extra || own > c->first) return false;
    return shared == 0 || (c->b_line > 0 && c->b_line <= MAX_COLUMNS);
}

int lora_join_heads_begin(struct lora_job *job) {
    struct vector_job *v = &job->vector;
    const struct lora_vector *c = v->command;
    if (!fits(c)) return LORA_ERR_SIZE;
    uint64_t heads = c->columns / c->extra;
    v->x_rows = call_operand(job->call, LORA_BANK_ONCHIP, c->x_offset, c->x_stride,
                             HALF * heads * c->first, HALF);
    v->y_rows = call_operand(job->call, LORA_BANK_ONCHIP, c->y_offset, c->y_stride,
                             (uint64_t)HALF * c->columns, HALF);
    v->z_rows = (struct rows){NULL, 0};
    if (!v->x_rows.base || !v->y_rows.base) return LORA_ERR_ADDRESS;
    if (c->a_line) {
        v->z_rows = call_operand(job->call, LORA_BANK_ONCHIP, c->z_offset, c->z_stride,
                                 (uint64_t)HALF * c->a_line * c->b_line, HALF);
        if (!v->z_rows.base) return LORA_ERR_ADDRESS;
    }
    lora_vector_cut(job, COLUMNS_PER_NS);
    job->run = run;
    return LORA_OK;
}
