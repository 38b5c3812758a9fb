/* Routers of csrc/emu with memory and cables alone. */
#include "reference.h"

#include <stdlib.h>
#include <string.h>

#include "board.h"

struct reference {
    uint32_t boards, onchip_bytes;
    struct emu_cluster *cluster;
    struct emu_port *neighbours; /* the far ends of ports that the test plays the neighbour of */
    struct emu_board *far;       /* whose ports those are */
};

static struct reference *the_reference; /* of the memory below: one at a time */

uint8_t *emu_memory_at(const struct emu_memory *memory, uint32_t bank, uint64_t offset,
                       uint64_t bytes) {
    uint64_t end = the_reference->onchip_bytes;
    if (bank != LORA_BANK_ONCHIP || offset > end || bytes > end - offset) return NULL;
    return memory->base[bank] + offset;
}

static struct emu_port *neighbour(struct reference *r, uint32_t board, uint32_t port) {
    return &r->neighbours[board * LORA_PORTS + port];
}

struct reference *reference_new(uint32_t boards, uint32_t onchip_bytes) {
    struct reference *r = calloc(1, sizeof *r);
    size_t bytes = sizeof(struct emu_cluster) + boards * sizeof(struct emu_board);
    r->cluster = aligned_alloc(LORA_LINE_BYTES, (bytes + 63) / 64 * 64);
    memset(r->cluster, 0, bytes);
    r->far = aligned_alloc(LORA_LINE_BYTES, sizeof *r->far);
    memset(r->far, 0, sizeof *r->far);
    r->far->cluster = r->cluster;
    r->boards = r->cluster->boards = boards;
    r->onchip_bytes = onchip_bytes;
    r->neighbours = calloc(boards * LORA_PORTS, sizeof *r->neighbours);
    for (uint32_t b = 0; b < boards; b++) {
        struct emu_board *board = &r->cluster->board[b];
        board->cluster = r->cluster;
        board->memory.base[LORA_BANK_ONCHIP] = calloc(1, onchip_bytes);
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            struct emu_port *near = &board->ports[p], *far = neighbour(r, b, p);
            emu_port_init(near, board, p);
            emu_port_init(far, r->far, p);
            near->peer = far;
            far->peer = near;
            near->up = far->up = true;
        }
    }
    the_reference = r;
    return r;
}

void reference_free(struct reference *r) {
    for (uint32_t b = 0; b < r->boards; b++) {
        free(r->cluster->board[b].memory.base[LORA_BANK_ONCHIP]);
        for (uint32_t p = 0; p < LORA_PORTS; p++) {
            emu_port_free(&r->cluster->board[b].ports[p]);
            emu_port_free(neighbour(r, b, p));
        }
    }
    for (uint32_t i = 0; i < EMU_PLANS; i++) free(r->cluster->plans.plans[i]);
    free(r->neighbours);
    free(r->far);
    free(r->cluster);
    free(r);
}

uint8_t *reference_onchip(struct reference *r, uint32_t board) {
    return r->cluster->board[board].memory.base[LORA_BANK_ONCHIP];
}

void reference_cable(struct reference *r, uint32_t board, uint32_t port, uint32_t to,
                     uint32_t to_port) {
    struct emu_port *one = &r->cluster->board[board].ports[port];
    struct emu_port *other = &r->cluster->board[to].ports[to_port];
    one->peer = other;
    other->peer = one;
}

void reference_down(struct reference *r, uint32_t board, uint32_t port) {
    r->cluster->board[board].ports[port].up = false;
}

void reference_start(struct reference *r, uint32_t board, const struct lora_gather *command,
                     const struct lora_list *list, const struct lora_step_state *state) {
    emu_router_start(&r->cluster->board[board], command, list, state);
}

typedef void sent_frame(void *user, uint32_t port, const uint8_t *frame, uint32_t bytes);

static void note_ends(const struct emu_board *at, uint32_t ends[LORA_PORTS]) {
    for (uint32_t p = 0; p < LORA_PORTS; p++) ends[p] = at->ports[p].peer->tail;
}

static void tell_sent(const struct emu_board *at, const uint32_t from[LORA_PORTS], sent_frame *sent,
                      void *user) {
    for (uint32_t p = 0; p < LORA_PORTS; p++)
        for (uint32_t i = from[p]; i != at->ports[p].peer->tail; i++) {
            const struct lora_frame *frame = emu_port_slot(at->ports[p].peer, i);
            sent(user, p, (const uint8_t *)frame, (uint32_t)sizeof *frame + frame->length + 4);
        }
}

void reference_pump(struct reference *r, uint32_t board, sent_frame *sent, void *user) {
    struct emu_board *at = &r->cluster->board[board];
    uint32_t from[LORA_PORTS];
    note_ends(at, from);
    emu_router_pump(at);
    tell_sent(at, from, sent, user);
}

uint32_t reference_test(struct reference *r, uint32_t board, struct lora_link_test *test,
                        sent_frame *sent, void *user) {
    struct emu_board *at = &r->cluster->board[board];
    uint32_t from[LORA_PORTS];
    note_ends(at, from);
    uint32_t state = emu_link_test_slice(at, test);
    tell_sent(at, from, sent, user);
    return state;
}

void reference_serial(struct reference *r, uint32_t board, uint32_t serial) {
    r->cluster->board[board].info.serial = serial;
}

struct reference_outcome reference_result(const struct reference *r, uint32_t board) {
    const struct emu_router *router = &r->cluster->board[board].router;
    struct reference_outcome result = {
        .state = router->state,
        .status = router->status,
        .port = router->failed_port,
        .sent = router->frames_sent,
        .received = router->frames_received,
        .dropped = router->frames_dropped,
    };
    memcpy(result.done, router->groups_done, sizeof result.done);
    if (router->state == LORA_UNIT_DONE) result.sum = emu_router_sum(router);
    struct lora_router_record record;
    emu_router_progress(router, &record);
    result.waits = record.waits;
    memcpy(result.sent_by, record.sent, sizeof result.sent_by);
    memcpy(result.received_by, record.received, sizeof result.received_by);
    return result;
}

bool reference_put(struct reference *r, uint32_t board, uint32_t port, const uint8_t *frame,
                   uint32_t bytes) {
    struct emu_port *far = neighbour(r, board, port);
    struct lora_frame *slot = emu_port_claim(far, 0);
    if (!slot) return false;
    memcpy(slot, frame, bytes);
    emu_port_commit(far);
    return true;
}

void reference_empty(struct reference *r, uint32_t board, uint32_t port) {
    struct emu_port *far = neighbour(r, board, port);
    while (emu_port_head(far)) emu_port_pop(far);
}

void reference_seal(uint8_t *frame) {
    struct lora_frame *at = (struct lora_frame *)frame;
    emu_frame_seal(at, emu_frame_crc(at));
}
