/* All-gather as in the paper's Figure 9: every board sends its own blocks around the ring or along
 * the path, forwards what others sent, and files each block at its columns of the full-width
 * row. */
#include "board.h"

#include <string.h>

#define NO_BLOCK 255

static void fail(struct emu_router *router, uint32_t status, const struct emu_port *port) {
    router->state = LORA_UNIT_FAILED;
    router->status = status;
    router->failed_port = port ? port->index : LORA_NO_PORT;
}

/* Hops that a source's block travels each way; a path's block goes to both ends. */
static uint32_t hops(const struct emu_router *router, uint32_t source, uint32_t number,
                     uint32_t direction) {
    uint32_t boards = router->boards;
    if (!router->ring) return direction == EMU_NEXT ? boards - 1 - source : source;
    bool longer = (number & 1) == (direction == EMU_NEXT ? 0u : 1u);
    return longer ? boards / 2 : (boards - 1) / 2;
}

/* Hops that a frame must still have when it arrives here; 0: it must not arrive here at all. */
static uint32_t hops_left(const struct emu_router *router, uint32_t source, uint32_t number,
                          uint32_t direction) {
    uint32_t boards = router->boards;
    uint32_t forward = router->rank - source + (router->rank < source ? boards : 0);
    uint32_t distance = direction == EMU_NEXT ? forward : boards - forward;
    uint32_t total = hops(router, source, number, direction);
    if (forward == 0 || distance > total) return 0;
    return total - distance + 1;
}

static uint32_t part_bytes(const struct gather_block *block, uint32_t offset) {
    uint32_t left = block->bytes - offset;
    return left < LORA_FRAME_PAYLOAD ? left : LORA_FRAME_PAYLOAD;
}

/* Fault: where the neighbouring source's block would lie, kept inside the row. */
static struct gather_block misfiled(const struct emu_router *router, uint32_t source,
                                    const struct gather_block *block) {
    const struct gather_plan *plan = router->plan;
    struct gather_block moved = *block;
    if ((source ^ 1) >= router->boards) return moved;
    int64_t column = (int64_t)block->column + plan->share_start[source ^ 1];
    column -= plan->share_start[source];
    if (column >= 0 && column + block->columns <= plan->shape.columns)
        moved.column = (uint32_t)column;
    return moved;
}

/* Copies part of a block between the frame and the rows of the on-chip buffer. */
static void copy_part(const struct emu_router *router, const struct gather_block *block,
                      uint32_t offset, uint8_t *payload, uint32_t bytes, bool filing) {
    uint32_t element = router->plan->shape.element_bytes;
    uint32_t width = block->columns * element;
    uint32_t row = offset ? offset / width : 0, within = offset - row * width;
    uint8_t *at = router->base + (size_t)(block->group * LORA_ROW_GROUP + row) * router->stride +
                  (size_t)block->column * element + within;
    while (bytes > 0) {
        uint32_t run = width - within < bytes ? width - within : bytes;
        if (filing) memcpy(at, payload, run);
        else memcpy(payload, at, run);
        payload += run;
        bytes -= run;
        at += router->stride - within;
        within = 0;
    }
}

static void arrived(struct emu_router *router, uint32_t group, uint32_t segment, uint32_t bytes) {
    router->missing[group][segment] -= bytes;
    router->missing_total -= bytes;
    if (bytes == 0 || router->missing[group][segment] > 0) return;
    router->groups_done[segment]++;
    router->notify = true;
}

static void count_arrival(struct emu_router *router, uint32_t source,
                          const struct gather_block *block, uint32_t bytes) {
    if (block->segments == 1) {
        arrived(router, block->group, block->first, bytes);
        return;
    }
    uint32_t column_bytes = gather_group_rows(router->plan, block->group) *
                            router->plan->shape.element_bytes;
    for (uint32_t s = block->first; s < (uint32_t)block->first + block->segments; s++)
        arrived(router, block->group, s, router->plan->overlap[source][s] * column_bytes);
}

/* Every field of the header against what this collective must deliver next. NULL: it does not. */
static const struct gather_block *expected_block(const struct emu_router *router,
                                                 const struct lora_frame *frame,
                                                 uint32_t direction) {
    const struct gather_plan *plan = router->plan;
    if (frame->source >= router->boards || frame->row_group >= plan->groups) return NULL;
    if (frame->segment >= LORA_SEGMENTS) return NULL;
    const struct gather_source *source = &plan->sources[frame->source];
    uint32_t number = source->number[frame->row_group][frame->segment];
    if (number == NO_BLOCK) return NULL;
    const struct gather_block *block = &source->blocks[number];
    uint32_t offset = router->received[frame->source * plan->max_blocks + number];
    bool right = frame->segments == block->segments && offset < block->bytes &&
                 frame->offset == offset && frame->part == offset / LORA_FRAME_PAYLOAD &&
                 frame->length == part_bytes(block, offset);
    uint32_t left = hops_left(router, frame->source, number, direction);
    return right && left > 0 && frame->hop == left ? block : NULL;
}

/* Fault: a Router that stops in the middle of a gather. */
static bool is_stuck(const struct emu_router *router) {
    return router->stuck && router->stuck_after == 0;
}

static struct lora_frame *claim(struct emu_router *router, struct emu_port *out, uint32_t spare) {
    if (is_stuck(router)) return NULL;
    struct lora_frame *frame = emu_port_claim(out, spare);
    uint32_t bit = 1u << out->index;
    router->blocked = frame ? router->blocked & ~bit : router->blocked | bit;
    return frame;
}

static void commit(struct emu_router *router, struct emu_port *out) {
    emu_port_commit(out);
    router->frames_sent++;
    router->out_of[out->index]++;
    if (router->stuck_after) router->stuck_after--;
}

static bool forward(struct emu_router *router, const struct lora_frame *frame, uint32_t direction) {
    struct emu_port *out = router->out[direction];
    struct lora_frame *copy = claim(router, out, 0);
    if (!copy) return false;
    memcpy(copy, frame, sizeof *frame + frame->length + 4);
    copy->hop--;
    commit(router, out);
    return true;
}

static bool file_frame(struct emu_router *router, struct lora_frame *frame, uint32_t direction) {
    const struct gather_block *block = expected_block(router, frame, direction);
    if (!block) {
        fail(router, LORA_ERR_LINK_CRC, router->in[direction]);
        return false;
    }
    if (frame->hop > 1 && !forward(router, frame, direction)) return false;
    struct gather_block target = router->misfile.on ? misfiled(router, frame->source, block)
                                                    : *block;
    if (target.column != block->column && !emu_frame_struck(&router->misfile)) target = *block;
    copy_part(router, &target, frame->offset, emu_frame_payload(frame), frame->length, true);
    const struct gather_plan *plan = router->plan;
    size_t number = (size_t)(block - plan->sources[frame->source].blocks);
    router->received[frame->source * plan->max_blocks + number] += frame->length;
    count_arrival(router, frame->source, block, frame->length);
    router->frames_received++;
    if (router->stuck_after) router->stuck_after--;
    return true;
}

enum age { OLD, CURRENT, FUTURE };

static enum age age_of(const struct emu_router *router, const struct lora_frame *frame) {
    int32_t order = (int32_t)(frame->epoch - router->epoch);
    if (order == 0) order = (int32_t)(frame->step - router->step);
    if (order < 0 && frame->kind == LORA_FRAME_POISON && frame->epoch == router->epoch)
        return CURRENT;
    if (order == 0 && frame->kind == LORA_FRAME_DATA)
        order = (int32_t)frame->collective - (int32_t)router->collective;
    return order < 0 ? OLD : order > 0 ? FUTURE : CURRENT;
}

/* Takes the head frame of one port; false when it must stay or there is none. */
static bool take(struct emu_router *router, uint32_t direction) {
    struct emu_port *port = router->in[direction];
    struct lora_frame *frame = is_stuck(router) ? NULL : emu_port_head(port);
    if (!frame) return false;
    if (!emu_port_head_intact(port)) {
        fail(router, LORA_ERR_LINK_CRC, port);
        return false;
    }
    enum age age = frame->kind == LORA_FRAME_TEST ? OLD : age_of(router, frame);
    if (age == FUTURE) return false;
    if (age == CURRENT && frame->kind == LORA_FRAME_POISON) {
        fail(router, LORA_ERR_LINK_POISON, port);
        return false;
    }
    if (age == CURRENT && !file_frame(router, frame, direction)) return false;
    if (age == OLD) router->frames_dropped++;
    else router->in_by[port->index]++;
    emu_port_pop(port);
    return true;
}

/* The CRC of a frame that carries a whole block, or part of one, of this board's own. */
static uint32_t own_crc(struct emu_router *router, const struct gather_block *block,
                        struct lora_frame *frame) {
    uint32_t number = (uint32_t)(block - router->plan->sources[router->rank].blocks);
    if (frame->length < block->bytes) return emu_frame_crc(frame);
    if (!(router->sealed >> number & 1)) {
        router->seal[number] = emu_frame_crc(frame);
        router->sealed |= 1u << number;
    }
    return router->seal[number];
}

/* Injection leaves one more slot free than forwarding needs, so a full ring can always move. */
static bool send_part(struct emu_router *router, const struct gather_block *block,
                      uint32_t direction, uint32_t count) {
    uint32_t offset = router->cursor[direction].offset;
    struct lora_frame *frame = claim(router, router->out[direction], 1);
    if (!frame) return false;
    *frame = (struct lora_frame){.magic = LORA_FRAME_MAGIC,
                                 .epoch = router->epoch,
                                 .step = router->step,
                                 .collective = (uint16_t)router->collective,
                                 .row_group = block->group,
                                 .source = (uint8_t)router->rank,
                                 .segment = block->first,
                                 .hop = (uint8_t)count,
                                 .kind = LORA_FRAME_DATA,
                                 .segments = block->segments,
                                 .part = (uint16_t)(offset / LORA_FRAME_PAYLOAD),
                                 .offset = offset,
                                 .length = part_bytes(block, offset)};
    copy_part(router, block, offset, emu_frame_payload(frame), frame->length, false);
    emu_frame_seal(frame, own_crc(router, block, frame));
    router->cursor[direction].offset += frame->length;
    commit(router, router->out[direction]);
    return true;
}

static void send_own(struct emu_router *router, uint32_t direction) {
    const struct gather_source *own = &router->plan->sources[router->rank];
    uint32_t *at = &router->cursor[direction].block;
    for (; *at < own->block_count; (*at)++, router->cursor[direction].offset = 0) {
        const struct gather_block *block = &own->blocks[*at];
        uint32_t count = hops(router, router->rank, *at, direction);
        if (count == 0) continue;
        while (router->cursor[direction].offset < block->bytes)
            if (!send_part(router, block, direction, count)) return;
    }
}

static bool all_sent(const struct emu_router *router) {
    uint32_t blocks = router->plan->sources[router->rank].block_count;
    for (uint32_t d = 0; d < EMU_DIRECTIONS; d++)
        if (router->out[d] && router->cursor[d].block < blocks) return false;
    return true;
}

/* A link that is down or a poisoned one ends the gather even where frames wait in a FIFO. */
static bool links_hold(struct emu_router *router) {
    for (uint32_t d = 0; d < EMU_DIRECTIONS; d++) {
        struct emu_port *port = router->out[d];
        if (!port) continue;
        if (emu_port_poisoned(port, router->epoch, router->step))
            fail(router, LORA_ERR_LINK_POISON, port);
        else if (!port->up) fail(router, LORA_ERR_LINK_DOWN, port);
        if (router->state == LORA_UNIT_FAILED) return false;
    }
    return true;
}

/* Whether a block that comes this way is not whole yet. */
static bool is_expecting(const struct emu_router *router, uint32_t direction) {
    const struct gather_plan *plan = router->plan;
    for (uint32_t source = 0; source < router->boards; source++) {
        const struct gather_source *from = &plan->sources[source];
        for (uint32_t number = 0; number < from->block_count; number++)
            if (hops_left(router, source, number, direction) > 0 &&
                router->received[source * plan->max_blocks + number] < from->blocks[number].bytes)
                return true;
    }
    return false;
}

void emu_router_progress(const struct emu_router *router, struct lora_router_record *record) {
    memcpy(record->sent, router->out_of, sizeof record->sent);
    memcpy(record->received, router->in_by, sizeof record->received);
    record->waits = router->blocked * LORA_ROUTER_BLOCKED;
    if (router->command) return; /* not begun */
    for (uint32_t d = 0; router->plan && d < EMU_DIRECTIONS; d++)
        if (router->in[d] && is_expecting(router, d))
            record->waits |= (uint32_t)LORA_ROUTER_RECEIVES << router->in[d]->index;
}

/* Sends, forwards and files until nothing moves or the gather is over. */
static void pump(struct emu_router *router) {
    if (!links_hold(router)) return;
    for (uint32_t d = 0; d < EMU_DIRECTIONS; d++)
        if (router->out[d]) send_own(router, d);
    for (uint32_t d = 0; d < EMU_DIRECTIONS; d++) {
        while (router->in[d] && router->state == LORA_UNIT_BUSY && take(router, d)) continue;
        if (router->state != LORA_UNIT_BUSY) return;
    }
    if (router->missing_total == 0 && all_sent(router)) router->state = LORA_UNIT_DONE;
}

bool emu_router_pump(struct emu_board *board) {
    struct emu_router *router = &board->router;
    board->links_awake = false;
    if (router->state != LORA_UNIT_BUSY) return false;
    router->notify = false;
    if (router->command) emu_router_begin(board);
    if (router->state == LORA_UNIT_BUSY) pump(router);
    return router->notify || router->state != LORA_UNIT_BUSY;
}

void emu_router_settle(struct emu_cluster *cluster) {
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t i = 0; i < cluster->boards; i++) {
            struct emu_board *board = &cluster->board[i];
            if (!board->links_awake) continue;
            moved = true;
            if (emu_router_pump(board)) board->awake = true;
            if (board->link_test.active) board->awake = true;
        }
    }
}
