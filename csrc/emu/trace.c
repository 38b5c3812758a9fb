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
