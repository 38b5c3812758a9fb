/* A job: pack into a buffer, sorted by bank, while it is in the cache; write each bank's run. */
#include <string.h>

#include "pack_job.h"

static uint64_t k_blocks_of(const struct lora_pack_task *task) {
    return (task->k + LORA_BLOCK_K - 1) / LORA_BLOCK_K;
}

static uint64_t tiles_of(const struct lora_pack_task *task) {
    return (task->n + LORA_BLOCK_N - 1) / LORA_BLOCK_N;
}

uint64_t pack_job_units(const struct lora_pack_task *task, uint64_t bytes) {
    if (task->kind == LORA_PACK_TABLE) return bytes / task->row_bytes;
    uint64_t blocks = bytes / lora_pack_block_bytes(task->weight_type), padding = task->merge - 1;
    return blocks < padding ? 0 : (blocks - padding) / k_blocks_of(task);
}

static int write_run(struct lora_cluster *cluster, const struct lora_range *where,
                     const uint8_t *data, struct lora_range *run, struct lora_failure *failure) {
    *run = *where;
    run->crc = lora_crc32(0, data, run->bytes);
    return lora_memory_write(cluster, run->board, run->bank, run->offset, data, run->bytes,
                             failure);
}

/* Bank within the matrix's banks, and bytes from the matrix's beginning in it: abi.h's formula. */
static uint32_t bank_and_offset(const struct lora_pack_task *task, uint64_t block,
                                uint64_t *offset) {
    uint64_t request = block / task->merge + task->request_first;
    uint64_t row = request / task->bank_count;
    *offset = (row * task->merge + block % task->merge) * lora_pack_block_bytes(task->weight_type);
    return (uint32_t)(request % task->bank_count);
}

/* Blocks of one bank follow each other there, so each bank's are one run of the buffer. */
static void sort_by_bank(const struct lora_pack_task *task, uint64_t first, uint64_t count,
                         const struct pack_thread *thread, struct lora_range *runs) {
    uint64_t next[LORA_MAX_BANKS], offset, at = 0;
    uint64_t size = lora_pack_block_bytes(task->weight_type);
    for (uint64_t i = 0; i < count; i++) {
        struct lora_range *run = runs + bank_and_offset(task, first + i, &offset);
        if (!run->bytes) run->offset = offset;
        run->bytes += size;
    }
    for (uint32_t bank = 0; bank < task->bank_count; bank++) {
        next[bank] = at;
        at += runs[bank].bytes;
    }
    for (uint64_t i = 0; i < count; i++) {
        uint32_t bank = bank_and_offset(task, first + i, &offset);
        thread->blocks[i] = thread->buffer + next[bank];
        next[bank] += size;
    }
}

static int place_tiles(struct lora_cluster *cluster, const struct lora_placing *placing,
                       const struct lora_pack_task *task, uint64_t first, uint64_t count,
                       const struct pack_thread *thread, struct lora_range *runs,
                       struct lora_failure *failure) {
    uint64_t k_blocks = k_blocks_of(task), blocks = count * k_blocks, padding = 0;
    if (first + count == tiles_of(task)) /* so that every placed byte has been written */
        padding = (task->merge - (first + count) * k_blocks % task->merge) % task->merge;
    sort_by_bank(task, first * k_blocks, blocks + padding, thread, runs);
    int status = pack_tiles(placing->parts, task, first, count, thread->blocks, failure);
    for (uint64_t i = blocks; i < blocks + padding; i++)
        memset(thread->blocks[i], 0, lora_pack_block_bytes(task->weight_type));
    const uint8_t *data = thread->buffer;
    for (uint32_t bank = 0; bank < task->bank_count && !status; bank++) {
        struct lora_range where = {task->board,
                                   task->bank + bank,
                                   task->offset + runs[bank].offset,
                                   runs[bank].bytes,
                                   0,
                                   0};
        if (!where.bytes) continue;
        status = write_run(cluster, &where, data, runs + bank, failure);
        data += where.bytes;
    }
    return status;
}

static int place_rows(struct lora_cluster *cluster, const struct lora_placing *placing,
                      const struct lora_pack_task *task, uint64_t first, uint64_t count,
                      const struct pack_thread *thread, struct lora_range *runs,
                      struct lora_failure *failure) {
    struct lora_range where = {
        task->board, task->bank, task->offset + first * task->row_bytes, count * task->row_bytes,
        0,           0};
    int status = pack_rows(placing->parts, task, first, count, thread->buffer, failure);
    return status ? status : write_run(cluster, &where, thread->buffer, runs, failure);
}

int pack_job(struct lora_cluster *cluster, const struct lora_placing *placing,
             const struct lora_pack_task *task, uint64_t first, uint64_t count,
             const struct pack_thread *thread, struct lora_range *runs,
             struct lora_failure *failure) {
    return task->kind == LORA_PACK_TABLE
               ? place_rows(cluster, placing, task, first, count, thread, runs, failure)
               : place_tiles(cluster, placing, task, first, count, thread, runs, failure);
}
