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

/* What the board does by itself. RUN: it has a sequencer, which runs lists (docs/sequencer.md), and
 * counts changes of arenas. Without it the firmware dispatches, and has no use for the rest. */
#define HAL_FEATURE_RUN 0x1
uint32_t hal_features(void);
enum hal_run_register {
    HAL_RUN_CONTROL = 0x00,  /* written: START, VOTED; read: BUSY, FAILED, BALLOT */
    HAL_RUN_ROWS = 0x04,     /* rows, selected rows << 8, flags << 16 */
    HAL_RUN_COUNTS = 0x08,   /* commands, counters << 16 */
    HAL_RUN_LIST = 0x0c,     /* where the first command lies in the window's page */
    HAL_RUN_LOCAL_LO = 0x10, /* cycles until the watchdog */
    HAL_RUN_LOCAL_HI = 0x14,
    HAL_RUN_REMOTE_LO = 0x18, /* while only the Router runs */
    HAL_RUN_REMOTE_HI = 0x1c,
    HAL_RUN_SEAL_AT = 0x20, /* list * chunks of a list + chunk */
    HAL_RUN_SEAL = 0x24,    /* writing it stores it there */
    HAL_RUN_STATES = 0x28,  /* enum lora_unit_state, two bits a unit; from here on read-only */
    HAL_RUN_ARENA_CHANGES = 0x2c,
    HAL_RUN_DIGEST = 0x30,
    HAL_RUN_NONFINITE = 0x34,  /* count, command, row */
    HAL_RUN_FRAMES = 0x40,     /* sent, received, dropped */
    HAL_RUN_LAST_INDEX = 0x4c, /* a word a unit */
    HAL_RUN_BLAME = 0x60,      /* code, index, opcode, unit, found, expected, counter, port */
    HAL_RUN_FIRST_SUM = 0x88,  /* of the run's first gather so far, and of its last */
    HAL_RUN_LAST_SUM = 0x8c
};
#define HAL_RUN_START 0x1
#define HAL_RUN_VOTED 0x2
#define HAL_RUN_BUSY 0x1
#define HAL_RUN_FAILED 0x2
#define HAL_RUN_BALLOT 0x4
#define HAL_RUN_MOVES_KV 0x1
#define HAL_RUN_VOTES 0x2
#define HAL_RUN_POISONS 0x4
#define HAL_RUN_LIST_ID 0x8 /* of LORA_MAX_LISTS = 2 */
uint32_t hal_run_register(uint32_t offset);
void hal_set_run_register(uint32_t offset, uint32_t value);
/* Where the run's first command lies, and what units and links read; the caller has checked the
 * range. */
void hal_run_list(uint32_t bank, uint64_t offset, const struct lora_list *list,
                  const struct lora_step_state *state);

uint64_t hal_cycles(void); /* board clock */
uint32_t hal_cycles_per_ms(void);

/* A command begins (end = 0) or is done (end = 1): for the trace. */
void hal_trace(uint32_t index, const struct lora_command *command, uint32_t rows, uint32_t end);

#endif
