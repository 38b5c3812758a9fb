/* One operation of lora_ctrl on any boards at once: all are started before any is waited on. */
#include "internal.h"

static int set_watchdog(struct lora_cluster *cluster, uint32_t board, uint32_t milliseconds,
                        struct lora_failure *failure) {
    struct lora_board *it = &cluster->boards[board];
    if (it->watchdog_ms == milliseconds) return LORA_OK;
    int status = lora_register_write(cluster, board, LORA_BLOCK_CONTROL, LORA_REG_WATCHDOG_MS,
                                     milliseconds, failure);
    if (!status) it->watchdog_ms = milliseconds;
    return status;
}

/* A record of an earlier run must not pass for this one's. A step's number and epoch tell them
 * apart; other operations have none. */
static int clear_completion(struct lora_cluster *cluster, uint32_t board,
                            struct lora_failure *failure) {
    static const struct lora_completion none;
    return lora_memory_write(cluster, board, cluster->boards[board].control_bank,
                             LORA_COMPLETION_OFFSET, &none, sizeof none, failure);
}

static int start(struct lora_cluster *cluster, uint32_t board, const struct lora_run *run,
                 struct lora_failure *failure) {
    struct lora_board *it = &cluster->boards[board];
    const uint32_t arguments[11] = {
        run->operation,
        run->list_id,
        run->block_offset,
        0, /* a step's block has its number and epoch */
        0,
        run->bank,
        (uint32_t)run->offset,
        (uint32_t)(run->offset >> 32),
        (uint32_t)run->bytes,
        (uint32_t)(run->bytes >> 32),
        it->control_bank,
    };
    cluster->stats.doorbells++;
    int status = it->transport->submit(it->handle, arguments, failure);
    if (status) return lora_fail_board(cluster, board, status, failure);
    it->in_flight = 1;
    return LORA_OK;
}

static int prepare(struct lora_cluster *cluster, lora_boards mask, const struct lora_run *run,
                   struct lora_failure *failure) {
    for (uint32_t b = 0; b < cluster->count; b++) {
        if (!(mask >> b & 1)) continue;
        int status = lora_check_range(cluster, b, cluster->boards[b].control_bank, 0,
                                      LORA_CONTROL_PAGE, failure);
        if (!status) status = set_watchdog(cluster, b, run->watchdog_ms, failure);
        if (!status && run->operation != LORA_OP_STEP && run->operation != LORA_OP_GENERATE)
            status = clear_completion(cluster, b, failure);
        if (status) return status;
    }
    return LORA_OK;
}

int lora_run_begin(struct lora_cluster *cluster, lora_boards mask, const struct lora_run *run,
                   struct lora_failure *failure) {
    if (cluster->hung) {
        *failure = cluster->hang;
        return (int)failure->code;
    }
    int status = lora_drain(cluster, failure);
    if (!status) status = prepare(cluster, mask, run, failure);
    if (status) return status;
    lora_boards started = 0;
    for (uint32_t b = 0; b < cluster->count && !status; b++) {
        if (!(mask >> b & 1)) continue;
        status = start(cluster, b, run, failure);
        if (!status) started |= lora_board_bit(b);
    }
    if (status) { /* the others would wait for this board: let their watchdogs end them */
        struct lora_failure ignored;
        if (started)
            lora_wait(cluster, started, run->timeout_us, lora_failure_begin(NULL, &ignored));
    }
    return status;
}

int lora_run(struct lora_cluster *cluster, lora_boards mask, const struct lora_run *run,
             struct lora_failure *failure) {
    int status = lora_run_begin(cluster, mask, run, failure);
    return status ? status : lora_run_end(cluster, mask, run, failure);
}

int lora_run_end(struct lora_cluster *cluster, lora_boards mask, const struct lora_run *run,
                 struct lora_failure *failure) {
    int status = lora_wait(cluster, mask, run->timeout_us, failure);
    if (!status) status = lora_outcome(cluster, mask, run, failure);
    if (status && status != LORA_ERR_CANCELLED) status = lora_blame_memory(cluster, mask, failure);
    if (status && status != LORA_ERR_CANCELLED && status != LORA_ERR_TIMEOUT)
        lora_report_capture(cluster, failure->message);
    return status;
}
