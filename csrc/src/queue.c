/* Steps: one block to all boards, one start each, one wait for all. */
#include "internal.h"

int lora_check_block(const struct lora_cluster *cluster, const struct lora_step *block,
                     uint32_t bytes, uint32_t block_offset, struct lora_failure *failure) {
    if (!block || bytes < sizeof *block || block->size != sizeof *block || block->bytes != bytes)
        return lora_fail(failure, LORA_ERR_ARGUMENT,
                         "step block: %u bytes in hand, header of %u and block of %u named; %zu "
                         "and %u expected",
                         bytes, block && bytes >= sizeof *block ? block->size : 0,
                         block && bytes >= sizeof *block ? block->bytes : 0, sizeof *block, bytes);
    if (block->abi != LORA_ABI_NUMBER)
        return lora_fail(failure, LORA_ERR_ABI, "step block: ABI %u found, %d expected", block->abi,
                         LORA_ABI_NUMBER);
    if (block_offset < LORA_CONTROL_PAGE)
        return lora_fail(failure, LORA_ERR_ARGUMENT,
                         "step block at 0x%x: the first 0x%x bytes of the control bank are the "
                         "firmware's",
                         block_offset, LORA_CONTROL_PAGE);
    for (uint32_t b = 0; b < cluster->count; b++) {
        int status = lora_check_ready(cluster, b, failure);
        if (!status)
            status = lora_check_range(cluster, b, cluster->boards[b].control_bank, block_offset,
                                      bytes, failure);
        if (status) return status;
    }
    failure->board = -1;
    return LORA_OK;
}

/* After a step that did not end well some boards may have taken it and others not: the same number
 * with a higher epoch is right for both. */
int lora_place_block(struct lora_cluster *cluster, struct lora_step *block, uint32_t block_offset,
                     struct lora_failure *failure) {
    int status = lora_drain(cluster, failure);
    if (!status && cluster->uncounted) status = lora_renumber(cluster, failure);
    if (status) return status;
    if (cluster->dirty) cluster->epoch++;
    else cluster->step++;
    cluster->dirty = 1;
    block->step = cluster->step;
    block->epoch = cluster->epoch;
    for (uint32_t b = 0; b < cluster->count && !status; b++)
        status = lora_memory_write(cluster, b, cluster->boards[b].control_bank, block_offset, block,
                                   block->bytes, failure);
    return status;
}

static int run_step(struct lora_cluster *cluster, struct lora_step *block, uint32_t block_offset,
                    struct lora_failure *failure) {
    int status = lora_place_block(cluster, block, block_offset, failure);
    if (status) return status;
    const struct lora_run run = {.operation = LORA_OP_STEP,
                                 .list_id = block->list_id,
                                 .block_offset = block_offset,
                                 .timeout_us = cluster->timeouts.step_us,
                                 .watchdog_ms = cluster->timeouts.watchdog_ms};
    status = lora_run(cluster, lora_all_boards(cluster), &run, failure);
    if (!status) cluster->dirty = 0;
    return status;
}

int lora_cluster_repeat(struct lora_cluster *cluster, struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    if (!cluster) return lora_fail(failure, LORA_ERR_ARGUMENT, "no cluster");
    cluster->dirty = 1;
    return LORA_OK;
}

int lora_cluster_step(struct lora_cluster *cluster, void *block, uint32_t bytes,
                      uint32_t block_offset, struct lora_completion *completions,
                      struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    if (!cluster) return lora_fail(failure, LORA_ERR_ARGUMENT, "no cluster");
    int status = lora_check_block(cluster, block, bytes, block_offset, failure);
    if (status) return status;
    if (cluster->hung) {
        *failure = cluster->hang;
        return (int)failure->code;
    }
    status = run_step(cluster, block, block_offset, failure);
    if (lora_is_damage(status)) { /* chance: once more, with a new epoch */
        lora_failure_begin(failure, NULL);
        cluster->stats.redone_steps++;
        status = run_step(cluster, block, block_offset, failure);
    }
    if (status) return status;
    cluster->stats.steps++;
    for (uint32_t b = 0; b < cluster->count; b++) {
        cluster->stats.frames_dropped += cluster->boards[b].completion.frames_dropped;
        if (completions) completions[b] = cluster->boards[b].completion;
    }
    return LORA_OK;
}
