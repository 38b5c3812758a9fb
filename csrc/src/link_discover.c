/* Which port is cabled to which: every port is brought up and says who it is. */
#include "internal.h"

#include <string.h>

#define STATUS_POLLS 50   /* times poll_us between two looks: a link changes slowly */
#define SETTLE_US 1000000 /* a port without a cable stays down: when so long nothing moves */

static int let_pass(struct lora_cluster *cluster, uint32_t microseconds,
                    struct lora_failure *failure) {
    return lora_let_pass(cluster, 0, microseconds, failure);
}

/* Whether every port has a channel, and whether any port's status has changed. */
static int look(struct lora_cluster *cluster, struct lora_link_found *found, int *all, int *moved,
                struct lora_failure *failure) {
    *all = 1;
    *moved = 0;
    for (uint32_t b = 0; b < cluster->count; b++)
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            uint32_t *status = &found[b * LORA_PORTS + p].status, before = *status;
            int result = lora_register_read(cluster, b, LORA_BLOCK_LINK0 + p, LORA_LINK_STATUS,
                                            status, failure);
            if (result) return result;
            *all &= *status == LORA_LINK_HEALTHY;
            *moved |= *status != before;
        }
    return LORA_OK;
}

static int bring_up(struct lora_cluster *cluster, struct lora_link_found *found,
                    struct lora_failure *failure) {
    uint32_t slice = cluster->timeouts.poll_us * STATUS_POLLS;
    int status = lora_links_write(cluster, LORA_LINK_CORE_RESET, 1, failure), all = 0, moved = 0;
    struct lora_stopwatch watch;
    uint64_t waited = 0, moved_at = 0;
    if (!status) status = let_pass(cluster, cluster->timeouts.core_reset_us, failure);
    if (!status) status = lora_links_write(cluster, LORA_LINK_CORE_RESET, 0, failure);
    lora_stopwatch_start(&watch);
    while (!status && !all && waited - moved_at <= SETTLE_US &&
           waited <= cluster->timeouts.link_up_us) {
        watch.slept_us += slice;
        status = let_pass(cluster, slice, failure);
        if (!status) status = look(cluster, found, &all, &moved, failure);
        waited = lora_stopwatch_us(&watch, cluster->boards[0].transport);
        if (moved) moved_at = waited;
    }
    if (!status) status = lora_links_write(cluster, LORA_LINK_COUNTER_RESET, 1, failure);
    return status ? status : lora_links_write(cluster, LORA_LINK_COUNTER_RESET, 0, failure);
}

int lora_cluster_links_discover(struct lora_cluster *cluster, struct lora_link_found *found,
                                struct lora_failure *failure) {
    struct lora_failure spare;
    int status = LORA_OK;
    failure = lora_failure_begin(failure, &spare);
    if (!cluster || !found) return lora_fail(failure, LORA_ERR_ARGUMENT, "links_discover: nothing");
    for (uint32_t b = 0; b < cluster->count && !status; b++)
        status = lora_check_ready(cluster, b, failure);
    failure->board = status ? failure->board : -1;
    if (status) return status;
    memset(found, 0, cluster->count * LORA_PORTS * sizeof *found);
    cluster->cable_count = 0;
    status = bring_up(cluster, found, failure);
    return status ? status : lora_link_receive(cluster, found, failure);
}
