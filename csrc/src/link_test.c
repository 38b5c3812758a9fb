/* Proof of every cable by payload: links with clean error bits that deliver wrong bytes are known,
 * and so are cables in the wrong port. All boards run the test at once. */
#include "internal.h"

#include <string.h>

#define TEST_FRAMES 64
#define TEST_PAYLOAD 1024
#define TEST_OFFSET LORA_CONTROL_PAGE

struct proof {
    lora_boards mask;      /* boards with a cable */
    lora_boards temporary; /* boards whose control arena is reserved for the test alone */
    struct lora_link_test tests[LORA_MAX_BOARDS];
    struct lora_link_test kept[LORA_MAX_BOARDS]; /* what stood there before */
};

static int has_channel(struct lora_cluster *cluster, uint32_t board, uint32_t port) {
    struct lora_failure ignored;
    uint32_t value = 0;
    if (!cluster->boards[board].programmed) return 0;
    return !lora_register_read(cluster, board, LORA_BLOCK_LINK0 + port, LORA_LINK_STATUS, &value,
                               lora_failure_begin(NULL, &ignored)) &&
           value == LORA_LINK_HEALTHY;
}

/* Every port with a cable takes part; or, to find out who is where, every port with a channel. */
static void plan(struct lora_cluster *cluster, int everyone, struct proof *proof) {
    memset(proof, 0, sizeof *proof);
    for (uint32_t b = 0; b < cluster->count; b++) {
        struct lora_link_test *test = &proof->tests[b];
        *test = (struct lora_link_test){.size = sizeof *test,
                                        .frames = TEST_FRAMES,
                                        .payload = TEST_PAYLOAD,
                                        .seed = 0x5eed0000u + cluster->epoch};
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            uint32_t peer_board, peer_port;
            test->ports[p].peer_serial = test->ports[p].peer_port = LORA_NONE;
            if (everyone ? !has_channel(cluster, b, p)
                         : !lora_cable_peer(cluster, b, p, &peer_board, &peer_port))
                continue;
            test->ports[p].enabled = 1;
            proof->mask |= lora_board_bit(b);
        }
    }
}

static int has_control_arena(const struct lora_board *board) {
    for (uint32_t a = 0; a < board->arena_count; a++)
        if (board->arenas[a].bank == board->control_bank) return 1;
    return 0;
}

static int place_blocks(struct lora_cluster *cluster, struct proof *proof,
                        struct lora_failure *failure) {
    for (uint32_t b = 0; b < cluster->count; b++) {
        struct lora_board *it = &cluster->boards[b];
        int status = LORA_OK;
        if (!(proof->mask >> b & 1)) continue;
        if (!has_control_arena(it)) {
            status = lora_cluster_reserve(cluster, b, it->control_bank, 0, LORA_CONTROL_MINIMUM,
                                          failure);
            if (!status) proof->temporary |= lora_board_bit(b);
        }
        if (!status)
            status = lora_memory_read(cluster, b, it->control_bank, TEST_OFFSET, &proof->kept[b],
                                      sizeof proof->kept[b], failure);
        if (!status)
            status = lora_memory_write(cluster, b, it->control_bank, TEST_OFFSET, &proof->tests[b],
                                       sizeof proof->tests[b], failure);
        if (status) return status;
    }
    return LORA_OK;
}

/* Reads the results and puts back what stood there. */
static int collect(struct lora_cluster *cluster, struct proof *proof,
                   struct lora_failure *failure) {
    for (uint32_t b = 0; b < cluster->count; b++) {
        struct lora_board *it = &cluster->boards[b];
        if (!(proof->mask >> b & 1)) continue;
        int status = lora_memory_read(cluster, b, it->control_bank, TEST_OFFSET, &proof->tests[b],
                                      sizeof proof->tests[b], failure);
        if (!status)
            status = lora_memory_write(cluster, b, it->control_bank, TEST_OFFSET, &proof->kept[b],
                                       sizeof proof->kept[b], failure);
        if (status) return status;
    }
    return LORA_OK;
}

static int release(struct lora_cluster *cluster, const struct proof *proof,
                   struct lora_failure *failure) {
    int first = LORA_OK;
    for (uint32_t b = 0; b < cluster->count; b++) {
        if (!(proof->temporary >> b & 1)) continue;
        int status = lora_memory_release(cluster, b, cluster->boards[b].control_bank, 0, failure);
        if (!first) first = status;
    }
    return first;
}

static int check_payload(const struct lora_cluster *cluster, uint32_t board, uint32_t port,
                         const struct lora_link_test_port *result, struct lora_failure *failure) {
    if (result->sent == TEST_FRAMES && result->received == TEST_FRAMES && !result->bad)
        return LORA_OK;
    failure->found = result->bad ? result->bad : result->received;
    failure->expected = result->bad ? 0 : TEST_FRAMES;
    return lora_fail_link(cluster, board, port, LORA_ERR_LINK_PAYLOAD, failure,
                          "sent %u and received %u test frames, %u of them wrong; %d, %d and 0 "
                          "expected",
                          result->sent, result->received, result->bad, TEST_FRAMES, TEST_FRAMES);
}

static int check_peer(const struct lora_cluster *cluster, uint32_t board, uint32_t port,
                      const struct lora_link_test_port *result, struct lora_failure *failure) {
    uint32_t peer_board = 0, peer_port = 0;
    lora_cable_peer(cluster, board, port, &peer_board, &peer_port);
    uint32_t serial = cluster->boards[peer_board].info.serial;
    if (result->peer_serial == LORA_NONE)
        return LORA_OK; /* nothing received: the check of the payload reports it */
    if (result->peer_serial == serial && result->peer_port == peer_port) return LORA_OK;
    failure->found = result->peer_serial;
    failure->expected = serial;
    return lora_fail_link(
        cluster, board, port, LORA_ERR_LINK_CABLING, failure,
        "receives serial %u port %u, serial %u port %u expected; correct the cable "
        "or the cabling map",
        result->peer_serial, result->peer_port, serial, peer_port);
}

typedef int check_fn(const struct lora_cluster *cluster, uint32_t board, uint32_t port,
                     const struct lora_link_test_port *result, struct lora_failure *failure);

static int check_all(const struct lora_cluster *cluster, const struct proof *proof, check_fn *check,
                     struct lora_failure *failure) {
    for (uint32_t b = 0; b < cluster->count; b++)
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            uint32_t peer_board, peer_port;
            if (!lora_cable_peer(cluster, b, p, &peer_board, &peer_port)) continue;
            int status = check(cluster, b, p, &proof->tests[b].ports[p], failure);
            if (status) return status;
        }
    return LORA_OK;
}

/* Runs the test and leaves its results in `proof`. A board that ended it with an error has still
 * written what it counted, so the results are read then too; after a cancelled or hanging run
 * nothing is. Returns the run's status. */
static int run_test(struct lora_cluster *cluster, struct proof *proof,
                    struct lora_failure *failure) {
    struct lora_failure later;
    const struct lora_run run = {.operation = LORA_OP_LINK_TEST,
                                 .block_offset = TEST_OFFSET,
                                 .timeout_us = cluster->timeouts.link_test_us,
                                 .watchdog_ms = cluster->timeouts.link_test_us / 2000};
    int status = place_blocks(cluster, proof, failure);
    if (!status) status = lora_run(cluster, proof->mask, &run, failure);
    if (status < LORA_ERR_ARGUMENT) {
        int read = collect(cluster, proof, lora_failure_begin(NULL, &later));
        if (!status && read) *failure = later;
        if (!status) status = read;
    }
    int released = release(cluster, proof, status ? lora_failure_begin(NULL, &later) : failure);
    return status ? status : released;
}

/* Too little arrived: does the cable sit in another port? All ports with a channel say who they
 * are. Without an answer the first finding is kept. */
static int look_around(struct lora_cluster *cluster, struct proof *proof,
                       struct lora_failure *failure) {
    struct lora_failure found, ignored;
    plan(cluster, 1, proof);
    int status = run_test(cluster, proof, lora_failure_begin(NULL, &ignored));
    if (status < LORA_ERR_ARGUMENT &&
        check_all(cluster, proof, check_peer, lora_failure_begin(NULL, &found)))
        *failure = found;
    return (int)failure->code;
}

int lora_link_prove(struct lora_cluster *cluster, struct lora_failure *failure) {
    struct proof proof;
    struct lora_failure found;
    plan(cluster, 0, &proof);
    int status = run_test(cluster, &proof, failure);
    if (status >= LORA_ERR_ARGUMENT) return status;
    lora_failure_begin(&found, NULL);
    if (check_all(cluster, &proof, check_peer, &found)) {
        *failure = found;
        return (int)found.code;
    }
    if (check_all(cluster, &proof, check_payload, &found)) {
        *failure = found;
        return look_around(cluster, &proof, failure);
    }
    return status;
}

int lora_link_receive(struct lora_cluster *cluster, struct lora_link_found *found,
                      struct lora_failure *failure) {
    struct proof proof;
    plan(cluster, 1, &proof);
    int status = proof.mask ? run_test(cluster, &proof, failure) : LORA_OK;
    if (status >= LORA_ERR_ARGUMENT) return status;
    for (uint32_t b = 0; b < cluster->count; b++)
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            const struct lora_link_test_port *port = &proof.tests[b].ports[p];
            struct lora_link_found *to = &found[b * LORA_PORTS + p];
            to->sent = port->sent;
            to->received = port->received;
            to->bad = port->bad;
            to->peer_serial = port->peer_serial;
            to->peer_port = port->peer_port;
        }
    return LORA_OK; /* what a board reports of bad frames is in the counts */
}
