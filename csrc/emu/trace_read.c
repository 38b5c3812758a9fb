/* The host takes what the command trace holds. */
#include "board.h"

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
