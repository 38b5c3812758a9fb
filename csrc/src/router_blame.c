/* Which board's Router is stuck, where several waited for frames until their watchdogs. A Router
 * that works takes what lies before it, unless a full FIFO keeps it from passing frames on. */
#include "internal.h"

#include <string.h>

struct progress { /* of all boards; begun is 0 where a board says nothing */
    struct lora_router_record record[LORA_MAX_BOARDS];
};

static int read_records(struct lora_cluster *cluster, lora_boards mask, struct progress *progress,
                        struct lora_failure *failure) {
    memset(progress, 0, sizeof *progress);
    for (uint32_t b = 0; b < cluster->count; b++) {
        struct lora_router_record *record = &progress->record[b];
        if (!(mask >> b & 1)) continue;
        int status = lora_memory_read(cluster, b, cluster->boards[b].control_bank,
                                      LORA_ROUTER_OFFSET, record, sizeof *record, failure);
        if (status) return status;
        if (record->size != sizeof *record || record->step != cluster->boards[b].error.step)
            record->begun = 0;
    }
    return LORA_OK;
}

static int is_before(const struct lora_router_record *a, const struct lora_router_record *b) {
    if (a->step != b->step) return (int32_t)(a->step - b->step) < 0;
    return a->collective < b->collective;
}

/* A board that has ended a gather has sent all of it: those that have not are compared. Boards that
 * generate by themselves may be in different steps. */
static void keep_first_gather(struct progress *progress) {
    const struct lora_router_record *first = NULL;
    for (uint32_t b = 0; b < LORA_MAX_BOARDS; b++) {
        const struct lora_router_record *record = &progress->record[b];
        if (record->begun && (!first || is_before(record, first))) first = record;
    }
    for (uint32_t b = 0; b < LORA_MAX_BOARDS && first; b++)
        if (is_before(first, &progress->record[b])) progress->record[b].begun = 0;
}

/* It has something to wait for: frames that no neighbour has sent, or room in a full FIFO. */
static int is_waiting(const struct lora_cluster *cluster, const struct progress *progress,
                      uint32_t board) {
    const struct lora_router_record *own = &progress->record[board];
    uint32_t expects = 0;
    for (uint32_t port = 0; port < LORA_PORTS; port++) {
        uint32_t far = 0, far_port = 0;
        if (!lora_cable_peer(cluster, board, port, &far, &far_port)) continue;
        const struct lora_router_record *other = &progress->record[far];
        if (!other->begun) continue;
        uint32_t left = own->sent[port] - other->received[far_port];
        if ((own->waits & (uint32_t)LORA_ROUTER_BLOCKED << port) && left) return 1;
        if (other->sent[far_port] != own->received[port]) expects = LORA_NONE; /* not taken */
        else if ((own->waits & (uint32_t)LORA_ROUTER_RECEIVES << port) && expects != LORA_NONE)
            expects = 1;
    }
    return expects == 1;
}

/* The first board that failed with this code after `cycles`, and whose Router had nothing to wait
 * for. */
static uint32_t first_idle(const struct lora_cluster *cluster, const struct progress *progress,
                           uint32_t code, uint64_t cycles) {
    for (uint32_t b = 0; b < cluster->count; b++) {
        const struct lora_board *it = &cluster->boards[b];
        if (!progress->record[b].begun || it->error.code != code) continue;
        if (it->error.unit != LORA_UNIT_ROUTER || it->completion.cycles < cycles) continue;
        if (!is_waiting(cluster, progress, b)) return b;
    }
    return LORA_NONE;
}

/* A board that began a little later is stopped by another one's watchdog before its own. Half of
 * the longest run was time enough for the frames that lay before it; one that was stopped early may
 * not have seen them. */
int lora_stuck_router(struct lora_cluster *cluster, lora_boards mask, uint32_t *board,
                      struct lora_failure *failure) {
    struct progress progress;
    uint64_t longest = 0;
    int status = read_records(cluster, mask, &progress, failure);
    if (status) return status;
    keep_first_gather(&progress);
    *board = first_idle(cluster, &progress, LORA_ERR_WATCHDOG, 0);
    if (*board != LORA_NONE) return LORA_OK;
    for (uint32_t b = 0; b < cluster->count; b++)
        if (mask >> b & 1 && cluster->boards[b].completion.cycles > longest)
            longest = cluster->boards[b].completion.cycles;
    *board = first_idle(cluster, &progress, LORA_ERR_LINK_POISON, longest / 2);
    return LORA_OK;
}
