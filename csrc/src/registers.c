/* Register access through the transport, with the board named in what fails. */
#include "internal.h"

int lora_register_read(struct lora_cluster *cluster, uint32_t board, uint32_t block,
                       uint32_t offset, uint32_t *value, struct lora_failure *failure) {
    struct lora_board *it = &cluster->boards[board];
    int status = it->transport->register_read(it->handle, block, offset, value, failure);
    return lora_fail_board(cluster, board, status, failure);
}

int lora_register_write(struct lora_cluster *cluster, uint32_t board, uint32_t block,
                        uint32_t offset, uint32_t value, struct lora_failure *failure) {
    struct lora_board *it = &cluster->boards[board];
    int status = it->transport->register_write(it->handle, block, offset, value, failure);
    return lora_fail_board(cluster, board, status, failure);
}

int lora_cluster_register_read(struct lora_cluster *cluster, uint32_t board, uint32_t block,
                               uint32_t offset, uint32_t *value, struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    int status = lora_check_ready(cluster, board, failure);
    if (status) return status;
    if (!value || block >= LORA_BLOCKS || offset % 4)
        return lora_fail(failure, LORA_ERR_ARGUMENT,
                         "board %u: register block %u offset 0x%x: blocks 0..%d, words of 4 bytes",
                         board, block, offset, LORA_BLOCKS - 1);
    return lora_register_read(cluster, board, block, offset, value, failure);
}
