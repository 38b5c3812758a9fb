/* The firmware's own dispatch (fw_dispatch.c, fw_counters.c, fw_fetch.c, fw_unit.c) over units that
 * do what the simulated board's did: each result is handed in, then all that may start has started.
 */
#ifndef TEST_SEQUENCER_REFERENCE_H
#define TEST_SEQUENCER_REFERENCE_H

#include <stdint.h>

#include "hal.h"
#include "lora/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

struct test_run { /* what the core tells the sequencer */
    const struct lora_command *commands;
    uint32_t command_count, counter_count;
    uint32_t rows, selected, moves_kv, dry, boards;
};

enum test_outcome { TEST_WAITING, TEST_DONE, TEST_FAILED };

struct test_start {
    uint32_t index, rows;
};

/* A new run, as far as it goes without a result; a dry one to its end. */
void reference_begin(const struct test_run *run);
void reference_result(uint32_t unit, uint32_t state, const struct hal_unit_result *result);
void reference_segments(const uint32_t groups[LORA_SEGMENTS]);
/* Time is up at `cycles` of a limit; returns whether the firmware would say so too, and would not
 * have at `before`. */
int reference_expire(uint64_t before, uint64_t cycles, uint64_t limit);

uint32_t reference_outcome(void);
uint32_t reference_votes(void);
uint32_t reference_poisoned(void);
/* The unit's n-th start; NULL if there is none yet. */
const struct test_start *reference_start(uint32_t unit, uint32_t n);
uint32_t reference_counter(uint32_t counter);
uint32_t reference_register(uint32_t offset);
struct lora_error_record reference_error(void);
struct lora_completion reference_completion(void);
uint32_t reference_seal(const void *data, uint32_t bytes);

#ifdef __cplusplus
}
#endif
#endif
