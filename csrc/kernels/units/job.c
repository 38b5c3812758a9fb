#include "job.h"

#include <stdlib.h>

#include "lora/pool.h"

#define ALONE_VALUES 8192 /* fewer are copied sooner than shared */
#define ITEM_NS 8192      /* of vector operations */

void *lora_job_memory(struct lora_job *job, uint64_t bytes) {
    struct job_workspace *workspace = job->workspace;
    if (bytes <= sizeof(workspace->bytes) - workspace->used) {
        void *found = workspace->bytes + workspace->used;
        workspace->used += (uint32_t)((bytes + LORA_LINE_BYTES - 1) / LORA_LINE_BYTES *
                                      LORA_LINE_BYTES);
        return found;
    }
    job->memory = malloc(bytes);
    return job->memory;
}

void lora_job_share(struct lora_job *job, uint64_t values, uint32_t count,
                    void (*task)(void *job, uint32_t item, uint32_t thread)) {
    lora_pool_run(values < ALONE_VALUES ? NULL : job->pool, count, task, job);
}

void lora_vector_cut(struct lora_job *job, uint32_t columns_per_ns) {
    struct vector_job *v = &job->vector;
    uint32_t columns = v->command->columns, most = ITEM_NS * columns_per_ns;
    v->rows = columns < most ? most / (columns ? columns : 1) : 1;
    job->items = (job->rows + v->rows - 1) / v->rows;
    job->work = (uint64_t)job->rows * columns / columns_per_ns;
}

int lora_vector_rows(struct lora_job *job, uint32_t x_width, uint32_t y_width) {
    struct vector_job *v = &job->vector;
    const struct lora_vector *c = v->command;
    v->x_rows = call_operand(job->call, LORA_BANK_ONCHIP, c->x_offset, c->x_stride,
                             (uint64_t)c->columns * x_width, x_width);
    v->y_rows = call_operand(job->call, c->y_bank, c->y_offset, c->y_stride,
                             (uint64_t)c->columns * y_width, y_width);
    return v->x_rows.base && v->y_rows.base ? LORA_OK : LORA_ERR_ADDRESS;
}
