/* The command trace: a ring of records; what no longer fits is counted, oldest first. */
#include "board.h"
#include "fw.h"

static uint8_t vector_op(const struct lora_command *command) {
    if (command->opcode != LORA_CMD_VECTOR) return 0;
    return ((const struct lora_vector *)(const void *)command)->op;
}

static struct lora_trace_record *next_record(struct emu_trace *trace) {
    if (trace->count < trace->capacity)
        return &trace->records[(trace->first + trace->count++) % trace->capacity];
    struct lora_trace_record *oldest = &trace->records[trace->first];
    trace->first = (trace->first + 1) % trace->capacity;
    trace->dropped++;
    return oldest;
}

void emu_trace_mark(struct emu_board *board, uint32_t index, const struct lora_command *command,
                    uint32_t rows, uint32_t end) {
    struct emu_trace *trace = &board->trace;
    if (command->unit >= LORA_UNITS) return;
    const struct fw *firmware = board->core; /* it alone marks commands */
    uint64_t now = ++board->clock; /* begin < end even where the unit took no board time */
    if (!end) {
        trace->begin[command->unit] = now;
        return;
    }
    *next_record(trace) = (struct lora_trace_record){.step = firmware->state.step,
                                                     .index = index,
                                                     .opcode = command->opcode,
                                                     .unit = command->unit,
                                                     .op = vector_op(command),
                                                     .layer = command->layer,
                                                     .rows = rows,
                                                     .begin = trace->begin[command->unit],
                                                     .end = now};
}

static uint32_t drain(struct emu_trace *trace, struct lora_trace_record *records, uint32_t capacity,
                      uint32_t *dropped) {
    uint32_t copied = trace->count < capacity ? trace->count : capacity;
    for (uint32_t i = 0; i < copied; i++)
        records[i] = trace->records[(trace->first + i) % trace->capacity];
    if (dropped) *dropped = trace->dropped + (trace->count - copied);
    trace->first = trace->count = trace->dropped = 0;
    return copied;
}

uint32_t lora_emu_trace(uint32_t cluster, uint32_t board, struct lora_trace_record *records,
                        uint32_t capacity, uint32_t *dropped) {
    if (dropped) *dropped = 0;
    struct emu_cluster *found = emu_cluster_acquire(cluster);
    if (!found) return 0;
    uint32_t copied = 0;
    if (board < found->boards && (records || capacity == 0))
        copied = drain(&found->board[board].trace, records, capacity, dropped);
    emu_cluster_release(found);
    return copied;
}
