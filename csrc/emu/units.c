/* Units as the firmware sees them: start, poll, abort. DMA and small kernels finish within start.
 * Larger kernels wait for each other, so that all boards' run at once. */
#include "board.h"
#include "lora/float_mode.h"

#include <string.h>

#define START_CYCLES 32   /* board time that a start costs */
#define SMALL_COLUMNS 512 /* of all rows */
#define MODEST_MULTIPLICATIONS (1u << 18)
#define NO_ROW 0xffffffffu

static const struct hal_unit_result nothing = {.nonfinite_row = NO_ROW, .port = LORA_NO_PORT};

/* What is the same in all calls of a unit is written once. */
void emu_units_init(struct emu_board *board) {
    for (uint32_t unit = 0; unit < LORA_UNITS; unit++)
        board->units[unit] = (struct emu_unit){
            .board = board,
            .call = {.size = sizeof(struct lora_unit_call),
                     .board = board->index,
                     .banks = board->memory.base,
                     .bank_bytes = board->memory.bytes},
        };
}

static int call_kernel(const struct lora_kernels *kernels, struct lora_unit_call *call) {
    int status = LORA_ERR_OPCODE;
    uint64_t mode = float_mode_set();
    uint32_t opcode = call->command->opcode;
    if (opcode == LORA_CMD_MATRIX) status = kernels->matrix(kernels->context, call);
    if (opcode == LORA_CMD_VECTOR) status = kernels->vector(kernels->context, call);
    if (opcode == LORA_CMD_ATTENTION) status = kernels->attention(kernels->context, call);
    if (opcode == LORA_CMD_ADAPTER && kernels->adapter)
        status = kernels->adapter(kernels->context, call);
    if (opcode == LORA_CMD_EXPERTS && kernels->experts)
        status = kernels->experts(kernels->context, call);
    if (opcode == LORA_CMD_RECURRENCE && kernels->recurrence)
        status = kernels->recurrence(kernels->context, call);
    float_mode_restore(mode);
    return status;
}

static void finish(struct emu_unit *entry, int status) {
    entry->state = status ? LORA_UNIT_FAILED : LORA_UNIT_DONE;
    entry->plain = status == LORA_OK && entry->call.nonfinite_count == 0;
    if (entry->plain) return;
    entry->result = nothing;
    entry->result.nonfinite_count = entry->call.nonfinite_count;
    entry->result.nonfinite_row = entry->call.nonfinite_row;
    entry->result.status = (uint32_t)status;
}

static int move(struct emu_board *board, struct emu_unit *entry) {
    const struct lora_unit_call *call = &entry->call;
    entry->result = nothing;
    return emu_dma(board, call->command, call->list, call->state, &entry->result);
}

/* A vector operation that is over before threads could share it. */
static bool is_small(const struct lora_unit_call *call) {
    if (call->command->opcode != LORA_CMD_VECTOR) return false;
    const struct lora_vector *vector = (const struct lora_vector *)(const void *)call->command;
    return (uint64_t)vector->columns * call->state->row_count <= SMALL_COLUMNS;
}

/* Multiplications of all rows, about. */
static uint64_t multiplications_of(const struct lora_unit_call *call) {
    const void *record = call->command;
    const struct lora_step_state *state = call->state;
    const struct lora_matrix *matrix = record;
    const struct lora_attention *attention = record;
    const struct lora_adapter *adapter = record;
    const struct lora_experts *experts = record;
    const struct lora_recurrence *recurrence = record;
    uint64_t rows = state->row_count < LORA_MAX_ROWS ? state->row_count : LORA_MAX_ROWS, seen = 0;
    switch (call->command->opcode) {
    case LORA_CMD_MATRIX: return rows * matrix->k * matrix->n;
    case LORA_CMD_EXPERTS: return rows * experts->chosen * experts->k * experts->n;
    case LORA_CMD_ADAPTER: return rows * adapter->k * call->list->adapter_columns;
    case LORA_CMD_ATTENTION:
        for (uint32_t i = 0; i < rows; i++)
            seen += state->lengths[state->rows[i].sequence % LORA_MAX_SEQUENCES] + rows;
        return 2 * seen * attention->q_heads * attention->head_dim;
    case LORA_CMD_RECURRENCE:
        return 2ull * (rows + LORA_TILE_POSITIONS) * recurrence->key_columns *
               recurrence->value_columns * recurrence->value_heads * call->list->kv_heads;
    default: return 0;
    }
}

/* Not worth a batch, in which threads meet, where every thread has a board of its own. */
static bool is_modest(const struct lora_unit_call *call) {
    return multiplications_of(call) <= MODEST_MULTIPLICATIONS;
}

static void start_kernel(struct emu_board *board, struct emu_unit *entry) {
    const struct lora_kernels *kernels = board->cluster->kernels;
    bool alone = is_small(&entry->call) || (board->local_kernels && is_modest(&entry->call));
    if (!kernels->batch || alone) {
        finish(entry, call_kernel(kernels, &entry->call));
        return;
    }
    entry->queued = true;
    board->queue[board->queued++] = entry;
}

static void unqueue(struct emu_board *board, struct emu_unit *entry) {
    if (!entry->queued) return;
    uint32_t at = 0;
    while (board->queue[at] != entry) at++;
    for (board->queued--; at < board->queued; at++) board->queue[at] = board->queue[at + 1];
    entry->queued = false;
}

static enum emu_work start(struct emu_board *board, uint32_t unit, struct emu_unit *entry) {
    const struct lora_unit_call *call = &entry->call;
    switch (unit) {
    case LORA_UNIT_ROUTER:
        emu_router_start(board, (const struct lora_gather *)(const void *)call->command, call->list,
                         call->state);
        return EMU_LINKS;
    case LORA_UNIT_DMA:
        finish(entry, move(board, entry));
        if (call->command->opcode == LORA_CMD_CHECKSUM) entry->plain = false; /* it has a value */
        return EMU_MOVES;
    case LORA_UNIT_MPU:
    case LORA_UNIT_VFU: start_kernel(board, entry); return EMU_KERNELS;
    default: finish(entry, LORA_ERR_OPCODE); return EMU_MOVES;
    }
}

/* Fault: this command is the one that fails. */
static bool fails_now(struct emu_board *board, uint32_t unit) {
    uint32_t *left = &board->control_faults.commands_to_failure[unit];
    return *left && --*left == 0;
}

void emu_unit_start(struct emu_board *board, uint32_t unit, const struct lora_command *command,
                    const struct lora_list *list, const struct lora_step_state *state) {
    if (unit >= LORA_UNITS) return;
    struct emu_unit *entry = &board->units[unit];
    const struct emu_profiler *profiler = &board->cluster->profiler;
    entry->state = LORA_UNIT_BUSY;
    board->clock += START_CYCLES;
    bool slow = board->control_faults.slow_units & 1u << unit;
    entry->ready_at = slow ? board->clock + board->control_faults.slow_cycles[unit] : 0;
    if (unit != LORA_UNIT_ROUTER && board->stuck_units & 1u << unit) return;
    if (fails_now(board, unit)) {
        entry->call.nonfinite_count = 0;
        finish(entry, LORA_ERR_UNIT);
        if (board->control_faults.forgetful_units & 1u << unit) entry->state = LORA_UNIT_IDLE;
        return;
    }
    entry->call.command = command;
    entry->call.list = list;
    entry->call.state = state;
    entry->call.nonfinite_count = 0;
    entry->call.nonfinite_row = NO_ROW;
    if (emu_ecc_any(&board->ecc) && emu_ecc_command(board, &entry->call)) {
        finish(entry, LORA_ERR_UNIT);
        return;
    }
    board->weight_bytes += emu_weights_read(&entry->call);
    uint64_t began = emu_profiler_begin(profiler);
    enum emu_work work = start(board, unit, entry);
    emu_profiler_end(profiler, &board->tally, work, began);
}

/* The boards' queues one after another. */
static uint32_t take_queues(struct emu_cluster *cluster, struct emu_unit **entries) {
    uint32_t count = 0;
    for (uint32_t b = 0; b < cluster->boards; b++) {
        struct emu_board *board = &cluster->board[b];
        for (uint32_t i = 0; i < board->queued; i++) entries[count++] = board->queue[i];
        board->queued = 0;
    }
    return count;
}

bool emu_units_run(struct emu_cluster *cluster) {
    const struct lora_kernels *kernels = cluster->kernels;
    struct emu_unit *entries[LORA_MAX_BOARDS * LORA_UNITS];
    struct lora_unit_call calls[LORA_MAX_BOARDS * LORA_UNITS];
    int statuses[LORA_MAX_BOARDS * LORA_UNITS];
    uint32_t count = take_queues(cluster, entries);
    if (count == 0) return false;
    for (uint32_t i = 0; i < count; i++) calls[i] = entries[i]->call;
    uint64_t mode = float_mode_set(), began = emu_profiler_begin(&cluster->profiler);
    kernels->batch(kernels->context, cluster->pool, calls, statuses, count);
    emu_profiler_end(&cluster->profiler, &cluster->profiler.tally, EMU_KERNELS, began);
    float_mode_restore(mode);
    for (uint32_t i = 0; i < count; i++) {
        struct emu_unit *entry = entries[i];
        entry->queued = false;
        entry->call.nonfinite_count = calls[i].nonfinite_count;
        entry->call.nonfinite_row = calls[i].nonfinite_row;
        finish(entry, statuses[i]);
        entry->board->awake = true;
    }
    return true;
}

static void take_router(struct emu_board *board, struct emu_unit *entry) {
    struct emu_router *router = &board->router;
    if (router->state == LORA_UNIT_BUSY) return;
    entry->state = router->state;
    entry->plain = false;
    entry->result = nothing;
    entry->result.status = router->status;
    entry->result.port = router->failed_port;
    if (router->state == LORA_UNIT_DONE && !(board->blind & LORA_BLIND_DIGESTS))
        entry->result.value = emu_router_sum(router);
    entry->result.frames_sent = router->frames_sent;
    entry->result.frames_received = router->frames_received;
    entry->result.frames_dropped = router->frames_dropped;
    router->state = LORA_UNIT_IDLE;
}

uint32_t emu_unit_poll(struct emu_board *board, uint32_t unit, struct hal_unit_result *result) {
    if (unit >= LORA_UNITS) return LORA_UNIT_IDLE;
    struct emu_unit *entry = &board->units[unit];
    bool stuck = board->stuck_units & 1u << unit;
    if (unit == LORA_UNIT_ROUTER && entry->state == LORA_UNIT_BUSY && !stuck)
        take_router(board, entry);
    uint32_t state = entry->state;
    if (state != LORA_UNIT_IDLE && board->clock < entry->ready_at) return LORA_UNIT_BUSY;
    if (board->blind & LORA_BLIND_UNIT_STATES && state != LORA_UNIT_BUSY &&
        state != LORA_UNIT_DONE) {
        entry->state = LORA_UNIT_IDLE;
        *result = nothing;
        return LORA_UNIT_DONE;
    }
    if (state == LORA_UNIT_DONE || state == LORA_UNIT_FAILED) {
        *result = entry->plain ? nothing : entry->result;
        entry->state = LORA_UNIT_IDLE;
    }
    return state;
}

void emu_unit_abort(struct emu_board *board, uint32_t unit) {
    if (unit >= LORA_UNITS) return;
    board->units[unit].state = LORA_UNIT_IDLE;
    unqueue(board, &board->units[unit]);
    if (unit == LORA_UNIT_ROUTER) emu_router_abort(board);
}
