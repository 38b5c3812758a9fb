/* Sums of weights that the boards make by themselves: their table, sums at once, what they found.
 */
#include "internal.h"

int lora_cluster_regions(struct lora_cluster *cluster, uint32_t board, uint32_t offset,
                         struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    int status = lora_check_ready(cluster, board, failure);
    if (!status)
        status = lora_check_range(cluster, board, cluster->boards[board].control_bank, offset,
                                  sizeof(struct lora_scrub), failure);
    if (status) return status;
    const struct lora_run run = {.operation = LORA_OP_REGIONS,
                                 .block_offset = offset,
                                 .timeout_us = cluster->timeouts.register_list_us,
                                 .watchdog_ms = cluster->timeouts.register_list_us / 2000};
    return lora_run(cluster, lora_board_bit(board), &run, failure);
}

int lora_cluster_scrub(struct lora_cluster *cluster, uint64_t bytes, struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    for (uint32_t board = 0; cluster && board < cluster->count; board++) {
        int status = lora_check_ready(cluster, board, failure);
        if (status) return status;
    }
    if (!cluster) return lora_fail(failure, LORA_ERR_ARGUMENT, "scrub: no cluster");
    const struct lora_run run = {.operation = LORA_OP_SCRUB,
                                 .bytes = bytes,
                                 .timeout_us = cluster->timeouts.checksum_us,
                                 .watchdog_ms = cluster->timeouts.checksum_us / 2000};
    return lora_run(cluster, lora_all_boards(cluster), &run, failure);
}

int lora_is_damaged(const struct lora_cluster *cluster) {
    for (uint32_t board = 0; board < cluster->count; board++)
        if (cluster->boards[board].completion.scrub.damaged) return 1;
    return 0;
}
