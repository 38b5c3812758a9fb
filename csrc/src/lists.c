/* Operations that are not steps: registering a list, summing a range of memory. */
#include "internal.h"

int lora_cluster_register_list(struct lora_cluster *cluster, uint32_t board, uint32_t list_id,
                               uint32_t offset, struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    int status = lora_check_ready(cluster, board, failure);
    if (status) return status;
    if (list_id >= LORA_MAX_LISTS)
        return lora_fail(failure, LORA_ERR_ARGUMENT, "list %u: lists 0..%d expected", list_id,
                         LORA_MAX_LISTS - 1);
    status = lora_check_range(cluster, board, cluster->boards[board].control_bank, offset,
                              sizeof(struct lora_list), failure);
    if (status) return status;
    const struct lora_run run = {.operation = LORA_OP_REGISTER,
                                 .list_id = list_id,
                                 .block_offset = offset,
                                 .timeout_us = cluster->timeouts.register_list_us,
                                 .watchdog_ms = cluster->timeouts.register_list_us / 2000};
    return lora_run(cluster, lora_board_bit(board), &run, failure);
}

int lora_cluster_checksum(struct lora_cluster *cluster, uint32_t board, uint32_t bank,
                          uint64_t offset, uint64_t bytes, uint32_t *crc,
                          struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    int status = lora_check_ready(cluster, board, failure);
    if (!status && !crc)
        status = lora_fail(failure, LORA_ERR_ARGUMENT, "board %u: the sum has nowhere to go",
                           board);
    if (!status) status = lora_check_range(cluster, board, bank, offset, bytes, failure);
    if (status) return status;
    const struct lora_run run = {.operation = LORA_OP_CHECKSUM,
                                 .bank = bank,
                                 .offset = offset,
                                 .bytes = bytes,
                                 .timeout_us = cluster->timeouts.checksum_us,
                                 .watchdog_ms = cluster->timeouts.checksum_us / 2000};
    status = lora_run(cluster, lora_board_bit(board), &run, failure);
    if (!status) *crc = cluster->boards[board].completion.checksum;
    return status;
}
