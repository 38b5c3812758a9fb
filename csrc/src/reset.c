/* Reset of all boards after a hang. Their arenas are reserved again with the next program. */
#include "internal.h"

static int reset_board(struct lora_cluster *cluster, uint32_t board, struct lora_failure *failure) {
    struct lora_board *it = &cluster->boards[board];
    struct lora_board_info info = {.size = sizeof info};
    int status = it->transport->reset(it->handle, failure);
    if (it->arena_count) it->kept_arenas = it->arena_count;
    it->programmed = it->in_flight = it->arena_count = it->watchdog_ms = 0;
    if (!status) status = it->transport->info(it->handle, &info, failure);
    if (status) return lora_fail_board(cluster, board, status, failure);
    if ((!info.serial || info.serial == it->info.serial) && info.board_kind == it->info.board_kind)
        return LORA_OK;
    failure->board = (int32_t)board;
    failure->found = info.serial;
    failure->expected = it->info.serial;
    return lora_fail(failure, LORA_ERR_IDENTITY,
                     "board %u (%s): serial %u found after reset, %u expected; open the cluster "
                     "again",
                     board, it->info.address, info.serial, it->info.serial);
}

int lora_cluster_reset(struct lora_cluster *cluster, struct lora_failure *failure) {
    struct lora_failure spare;
    int first = LORA_OK;
    failure = lora_failure_begin(failure, &spare);
    if (!cluster) return lora_fail(failure, LORA_ERR_ARGUMENT, "no cluster");
    for (uint32_t b = 0; b < cluster->count; b++) {
        struct lora_failure now;
        int status = reset_board(cluster, b, lora_failure_begin(NULL, &now));
        if (!status || first) continue;
        first = status;
        *failure = now;
    }
    if (first) return first;
    cluster->hung = cluster->dirty = cluster->step = cluster->cable_count = 0;
    cluster->uncounted = cluster->cancel_written = 0;
    cluster->epoch++;
    return LORA_OK;
}
