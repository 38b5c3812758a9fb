/* Opening and closing of boards: all or none. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int open_board(struct lora_cluster *cluster, const char *uri, struct lora_failure *failure) {
    struct lora_board *board = &cluster->boards[cluster->count];
    const char *address = NULL;
    int status = lora_transport_find(uri, &board->transport, &address, failure);
    if (status) return status;
    if (board->transport->size != sizeof *board->transport)
        return lora_fail(failure, LORA_ERR_TRANSPORT,
                         "transport '%s': table of %u bytes found, %zu expected; rebuild it",
                         board->transport->scheme, board->transport->size,
                         sizeof *board->transport);
    status = board->transport->open(address, &board->handle, failure);
    if (status) return status;
    cluster->count++; /* from here on lora_cluster_close closes it */
    board->info.size = sizeof board->info;
    status = board->transport->info(board->handle, &board->info, failure);
    snprintf(board->info.address, sizeof board->info.address, "%s", uri); /* as it was named */
    if (status) return lora_fail_board(cluster, cluster->count - 1, status, failure);
    if (board->info.bank_count > LORA_MAX_BANKS)
        return lora_fail(failure, LORA_ERR_TRANSPORT, "device '%.80s': %u banks found, at most %u",
                         uri, board->info.bank_count, LORA_MAX_BANKS);
    return LORA_OK;
}

int lora_check_serials(const struct lora_cluster *cluster, struct lora_failure *failure) {
    for (uint32_t b = 1; b < cluster->count; b++)
        for (uint32_t a = 0; a < b; a++)
            if (cluster->boards[b].info.serial &&
                cluster->boards[a].info.serial == cluster->boards[b].info.serial) {
                failure->board = (int32_t)b;
                return lora_fail(failure, LORA_ERR_URI,
                                 "boards %u (%.60s) and %u (%.60s) are one board, serial %u; name "
                                 "each board once",
                                 a, cluster->boards[a].info.address, b,
                                 cluster->boards[b].info.address, cluster->boards[b].info.serial);
            }
    return LORA_OK;
}

int lora_cluster_open(const char *const *uris, uint32_t count, struct lora_cluster **cluster,
                      struct lora_failure *failure) {
    struct lora_failure spare;
    struct lora_cluster *opened;
    int status = LORA_OK;
    failure = lora_failure_begin(failure, &spare);
    if (!cluster) return lora_fail(failure, LORA_ERR_ARGUMENT, "cluster_open: `cluster` is NULL");
    *cluster = NULL;
    if (!uris || count < 1 || count > LORA_MAX_BOARDS)
        return lora_fail(failure, LORA_ERR_ARGUMENT, "%u boards asked for, 1..%u expected", count,
                         LORA_MAX_BOARDS);
    opened = calloc(1, sizeof *opened);
    if (!opened) return lora_fail(failure, LORA_ERR_MEMORY, "no host memory for a cluster");
    lora_timeouts_default(&opened->timeouts);
    opened->stats = (struct lora_cluster_stats){0};
    for (uint32_t b = 0; b < count && !status; b++) {
        status = open_board(opened, uris[b], failure);
        if (status && failure->board < 0) failure->board = (int32_t)b;
    }
    if (!status) status = lora_check_serials(opened, failure);
    if (status) {
        lora_cluster_close(opened);
        return status;
    }
    *cluster = opened;
    return LORA_OK;
}

void lora_cluster_close(struct lora_cluster *cluster) {
    struct lora_failure ignored;
    if (!cluster) return;
    for (uint32_t b = cluster->count; b-- > 0;) {
        struct lora_board *board = &cluster->boards[b];
        for (uint32_t a = board->arena_count; a-- > 0;)
            board->transport->release(board->handle, board->arenas[a].bank, board->arenas[a].offset,
                                      lora_failure_begin(NULL, &ignored));
        board->transport->close(board->handle);
    }
    free(cluster);
}

int lora_check_board(const struct lora_cluster *cluster, uint32_t board,
                     struct lora_failure *failure) {
    if (!cluster) return lora_fail(failure, LORA_ERR_ARGUMENT, "no cluster");
    if (board >= cluster->count)
        return lora_fail(failure, LORA_ERR_ARGUMENT, "board %u: the cluster has boards 0..%u",
                         board, cluster->count - 1);
    failure->board = (int32_t)board;
    return LORA_OK;
}

int lora_check_ready(const struct lora_cluster *cluster, uint32_t board,
                     struct lora_failure *failure) {
    int status = lora_check_board(cluster, board, failure);
    if (status) return status;
    if (!cluster->boards[board].programmed)
        return lora_fail(failure, LORA_ERR_ARGUMENT, "board %u (%s): no overlay is loaded", board,
                         cluster->boards[board].info.address);
    return LORA_OK;
}

int lora_cluster_info(struct lora_cluster *cluster, uint32_t board, struct lora_board_info *info,
                      struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    int status = lora_check_board(cluster, board, failure);
    if (!status) *info = cluster->boards[board].info;
    return status;
}

int lora_cluster_get_stats(struct lora_cluster *cluster, struct lora_cluster_stats *stats) {
    if (!cluster || !stats) return LORA_ERR_ARGUMENT;
    *stats = cluster->stats;
    stats->memory_reads = atomic_load(&cluster->memory_reads);
    stats->memory_writes = atomic_load(&cluster->memory_writes);
    for (uint32_t b = 0; b < cluster->count; b++) {
        const struct lora_board *it = &cluster->boards[b];
        struct lora_accesses found;
        it->transport->accesses(it->handle, &found);
        stats->register_reads += found.register_reads;
        stats->register_writes += found.register_writes;
    }
    stats->epoch = cluster->epoch;
    stats->step = cluster->step;
    return LORA_OK;
}
