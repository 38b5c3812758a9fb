/* Starting, ending and poisoning gathers; the frames themselves move in router.c. */
#include "board.h"

#include <stdlib.h>
#include <string.h>

#include "lora/host.h"

_Static_assert(sizeof(struct gather_shape) == 16, "a shape has no padding: it compares as bytes");

_Static_assert(EMU_PLANS > LORA_MAX_BOARDS, "one plan at least is no board's at the moment");

static bool in_use(const struct emu_cluster *cluster, const struct gather_plan *plan) {
    for (uint32_t b = 0; b < cluster->boards; b++) {
        const struct emu_router *router = &cluster->board[b].router;
        if (plan && router->plan == plan && router->state == LORA_UNIT_BUSY) return true;
    }
    return false;
}

static struct gather_plan *find_plan(const struct emu_plans *plans,
                                     const struct gather_shape *shape) {
    for (uint32_t i = 0; i < EMU_PLANS; i++)
        if (memcmp(&plans->shapes[i], shape, sizeof *shape) == 0) return plans->plans[i];
    return NULL;
}

static struct gather_plan *make_plan(struct emu_cluster *cluster,
                                     const struct gather_shape *shape) {
    struct emu_plans *plans = &cluster->plans;
    while (in_use(cluster, plans->plans[plans->next % EMU_PLANS])) plans->next++;
    uint32_t at = plans->next++ % EMU_PLANS;
    if (!plans->plans[at]) plans->plans[at] = malloc(sizeof(struct gather_plan));
    if (!plans->plans[at]) return NULL;
    plans->shapes[at] = *shape;
    gather_plan_make(plans->plans[at], shape);
    return plans->plans[at];
}

static uint32_t check(const struct lora_gather *command, const struct lora_list *list) {
    uint16_t element = command->element_bytes;
    if (element != 1 && element != 2 && element != 4 && element != 8) return LORA_ERR_SIZE;
    if (command->columns == 0 || command->share_unit == 0 || command->segment_unit == 0)
        return LORA_ERR_SIZE;
    if (list->boards == 0 || list->boards > LORA_MAX_BOARDS || list->rank >= list->boards)
        return LORA_ERR_SIZE;
    return LORA_OK;
}

/* The boards that take part, and this one's rank among them. */
static uint32_t enter_span(struct emu_router *router, uint32_t span, const struct lora_list *list) {
    uint32_t each = list->stage_boards, stage = each ? list->rank / each : 0, first = stage * each;
    router->boards = router->owners = each;
    switch (span) {
    case LORA_SPAN_ALL:
        first = 0;
        router->boards = router->owners = list->boards;
        break;
    case LORA_SPAN_STAGE: break;
    case LORA_SPAN_FROM_PREVIOUS:
        if (stage == 0) return LORA_ERR_SIZE;
        first -= each;
        router->boards = 2 * each;
        break;
    case LORA_SPAN_TO_NEXT: router->boards = 2 * each; break;
    default: return LORA_ERR_SIZE;
    }
    router->ring = span == LORA_SPAN_ALL && list->ring;
    router->rank = list->rank - first;
    return router->boards && first + router->boards <= list->boards ? LORA_OK : LORA_ERR_SIZE;
}

static uint32_t row_count(const struct lora_gather *command, const struct lora_step_state *state) {
    if (command->flags & LORA_FLAG_VOTES) return state->row_count != 0;
    uint32_t rows = command->flags & LORA_FLAG_SELECTED ? state->selected_count : state->row_count;
    return rows < LORA_MAX_ROWS ? rows : LORA_MAX_ROWS;
}

static struct emu_port *port_at(struct emu_board *board, uint32_t port) {
    return port < LORA_PORTS ? &board->ports[port] : NULL;
}

/* Ends of a path have one neighbour. Frames that go to next arrive from previous. */
static bool connect(struct emu_board *board, const struct lora_list *list) {
    struct emu_router *router = &board->router;
    bool has_next = router->ring || router->rank + 1u < router->boards;
    bool has_previous = router->ring || router->rank > 0;
    router->out[EMU_NEXT] = has_next ? port_at(board, list->port_next) : NULL;
    router->out[EMU_PREVIOUS] = has_previous ? port_at(board, list->port_previous) : NULL;
    router->in[EMU_NEXT] = router->out[EMU_PREVIOUS];
    router->in[EMU_PREVIOUS] = router->out[EMU_NEXT];
    if (has_next && has_previous && list->port_next == list->port_previous) return false;
    return !(has_next && !router->out[EMU_NEXT]) && !(has_previous && !router->out[EMU_PREVIOUS]);
}

static void count_missing(struct emu_router *router) {
    const struct gather_wait *wait = &router->plan->waits[router->rank];
    memcpy(router->missing, wait->missing, router->plan->groups * sizeof wait->missing[0]);
    memcpy(router->groups_done, wait->groups_done, sizeof wait->groups_done);
    router->missing_total = wait->missing_total;
}

/* Checks the command and finds what it means on this board. A plan that is not there is made only
 * where this thread is alone: others may be looking for theirs. */
static uint32_t prepare(struct emu_board *board, bool alone) {
    struct emu_router *router = &board->router;
    const struct lora_gather *command = router->command;
    const struct lora_list *list = router->list;
    const struct lora_step_state *state = router->step_state;
    uint32_t status = check(command, list);
    if (status == LORA_OK) status = enter_span(router, command->span, list);
    if (status) return status;
    uint32_t rows = row_count(command, state);
    uint64_t width = (uint64_t)command->columns * command->element_bytes;
    uint64_t span = rows ? (uint64_t)(rows - 1) * command->stride + width : 0;
    router->base = emu_memory_at(&board->memory, LORA_BANK_ONCHIP, command->offset, span);
    if (!router->base || width > command->stride) return LORA_ERR_ADDRESS;
    router->stride = command->stride;
    router->epoch = state->epoch;
    router->step = state->step;
    router->collective = command->collective;
    struct gather_shape shape = {.columns = command->columns,
                                 .share_unit = command->share_unit,
                                 .segment_unit = command->segment_unit,
                                 .element_bytes = command->element_bytes,
                                 .boards = (uint8_t)router->boards,
                                 .rows = (uint8_t)rows,
                                 .owners = (uint8_t)router->owners};
    router->plan = find_plan(&board->cluster->plans, &shape);
    if (!router->plan && alone) router->plan = make_plan(board->cluster, &shape);
    if (!router->plan) return LORA_ERR_UNIT; /* not yet, or this computer's memory is exhausted */
    memset(router->out, 0, sizeof router->out);
    memset(router->in, 0, sizeof router->in);
    return router->boards > 1 && rows > 0 && !connect(board, list) ? LORA_ERR_LINK_DOWN : LORA_OK;
}

/* Before its first frame. */
static void arm(struct emu_router *router) {
    const struct gather_plan *plan = router->plan;
    memset(router->received, 0,
           (size_t)plan->shape.boards * plan->max_blocks * sizeof router->received[0]);
    memset(router->cursor, 0, sizeof router->cursor);
    router->sealed = 0;
    count_missing(router);
}

void emu_router_keep(struct emu_router *router) {
    router->kept_bytes = 0;
    if (!router->prepared || router->boards < 2) return;
    const struct gather_plan *plan = router->plan;
    const uint32_t *starts = plan->share_start + router->rank;
    uint64_t element = plan->shape.element_bytes, rows = plan->shape.rows;
    uint64_t width = (starts[1] - starts[0]) * element;
    const uint8_t *from = router->base + starts[0] * element;
    if (rows * width > EMU_KEPT_BYTES) return;
    for (uint64_t row = 0; row < rows; row++)
        memcpy(router->kept[router->kept_place] + row * width, from + row * router->stride, width);
    router->kept_bytes = (uint32_t)(rows * width);
}

/* The gather begins with the next pump: frames are for when no board runs. */
void emu_router_start(struct emu_board *board, const struct lora_gather *command,
                      const struct lora_list *list, const struct lora_step_state *state) {
    struct emu_router *router = &board->router;
    router->command = command;
    router->list = list;
    router->step_state = state;
    router->state = LORA_UNIT_BUSY;
    memset(router->groups_done, 0, sizeof router->groups_done);
    memset(router->out_of, 0, sizeof router->out_of);
    memset(router->in_by, 0, sizeof router->in_by);
    router->blocked = 0;
    router->plan = NULL;
    router->prepared = prepare(board, false) == LORA_OK;
    emu_router_keep(router);
    board->links_awake = true;
}

void emu_router_begin(struct emu_board *board) {
    struct emu_router *router = &board->router;
    router->frames_sent = router->frames_received = 0;
    router->frames_dropped = board->frames_dropped;
    board->frames_dropped = 0;
    router->failed_port = LORA_NO_PORT;
    router->status = router->prepared ? (uint32_t)LORA_OK : prepare(board, true);
    router->command = NULL;
    if (router->status) router->state = LORA_UNIT_FAILED;
    if (router->plan) arm(router);
}

uint32_t emu_router_sum(const struct emu_router *router) {
    const struct gather_shape *shape = &router->plan->shape;
    uint64_t width = (uint64_t)shape->columns * shape->element_bytes;
    uint32_t sum = 0;
    for (uint32_t row = 0; row < shape->rows; row++)
        sum = lora_crc32(sum, router->base + (size_t)row * router->stride, width);
    return sum;
}

void emu_router_abort(struct emu_board *board) {
    board->router.state = LORA_UNIT_IDLE;
    if (board->router.command) board->router.plan = NULL; /* it had not begun */
    board->router.command = NULL;
}

static void poison(struct emu_board *board, const struct emu_link_requests *wanted) {
    struct emu_port *ports[2] = {port_at(board, wanted->port_next),
                                 port_at(board, wanted->port_previous)};
    for (uint32_t i = 0; i < 2; i++)
        if (ports[i]) emu_port_poison(ports[i], wanted->epoch, wanted->step, wanted->rank);
}

void emu_link_requests_run(struct emu_board *board) {
    struct emu_link_requests *wanted = &board->link_requests;
    for (uint32_t p = 0; wanted->drop && p < LORA_PORTS; p++)
        board->frames_dropped += emu_port_drop_before(&board->ports[p], wanted->drop_before);
    if (wanted->poison) poison(board, wanted);
    wanted->drop = wanted->poison = false;
}
