/* Polling of started runs, on the transport's own clock, with an end to every wait. */
#define _POSIX_C_SOURCE 200809L
#include "internal.h"

#include <time.h>

#define CANCEL_INTERVAL_NS 20000000u /* a person does not notice 20 ms; Python's lock is taken */

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void lora_stopwatch_start(struct lora_stopwatch *watch) {
    *watch = (struct lora_stopwatch){.began_ns = now_ns()};
}

uint64_t lora_stopwatch_us(const struct lora_stopwatch *watch,
                           const struct lora_transport *transport) {
    return transport->real_time ? (now_ns() - watch->began_ns) / 1000 : watch->slept_us;
}

int lora_cancel_wanted(struct lora_cluster *cluster) {
    if (atomic_exchange(&cluster->cancel, 0)) return 1;
    if (!cluster->cancelled) return 0;
    uint64_t now = now_ns();
    if (now - cluster->cancel_asked_ns < CANCEL_INTERVAL_NS) return 0;
    cluster->cancel_asked_ns = now;
    return cluster->cancelled(cluster->cancel_context) != 0;
}

void lora_cluster_cancel(struct lora_cluster *cluster) {
    if (cluster) atomic_store(&cluster->cancel, 1);
}

void lora_cluster_on_poll(struct lora_cluster *cluster, int (*cancelled)(void *context),
                          void *context) {
    if (!cluster) return;
    cluster->cancelled = cancelled;
    cluster->cancel_context = context;
    cluster->cancel_asked_ns = now_ns();
}

/* Polls each board of *pending once and takes out those that are done or broken. */
static int poll_once(struct lora_cluster *cluster, lora_boards *pending,
                     struct lora_failure *failure) {
    for (uint32_t b = 0; b < cluster->count; b++) {
        struct lora_board *it = &cluster->boards[b];
        uint32_t state = LORA_RUN_BUSY;
        if (!(*pending >> b & 1)) continue;
        cluster->stats.polls++;
        int status = it->transport->poll(it->handle, &state, failure);
        if (status) return lora_fail_board(cluster, b, status, failure);
        if (state != LORA_RUN_DONE) continue;
        it->in_flight = 0;
        *pending &= ~lora_board_bit(b);
    }
    return LORA_OK;
}

static uint32_t first_of(lora_boards mask) {
    uint32_t b = 0;
    while (!(mask >> b & 1)) b++;
    return b;
}

static int hang(struct lora_cluster *cluster, lora_boards pending, uint32_t timeout_us,
                struct lora_failure *failure) {
    uint32_t b = first_of(pending);
    failure->board = (int32_t)b;
    lora_fail(failure, LORA_ERR_TIMEOUT,
              "board %u (%s) hangs: neither done nor failed within %.3f s; see the report, then "
              "reset the cluster",
              b, cluster->boards[b].info.address, (double)timeout_us / 1e6);
    lora_report_capture(cluster, failure->message);
    cluster->hung = 1;
    cluster->hang = *failure;
    return LORA_ERR_TIMEOUT;
}

/* The longer the wait, the rarer the polls: a wake-up costs this computer more than a board's
 * register read. The delay is at most a 64th of the wait so far. */
static uint32_t pause_us(const struct lora_cluster *cluster, uint64_t waited) {
    uint64_t pause = waited / 64 < 1000 ? waited / 64 : 1000;
    return pause > cluster->timeouts.poll_us ? (uint32_t)pause : cluster->timeouts.poll_us;
}

int lora_let_pass(struct lora_cluster *cluster, uint32_t board, uint32_t microseconds,
                  struct lora_failure *failure) {
    struct lora_board *it = &cluster->boards[board];
    cluster->stats.waited_us += microseconds;
    return lora_fail_board(cluster, board, it->transport->sleep(it->handle, microseconds, failure),
                           failure);
}

int lora_pause(struct lora_cluster *cluster, uint32_t board, struct lora_stopwatch *watch,
               struct lora_failure *failure) {
    struct lora_board *it = &cluster->boards[board];
    uint32_t pause = pause_us(cluster, lora_stopwatch_us(watch, it->transport));
    watch->slept_us += pause;
    return lora_let_pass(cluster, board, pause, failure);
}

int lora_wait(struct lora_cluster *cluster, lora_boards mask, uint32_t timeout_us,
              struct lora_failure *failure) {
    struct lora_stopwatch watch;
    lora_stopwatch_start(&watch);
    return lora_wait_on(cluster, mask, timeout_us, &watch, failure);
}

int lora_wait_on(struct lora_cluster *cluster, lora_boards mask, uint32_t timeout_us,
                 struct lora_stopwatch *watch, struct lora_failure *failure) {
    lora_boards pending = mask;
    int late = 0; /* this process may have been stopped since it looked, and the boards done */
    while (1) {
        int status = poll_once(cluster, &pending, failure);
        if (status || !pending) return status;
        if (lora_cancel_wanted(cluster))
            return lora_fail(failure, LORA_ERR_CANCELLED, "cancelled while boards were running");
        uint32_t b = first_of(pending);
        uint64_t waited = lora_stopwatch_us(watch, cluster->boards[b].transport);
        if (waited >= timeout_us) {
            if (late) return hang(cluster, pending, timeout_us, failure);
            late = 1;
            continue;
        }
        status = lora_pause(cluster, b, watch, failure);
        if (status) return status;
    }
}

int lora_drain(struct lora_cluster *cluster, struct lora_failure *failure) {
    lora_boards mask = 0;
    for (uint32_t b = 0; b < cluster->count; b++)
        if (cluster->boards[b].in_flight) mask |= lora_board_bit(b);
    return mask ? lora_wait(cluster, mask, cluster->timeouts.step_us, failure) : LORA_OK;
}
