/* The table of kernels that the emulated units call: native C, or callbacks into the NumPy model.
 * Both read and write the bytes of board memory and nothing else. */
#ifndef LORA_KERNELS_H
#define LORA_KERNELS_H

#include <stdint.h>

struct lora_unit_call {
    uint32_t size;
    uint32_t board;                     /* index in the emulated cluster */
    const struct lora_command *command; /* the 64-byte record; cast by opcode */
    const struct lora_list *list;       /* header of the list that runs */
    const struct lora_step_state *state;
    uint8_t *const *banks;      /* base of each bank's memory by index, NULL unreserved; */
    const uint64_t *bank_bytes; /* [LORA_BANK_ONCHIP] is the activation buffer */
    uint32_t nonfinite_count;   /* out: non-finite values written */
    uint32_t nonfinite_row;     /* out: step row index of the first, ~0 none */
};

struct lora_pool;

/* Each returns 0, or an enum lora_status. The firmware has checked every address. */
struct lora_kernels {
    uint32_t size;
    uint32_t reserved;
    void *context;
    const char *name; /* as --stats shows it */
    int (*matrix)(void *context, struct lora_unit_call *call);
    int (*vector)(void *context, struct lora_unit_call *call);
    int (*attention)(void *context, struct lora_unit_call *call);
    int (*adapter)(void *context, struct lora_unit_call *call); /* optional: none, no adapters */
    int (*experts)(void *context, struct lora_unit_call *call); /* optional, likewise */
    int (*recurrence)(void *context, struct lora_unit_call *call);
    /* Optional: calls of several units at once, split over the threads of a pool. NULL: they run
     * one after another on the caller's thread. */
    void (*batch)(void *context, struct lora_pool *pool, struct lora_unit_call *calls,
                  int *statuses, uint32_t count);
};

#endif
