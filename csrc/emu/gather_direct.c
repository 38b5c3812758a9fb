/* All-gathers without frames. Where all boards begin the same gather at once and no link has a
 * fault, it is known which frames would move and that all would arrive: each board files the
 * others' columns itself, on its own thread, and counters advance by what frames of such a gather
 * have added to them. Everything else takes router.c's way, also the first two gathers of a
 * shape: one makes the plan, the next is counted.
 *
 * A gather that follows one without frames at once is offered by each board, on its thread. If
 * the offers agree, it needs no frames either: what no board can see of itself was found before the
 * first one, and no board's firmware changes it. */
#include "board.h"

#include <string.h>

/* --- whether a gather may do without frames --------------------------------------------------- */
static bool begins(const struct emu_board *board) {
    const struct emu_router *router = &board->router;
    return board->links_awake && router->state == LORA_UNIT_BUSY && router->command &&
           router->prepared && router->boards == board->cluster->boards && router->kept_bytes > 0 &&
           !router->misfile.on && !router->stuck && !board->link_test.active;
}

static bool all_begin(const struct emu_cluster *cluster) {
    for (uint32_t b = 0; b < cluster->boards; b++)
        if (!begins(&cluster->board[b])) return false;
    return cluster->boards > 1 && !cluster->has_far;
}

/* Boards by rank; false where they do not take part in one and the same gather. */
static bool find_ranks(struct emu_cluster *cluster, struct emu_router *routers[]) {
    const struct emu_router *first = &cluster->board[0].router;
    memset(routers, 0, cluster->boards * sizeof *routers);
    for (uint32_t b = 0; b < cluster->boards; b++) {
        struct emu_router *router = &cluster->board[b].router;
        if (router->plan != first->plan || router->ring != first->ring ||
            router->epoch != first->epoch || router->step != first->step ||
            router->collective != first->collective || routers[router->rank])
            return false;
        routers[router->rank] = router;
    }
    return true;
}

/* Nothing is in the port's FIFO or comes to harm on the way from it. */
static bool is_clear(const struct emu_port *port) {
    return port->up && port->head == port->tail && !port->held && !emu_port_has_frame_faults(port);
}

/* What leaves one way arrives at the neighbour. */
static bool leads_to(const struct emu_port *port, const struct emu_router *to, uint32_t direction) {
    return port->peer == to->in[direction];
}

static bool are_clear(struct emu_router *const *routers, uint32_t boards) {
    for (uint32_t rank = 0; rank < boards; rank++) {
        const struct emu_router *router = routers[rank];
        const struct emu_router *next = routers[(rank + 1) % boards];
        const struct emu_router *previous = routers[(rank + boards - 1) % boards];
        const struct emu_port *forward = router->out[EMU_NEXT], *back = router->out[EMU_PREVIOUS];
        if (forward && !(is_clear(forward) && leads_to(forward, next, EMU_NEXT))) return false;
        if (back && !(is_clear(back) && leads_to(back, previous, EMU_PREVIOUS))) return false;
    }
    return true;
}

/* --- counters --------------------------------------------------------------------------------- */
/* What a port's counters are now, less what is in `before`. */
static struct gather_port counted(const struct emu_router *router, const struct emu_port *port,
                                  const struct gather_port *before) {
    const struct emu_port_counters *counters = &port->counters;
    return (struct gather_port){.sent = router->out_of[port->index],
                                .received = router->in_by[port->index],
                                .tx = counters->tx - before->tx,
                                .rx = counters->rx - before->rx,
                                .frames = counters->frames_received - before->frames,
                                .stops = counters->flow_full - before->stops,
                                .frame_bytes = port->frame_bytes - before->frame_bytes,
                                .payload_bytes = port->payload_bytes - before->payload_bytes};
}

/* Of all ports that take part, by rank and direction. */
static void count_all(struct emu_router *const *routers, uint32_t boards,
                      const struct gather_counts *before, struct gather_counts *counts) {
    for (uint32_t rank = 0; rank < boards; rank++)
        for (uint32_t d = 0; d < EMU_DIRECTIONS; d++)
            if (routers[rank]->out[d])
                counts[rank].ports[d] = counted(routers[rank], routers[rank]->out[d],
                                                &before[rank].ports[d]);
}

/* Whether the counts will be the same again: at a full FIFO they depend on the order in which
 * boards move. */
static bool is_repeatable(const struct emu_router *router, const struct gather_counts *counts) {
    return router->state == LORA_UNIT_DONE && counts->ports[EMU_NEXT].stops == 0 &&
           counts->ports[EMU_PREVIOUS].stops == 0;
}

/* This gather moves frames, which are counted. */
static void learn(struct emu_cluster *cluster, struct emu_router *const *routers) {
    static const struct gather_counts none[LORA_MAX_BOARDS];
    struct gather_counts before[LORA_MAX_BOARDS];
    struct gather_plan *plan = routers[0]->plan;
    count_all(routers, cluster->boards, none, before);
    emu_router_settle(cluster);
    count_all(routers, cluster->boards, before, plan->counts);
    plan->counted_ring = routers[0]->ring;
    plan->counted = true;
    for (uint32_t rank = 0; rank < cluster->boards; rank++)
        if (!is_repeatable(routers[rank], &plan->counts[rank])) plan->counted = false;
}

static bool is_counted(const struct emu_router *router) {
    return router->plan->counted && router->plan->counted_ring == router->ring;
}

static void begin(struct emu_cluster *cluster, struct emu_router *const *routers) {
    for (uint32_t rank = 0; rank < cluster->boards; rank++) {
        cluster->routers[rank] = routers[rank];
        memcpy(routers[rank]->direct_out, routers[rank]->out, sizeof routers[rank]->out);
    }
    for (uint32_t b = 0; b < cluster->boards; b++) cluster->board[b].awake = true;
    cluster->direct = true;
}

bool emu_gather_direct(struct emu_cluster *cluster) {
    struct emu_router *routers[LORA_MAX_BOARDS];
    if (!all_begin(cluster) || !find_ranks(cluster, routers) ||
        !are_clear(routers, cluster->boards))
        return false;
    if (is_counted(routers[0])) begin(cluster, routers);
    else learn(cluster, routers);
    return true;
}

bool emu_gather_follows(const struct gather_offer *const *offers, uint32_t boards) {
    const struct gather_offer *first = offers[0];
    for (uint32_t b = 0; b < boards; b++) {
        const struct gather_offer *offer = offers[b];
        if (!offer->plan || offer->plan != first->plan || offer->epoch != first->epoch ||
            offer->step != first->step || offer->collective != first->collective)
            return false;
    }
    return true;
}

/* --- on the own thread of a board ------------------------------------------------------------- */
struct gather_offer emu_gather_offer(const struct emu_board *board) {
    const struct emu_router *router = &board->router;
    struct gather_offer offer = {
        .epoch = router->epoch, .step = router->step, .collective = router->collective};
    if (!begins(board) || !is_counted(router) || board->cluster->routers[router->rank] != router)
        return offer;
    for (uint32_t d = 0; d < EMU_DIRECTIONS; d++) {
        const struct emu_port *port = router->out[d];
        if (port != router->direct_out[d] || (port && !is_clear(port))) return offer;
    }
    offer.plan = router->plan;
    return offer;
}

static void file_columns(const struct emu_router *router, uint32_t source, const uint8_t *kept) {
    const struct gather_plan *plan = router->plan;
    uint64_t element = plan->shape.element_bytes, first = plan->share_start[source] * element;
    uint64_t width = plan->share_start[source + 1] * element - first;
    for (uint32_t row = 0; row < plan->shape.rows; row++)
        memcpy(router->base + (uint64_t)row * router->stride + first, kept + row * width, width);
}

/* As if the source's blocks had come by frames. */
static void note_received(struct emu_router *router, uint32_t source) {
    const struct gather_source *from = &router->plan->sources[source];
    for (uint32_t number = 0; number < from->block_count; number++)
        router->received[source * router->plan->max_blocks + number] = from->blocks[number].bytes;
}

static void add_counts(struct emu_port *port, const struct gather_port *more) {
    port->counters.tx += more->tx;
    port->counters.rx += more->rx;
    port->counters.frames_received += more->frames;
    port->frame_bytes += more->frame_bytes;
    port->payload_bytes += more->payload_bytes;
}

static void note_done(struct emu_board *board) {
    struct emu_router *router = &board->router;
    const struct gather_plan *plan = router->plan;
    router->frames_sent = router->frames_received = 0;
    router->frames_dropped = board->frames_dropped;
    board->frames_dropped = 0;
    router->failed_port = LORA_NO_PORT;
    router->status = LORA_OK;
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++) router->groups_done[s] = plan->groups;
    memset(router->missing, 0, sizeof router->missing);
    router->missing_total = 0;
    for (uint32_t d = 0; d < EMU_DIRECTIONS; d++) {
        struct emu_port *port = router->out[d];
        const struct gather_port *counts = &plan->counts[router->rank].ports[d];
        if (!port) continue;
        add_counts(port, counts);
        router->cursor[d].block = plan->sources[router->rank].block_count;
        router->out_of[port->index] = counts->sent;
        router->in_by[port->index] = counts->received;
        router->frames_sent += counts->sent;
        router->frames_received += counts->received;
    }
    router->state = LORA_UNIT_DONE;
}

void emu_gather_file(struct emu_board *board) {
    struct emu_router *router = &board->router;
    const struct emu_cluster *cluster = board->cluster;
    uint64_t began = emu_profiler_begin(&cluster->profiler);
    for (uint32_t source = 0; source < router->boards; source++) {
        if (source == router->rank) continue;
        file_columns(router, source, cluster->routers[source]->kept[router->kept_place]);
        note_received(router, source);
    }
    note_done(board);
    router->command = NULL;
    board->links_awake = false;
    router->kept_place ^= 1; /* others still read this one */
    emu_profiler_end(&cluster->profiler, &board->tally, EMU_LINKS, began);
}
