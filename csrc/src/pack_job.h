/* A job is as many column tiles or table rows of a task as a thread's buffer holds. */
#ifndef LORA_PACK_JOB_H
#define LORA_PACK_JOB_H

#include "pack.h"

struct pack_thread { /* a thread's own memory */
    uint8_t *buffer;
    uint64_t buffer_bytes;
    void **blocks; /* buffer_bytes / PACK_MIN_BLOCK */
};

/* Tiles or rows of the task that a buffer of `bytes` holds at once, 0 where not even one. */
uint64_t pack_job_units(const struct lora_pack_task *task, uint64_t bytes);

/* Packs and writes units first .. first+count-1 of the task. `runs`: at least bank_count ranges,
 * whose `bytes` stay 0 where nothing was written. */
int pack_job(struct lora_cluster *cluster, const struct lora_placing *placing,
             const struct lora_pack_task *task, uint64_t first, uint64_t count,
             const struct pack_thread *thread, struct lora_range *runs,
             struct lora_failure *failure);

#endif
