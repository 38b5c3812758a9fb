/* What the firmware needs of the board: all that differs between the card and the emulated one. */
#ifndef LORA_HAL_H
#define LORA_HAL_H

#include <stdint.h>

#include "lora/abi.h"

/* lora_ctrl's register file, offsets of enum lora_control_register. */
uint32_t hal_register(uint32_t offset);
void hal_set_register(uint32_t offset, uint32_t value);

/* Board memory by bank and byte offset; the caller has checked the range against the arenas. */
void hal_read(uint32_t bank, uint64_t offset, void *data, uint32_t bytes);
void hal_write(uint32_t bank, uint64_t offset, const void *data, uint32_t bytes);
/* The host sees what was written at `offset`, and before it, in whatever register is set after
 * this. Registers and memory are reached by different ways. */
void hal_fence(uint32_t bank, uint64_t offset);

/* Size of the activation buffer, bank LORA_BANK_ONCHIP. */
uint32_t hal_onchip_bytes(void);

/* Units. start: the unit is idle, the structures stay valid until it is done. poll: state, and on
 * DONE or FAILED the result, after which the unit is idle again. */
struct hal_unit_result {
    uint32_t status; /* enum lora_status */
    uint32_t nonfinite_count, nonfinite_row;
    uint32_t value; /* CHECKSUM, GATHER: the sum */
    uint32_t port;  /* link errors */
    uint32_t frames_sent, frames_received, frames_dropped;
};
void hal_unit_start(uint32_t unit, const struct lora_command *command, const struct lora_list *list,
                    const struct lora_step_state *state);
uint32_t hal_unit_poll(uint32_t unit, struct hal_unit_result *result);
/* GATHER in progress: row groups of each segment that are complete on this board so far. */
void hal_unit_segments(uint32_t unit, uint32_t groups[LORA_SEGMENTS]);
/* What the Router has done in its last GATHER, which may be over: waits, sent, received. */
void hal_router_progress(struct lora_router_record *record);
void hal_unit_abort(uint32_t unit);

/* Links: frames of other epochs than this are dropped from now on; poison tells both neighbours. */
void hal_links_epoch(uint32_t epoch);
void hal_links_poison(const struct lora_list *list, const struct lora_step_state *state);
/* Runs a slice of the link test; returns enum lora_unit_state. */
uint32_t hal_link_test(struct lora_link_test *test);

uint64_t hal_cycles(void); /* board clock */
uint32_t hal_cycles_per_ms(void);

/* A command begins (end = 0) or is done (end = 1): for the trace. */
void hal_trace(uint32_t index, const struct lora_command *command, uint32_t rows, uint32_t end);

#endif
