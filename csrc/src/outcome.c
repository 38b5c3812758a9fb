/* What the boards say of a run that has ended, and which of several failures caused the others. */
#include "internal.h"

#include <string.h>

static int completion_matches(const struct lora_cluster *cluster,
                              const struct lora_completion *record, const struct lora_run *run) {
    if (cluster->unchecked) return 1;
    if (record->size != sizeof *record || record->abi != LORA_ABI_NUMBER) return 0;
    if (record->operation != run->operation) return 0;
    if (run->operation != LORA_OP_STEP && run->operation != LORA_OP_GENERATE) return 1;
    return record->step - cluster->step < (run->tokens ? run->tokens : 1) &&
           record->epoch == cluster->epoch;
}

/* Completion, error and argmax records lie side by side: one transfer. */
static int read_records(struct lora_cluster *cluster, uint32_t board,
                        struct lora_failure *failure) {
    struct lora_board *it = &cluster->boards[board];
    uint8_t records[LORA_RECORDS_BYTES];
    int status = lora_memory_read(cluster, board, it->control_bank, LORA_COMPLETION_OFFSET, records,
                                  sizeof records, failure);
    if (status) return status;
    memcpy(&it->completion, records, sizeof it->completion);
    memcpy(&it->error, records + LORA_ERROR_OFFSET, sizeof it->error);
    memcpy(it->argmax, records + LORA_ARGMAX_OFFSET, sizeof it->argmax);
    return LORA_OK;
}

static int read_outcome(struct lora_cluster *cluster, uint32_t board, const struct lora_run *run,
                        struct lora_failure *failure) {
    struct lora_board *it = &cluster->boards[board];
    int status = read_records(cluster, board, failure);
    if (status) return status;
    if (!completion_matches(cluster, &it->completion, run)) {
        failure->board = (int32_t)board;
        failure->found = it->completion.step;
        failure->expected = cluster->step;
        return lora_fail(failure, LORA_ERR_COMPLETION,
                         "board %u (%s): done, but its completion record says operation %u step %u "
                         "epoch %u; operation %u step %u epoch %u expected",
                         board, it->info.address, it->completion.operation, it->completion.step,
                         it->completion.epoch, run->operation, cluster->step, cluster->epoch);
    }
    return it->completion.status == LORA_OK ? LORA_OK
                                            : lora_describe_error(cluster, board, failure);
}

/* A failure of lower rank causes those of higher rank. A board whose Router waits for another one's
 * frames only shows that something is wrong elsewhere; so does a poison frame. */
static int rank_of(const struct lora_failure *failure) {
    switch (failure->code) {
    case LORA_ERR_LINK_POISON: return 4;
    case LORA_ERR_GATHERED: return failure->found == failure->expected ? 4 : 0;
    case LORA_ERR_WATCHDOG: return failure->unit == LORA_UNIT_ROUTER ? 3 : 2;
    case LORA_ERR_COMPLETION: return 1;
    default: return 0;
    }
}

/* A wait for frames that never came is a link's failure if a link is down. */
static int blame_link(struct lora_cluster *cluster, struct lora_failure *failure) {
    for (uint32_t c = 0; c < cluster->cable_count; c++) {
        const struct lora_cable *cable = &cluster->cables[c];
        const uint32_t ends[2][2] = {{cable->board_a, cable->port_a},
                                     {cable->board_b, cable->port_b}};
        for (int e = 0; e < 2; e++) {
            struct lora_failure ignored, *unused = lora_failure_begin(NULL, &ignored);
            uint32_t value = 0;
            if (lora_register_read(cluster, ends[e][0], LORA_BLOCK_LINK0 + ends[e][1],
                                   LORA_LINK_STATUS, &value, unused))
                continue;
            if (value == LORA_LINK_HEALTHY) continue;
            failure->found = value;
            failure->expected = LORA_LINK_HEALTHY;
            return lora_fail_link(cluster, ends[e][0], ends[e][1], LORA_ERR_LINK_DOWN, failure,
                                  "is down during a step: status 0x%04x found, 0x%04x expected",
                                  value, LORA_LINK_HEALTHY);
        }
    }
    return (int)failure->code;
}

/* Routers that wait for frames are compared: one of them did not take its own. A board that cannot
 * be read is the failure. */
static void blame_router(struct lora_cluster *cluster, lora_boards mask,
                         struct lora_failure *failure) {
    struct lora_failure unread;
    lora_boards late = 0;
    uint32_t board = LORA_NONE;
    lora_failure_begin(&unread, NULL);
    for (uint32_t b = 0; b < cluster->count; b++)
        if (mask >> b & 1 && cluster->boards[b].completion.status != LORA_OK)
            late |= lora_board_bit(b);
    if (lora_stuck_router(cluster, late, &board, &unread)) *failure = unread;
    if (board == LORA_NONE || (int32_t)board == failure->board) return;
    uint32_t stopped_by = (uint32_t)failure->board;
    lora_failure_begin(failure, NULL);
    int status = lora_describe_error(cluster, board, failure);
    if (status == LORA_ERR_LINK_POISON)
        lora_fail(
            failure, LORA_ERR_WATCHDOG,
            "board %u (%s) command %u (%s): lacked frames that its neighbours had sent, until "
            "board %u's watchdog: unit %s",
            board, cluster->boards[board].info.address, failure->index,
            lora_opcode_name((uint16_t)failure->opcode), stopped_by, lora_unit_name(failure->unit));
}

int lora_outcome(struct lora_cluster *cluster, lora_boards mask, const struct lora_run *run,
                 struct lora_failure *failure) {
    struct lora_failure best, now;
    lora_failure_begin(&best, NULL);
    for (uint32_t b = 0; b < cluster->count; b++) {
        if (!(mask >> b & 1)) continue;
        lora_failure_begin(&now, NULL);
        if (read_outcome(cluster, b, run, &now) == LORA_OK) continue;
        if (best.code == LORA_OK || rank_of(&now) < rank_of(&best)) best = now;
    }
    if (best.code == LORA_OK) return LORA_OK;
    *failure = best;
    if (rank_of(failure) < 3) return (int)failure->code;
    if (failure->code == LORA_ERR_WATCHDOG) blame_router(cluster, mask, failure);
    return rank_of(failure) < 3 ? (int)failure->code : blame_link(cluster, failure);
}

int lora_cluster_completions(struct lora_cluster *cluster, struct lora_completion *completions,
                             struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    if (!completions)
        return lora_fail(failure, LORA_ERR_ARGUMENT, "completions is NULL, an array expected");
    for (uint32_t b = 0; b < cluster->count; b++) completions[b] = cluster->boards[b].completion;
    return LORA_OK;
}

int lora_cluster_leave_unchecked(struct lora_cluster *cluster, uint32_t records,
                                 struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    if (!cluster) return lora_fail(failure, LORA_ERR_ARGUMENT, "no cluster");
    cluster->unchecked = records;
    return LORA_OK;
}

int lora_cluster_argmax(struct lora_cluster *cluster, uint32_t board, uint32_t count,
                        struct lora_argmax *found, struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    int status = lora_check_ready(cluster, board, failure);
    if (status) return status;
    if (!found || count > LORA_MAX_ROWS)
        return lora_fail(failure, LORA_ERR_ARGUMENT,
                         "board %u: argmax of %u rows, at most %d expected", board, count,
                         LORA_MAX_ROWS);
    memcpy(found, cluster->boards[board].argmax, count * sizeof *found);
    return LORA_OK;
}
