/* Bring-up of the Aurora links, always on both ends of a cable. */
#include "internal.h"

#include <string.h>

#define STATUS_POLLS 50 /* times poll_us between two looks at a link: it changes slowly */

struct end {
    uint32_t board, port;
};

static uint32_t ends_of(const struct lora_cluster *cluster, struct end ends[2 * LORA_MAX_CABLES]) {
    uint32_t count = 0;
    for (uint32_t c = 0; c < cluster->cable_count; c++) {
        ends[count++] = (struct end){cluster->cables[c].board_a, cluster->cables[c].port_a};
        ends[count++] = (struct end){cluster->cables[c].board_b, cluster->cables[c].port_b};
    }
    return count;
}

/* To all ports, also those that the map leaves free. A cable in the wrong port then has a channel,
 * and the payload test can tell which port that is. */
int lora_links_write(struct lora_cluster *cluster, uint32_t offset, uint32_t value,
                     struct lora_failure *failure) {
    for (uint32_t b = 0; b < cluster->count; b++)
        for (uint32_t p = 0; p < LORA_PORTS && cluster->boards[b].programmed; p++) {
            int status = lora_register_write(cluster, b, LORA_BLOCK_LINK0 + p, offset, value,
                                             failure);
            if (status) return status;
        }
    return LORA_OK;
}

static int let_pass(struct lora_cluster *cluster, uint32_t microseconds,
                    struct lora_failure *failure) {
    return lora_let_pass(cluster, cluster->cables[0].board_a, microseconds, failure);
}

static const char *symptom(uint32_t status) {
    if ((status & 0xf) != 0xf) return "transceiver without power";
    if (!(status & 0x100)) return "PLL not locked";
    if (status & 0x200) return "MMCM not locked";
    if ((status & 0xf0) != 0xf0) return "lanes down";
    if (status & 0x400) return "hard error";
    if (status & 0x800) return "soft error";
    return "channel down";
}

static int wait_healthy(struct lora_cluster *cluster, struct lora_failure *failure) {
    struct end ends[2 * LORA_MAX_CABLES];
    uint32_t count = ends_of(cluster, ends), slice = cluster->timeouts.poll_us * STATUS_POLLS;
    uint32_t e = 0, value = 0;
    struct lora_stopwatch watch;
    lora_stopwatch_start(&watch);
    for (;; watch.slept_us += slice) {
        for (; e < count; e++) { /* those before e have been seen healthy */
            int status = lora_register_read(cluster, ends[e].board, LORA_BLOCK_LINK0 + ends[e].port,
                                            LORA_LINK_STATUS, &value, failure);
            if (status) return status;
            if (value != LORA_LINK_HEALTHY) break;
        }
        if (e == count) return LORA_OK;
        const struct lora_transport *transport = cluster->boards[ends[e].board].transport;
        if (lora_stopwatch_us(&watch, transport) >= cluster->timeouts.link_up_us) break;
        int status = let_pass(cluster, slice, failure);
        if (status) return status;
    }
    failure->found = value;
    failure->expected = LORA_LINK_HEALTHY;
    return lora_fail_link(
        cluster, ends[e].board, ends[e].port, LORA_ERR_LINK_STATUS, failure,
        "is not up after %.1f s: status 0x%04x found, 0x%04x expected (%s); check "
        "the cable",
        (double)cluster->timeouts.link_up_us / 1e6, value, LORA_LINK_HEALTHY, symptom(value));
}

static int check_configuration(struct lora_cluster *cluster, uint32_t wanted, uint32_t mask,
                               struct lora_failure *failure) {
    struct end ends[2 * LORA_MAX_CABLES];
    uint32_t count = ends_of(cluster, ends);
    for (uint32_t e = 0; e < count; e++) {
        uint32_t value = 0;
        int status = lora_register_read(cluster, ends[e].board, LORA_BLOCK_LINK0 + ends[e].port,
                                        LORA_LINK_CONFIGURATION, &value, failure);
        if (status) return status;
        if (!((value ^ wanted) & mask)) continue;
        failure->found = value;
        failure->expected = wanted;
        return lora_fail_link(cluster, ends[e].board, ends[e].port, LORA_ERR_LINK_CONFIG, failure,
                              "has framing %s and width %u B; the manifest has framing %s and "
                              "width %u B",
                              value & LORA_LINK_FRAMING ? "on" : "off", value >> 2 & 0x1ff,
                              wanted & LORA_LINK_FRAMING ? "on" : "off", wanted >> 2 & 0x1ff);
    }
    return LORA_OK;
}

static int check_cables(const struct lora_cluster *cluster, const struct lora_cable *cables,
                        uint32_t count, struct lora_failure *failure) {
    uint32_t used[LORA_MAX_BOARDS] = {0};
    if (count > LORA_MAX_CABLES || (count && !cables))
        return lora_fail(failure, LORA_ERR_ARGUMENT, "%u cables, at most %d expected", count,
                         LORA_MAX_CABLES);
    for (uint32_t c = 0; c < count; c++) {
        const struct end ends[2] = {{cables[c].board_a, cables[c].port_a},
                                    {cables[c].board_b, cables[c].port_b}};
        for (int e = 0; e < 2; e++) {
            if (ends[e].board >= cluster->count || ends[e].port >= LORA_PORTS)
                return lora_fail(
                    failure, LORA_ERR_ARGUMENT,
                    "cable %u: board %u port %u; boards 0..%u and ports 0..%d expected", c,
                    ends[e].board, ends[e].port, cluster->count - 1, LORA_PORTS - 1);
            if (used[ends[e].board] >> ends[e].port & 1)
                return lora_fail(failure, LORA_ERR_ARGUMENT,
                                 "cable %u: board %u port %u has a cable already", c, ends[e].board,
                                 ends[e].port);
            used[ends[e].board] |= 1u << ends[e].port;
        }
        if (ends[0].board == ends[1].board)
            return lora_fail(failure, LORA_ERR_ARGUMENT, "cable %u: both ends on board %u", c,
                             ends[0].board);
    }
    return LORA_OK;
}

static int check_open(struct lora_cluster *cluster, const struct lora_cable *cables, uint32_t count,
                      struct lora_failure *failure) {
    if (!cluster) return lora_fail(failure, LORA_ERR_ARGUMENT, "no cluster");
    int status = check_cables(cluster, cables, count, failure);
    for (uint32_t c = 0; c < count && !status; c++) {
        status = lora_check_ready(cluster, cables[c].board_a, failure);
        if (!status) status = lora_check_ready(cluster, cables[c].board_b, failure);
    }
    failure->board = status ? failure->board : -1;
    return status;
}

int lora_cluster_links_up(struct lora_cluster *cluster, const struct lora_cable *cables,
                          uint32_t count, uint32_t configuration, uint32_t configuration_mask,
                          struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    int status = check_open(cluster, cables, count, failure);
    if (status) return status;
    if (count) memcpy(cluster->cables, cables, count * sizeof *cables);
    cluster->cable_count = count;
    if (!count) return LORA_OK;
    status = lora_links_write(cluster, LORA_LINK_CORE_RESET, 1, failure);
    if (!status) status = let_pass(cluster, cluster->timeouts.core_reset_us, failure);
    if (!status) status = lora_links_write(cluster, LORA_LINK_CORE_RESET, 0, failure);
    if (!status) status = wait_healthy(cluster, failure);
    if (!status) status = check_configuration(cluster, configuration, configuration_mask, failure);
    if (!status) status = lora_links_write(cluster, LORA_LINK_COUNTER_RESET, 1, failure);
    if (!status) status = lora_links_write(cluster, LORA_LINK_COUNTER_RESET, 0, failure);
    return status ? status : lora_link_prove(cluster, failure);
}

int lora_cluster_link_status(struct lora_cluster *cluster, uint32_t board, uint32_t port,
                             struct lora_link_status *status, struct lora_failure *failure) {
    struct lora_failure spare;
    failure = lora_failure_begin(failure, &spare);
    int result = lora_check_ready(cluster, board, failure);
    if (!result && (port >= LORA_PORTS || !status))
        result = lora_fail(failure, LORA_ERR_ARGUMENT, "board %u: port %u; ports 0..%d expected",
                           board, port, LORA_PORTS - 1);
    if (result) return result;
    const struct {
        uint32_t offset, *value;
    } reads[] = {
        {LORA_LINK_STATUS, &status->status},
        {LORA_LINK_CONFIGURATION, &status->configuration},
        {LORA_LINK_FRAMES_RECEIVED, &status->frames_received},
        {LORA_LINK_FRAMES_WITH_ERRORS, &status->frames_with_errors},
        {LORA_LINK_CHANNEL_DOWN, &status->channel_down},
        {LORA_LINK_RX_OVERFLOWS, &status->rx_overflows},
    };
    for (uint32_t i = 0; i < sizeof reads / sizeof reads[0] && !result; i++)
        result = lora_register_read(cluster, board, LORA_BLOCK_LINK0 + port, reads[i].offset,
                                    reads[i].value, failure);
    return result;
}
