/* What the process remembers of boards whose runtime has fallen silent. A slow board that lives is
 * never taken for a silent one: it has the whole limit of a register for its answer. */
#define _GNU_SOURCE
#include "transport_xrt_watchdog.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "bounded.h"

struct xrt_place {
    struct xrt_place *next;
    char address[64];
    atomic_int left; /* calls that were given up and run still */
    atomic_uint stuck;
};

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t probed = PTHREAD_COND_INITIALIZER;
static struct xrt_place *places;
static struct xrt_handle *watched;
static uint32_t silences; /* calls that were given up so far */

struct xrt_place *xrt_place_of(const char *address) {
    pthread_mutex_lock(&guard);
    struct xrt_place *place = places;
    while (place && strcmp(place->address, address)) place = place->next;
    if (!place && (place = calloc(1, sizeof *place))) {
        memcpy(place->address, address, strlen(address) + 1);
        place->next = places;
        places = place;
    }
    pthread_mutex_unlock(&guard);
    return place;
}

unsigned xrt_place_stuck(struct xrt_place *place) {
    return atomic_load(&place->left) > 0 ? atomic_load(&place->stuck) : 0;
}

void xrt_place_left(struct xrt_place *place, unsigned stuck) {
    atomic_store(&place->stuck, stuck);
    atomic_fetch_add(&place->left, 1); /* its return may have been counted already */
}

void xrt_place_back(struct xrt_place *place) { atomic_fetch_sub(&place->left, 1); }

void xrt_watch(struct xrt_handle *board) {
    pthread_mutex_lock(&guard);
    board->watch.answered = silences;
    board->watch.next = watched;
    watched = board;
    pthread_mutex_unlock(&guard);
}

void xrt_unwatch(struct xrt_handle *board) {
    pthread_mutex_lock(&guard);
    while (board->watch.probed) pthread_cond_wait(&probed, &guard);
    struct xrt_handle **at = &watched;
    while (*at && *at != board) at = &(*at)->watch.next;
    if (*at) *at = board->watch.next;
    pthread_mutex_unlock(&guard);
}

void xrt_enter(struct xrt_handle *board, const struct xrt_call *call) {
    pthread_mutex_lock(&guard);
    while (board->watch.probed) pthread_cond_wait(&probed, &guard);
    board->watch.calls++;
    if (call->what == XRT_CLOSE_KERNEL) board->watch.kernel = NULL;
    pthread_mutex_unlock(&guard);
}

void xrt_leave(struct xrt_handle *board, const struct xrt_call *call, int answered) {
    pthread_mutex_lock(&guard);
    board->watch.calls--;
    if (answered) board->watch.answered = silences;
    if (call->what == XRT_OPEN_KERNEL) board->watch.kernel = call->found;
    pthread_mutex_unlock(&guard);
}

void xrt_give_up(struct xrt_handle *board, enum xrt_what what, uint32_t limit_ms) {
    unsigned none = 0, stuck = limit_ms << 8 | ((unsigned)what + 1);
    atomic_compare_exchange_strong(&board->stuck, &none, stuck);
    xrt_place_left(board->watch.place, atomic_load(&board->stuck));
    pthread_mutex_lock(&guard);
    silences++;
    pthread_mutex_unlock(&guard);
}

/* With the guard held. A board with a call under way has that call's limit. */
static int is_unresponsive(const struct xrt_handle *board) {
    const struct xrt_watch *watch = &board->watch;
    return watch->kernel && watch->answered != silences && !watch->calls && !watch->probed &&
           !atomic_load(&board->stuck);
}

struct probe {
    struct xrt_handle *board;
    struct lora_bounded_call *begun;
    struct xrt_call call;
};

static uint32_t take_unresponsive(struct probe *probes) {
    uint32_t count = 0;
    for (struct xrt_handle *it = watched; it && count < LORA_MAX_BOARDS; it = it->watch.next) {
        if (!is_unresponsive(it)) continue;
        it->watch.probed = 1;
        probes[count++].board = it;
    }
    return count;
}

static void probe(struct probe *probes, uint32_t count, xrt_probe_fn *begin, uint32_t limit_ms) {
    for (uint32_t i = 0; i < count; i++)
        probes[i].begun = begin(probes[i].board, probes[i].board->watch.kernel, limit_ms,
                                &probes[i].call);
    for (uint32_t i = 0; i < count; i++) {
        struct xrt_handle *board = probes[i].board;
        int answered = lora_bounded_end(probes[i].begun, &probes[i].call, sizeof probes[i].call);
        if (!answered) xrt_give_up(board, XRT_READ, limit_ms);
        pthread_mutex_lock(&guard);
        if (answered) board->watch.answered = silences;
        board->watch.probed = 0;
        pthread_cond_broadcast(&probed);
        pthread_mutex_unlock(&guard);
    }
}

void xrt_probe_silent(struct xrt_handle *board, xrt_probe_fn *begin, uint32_t limit_ms) {
    pthread_mutex_lock(&guard);
    while (board->watch.probed) pthread_cond_wait(&probed, &guard);
    struct probe *probes = is_unresponsive(board) ? calloc(LORA_MAX_BOARDS, sizeof *probes) : NULL;
    uint32_t count = probes ? take_unresponsive(probes) : 0;
    pthread_mutex_unlock(&guard);
    probe(probes, count, begin, limit_ms);
    free(probes);
}
