/* Who runs the cases of test_firmware_*.c behind firmware.h, and whose time it is. The firmware
 * compiled for this machine: time is what a test says. Or, with LORA_SIMULATED_CONTROL, the card's
 * image on simulated hardware (tests/rtl/core/case_control.cpp): time is its clock. */
#ifndef TEST_FW_CONTROL_H
#define TEST_FW_CONTROL_H

#include <stdint.h>

#include "firmware.h"

#ifdef LORA_SIMULATED_CONTROL

enum {
    CYCLES_PER_MS = 40000, /* of the control that the cases run on, as its ONCHIP_BYTES */
    WATCHDOG_MS = 5,
    SLACK_CYCLES = 20000, /* that the firmware takes before and after a list */
    SIMULATED = 1
};

uint64_t control_cycles(void);         /* of its clock, since it was made */
void control_pass(uint64_t cycles);    /* while the host does nothing */
void control_idle(void);               /* some cycles, for work between operations */
void control_restart(void);            /* `restart`: the control program begins anew */
uint32_t control_random(uint32_t end); /* below `end` */
int control_interrupts(void);          /* whether operations are to be cut off by a restart */
uint32_t control_shift(void);          /* bytes that lists lie behind a line of 64 */
uint32_t control_sequenced(void); /* commands that the sequencer started in the last operation */
/* Random cases: so many of those that the firmware alone runs. */
uint32_t control_rounds(uint32_t rounds);

#else

enum { CYCLES_PER_MS = 1000, WATCHDOG_MS = 100, SLACK_CYCLES = 100, SIMULATED = 0 };

static uint64_t control_now;

static inline uint64_t control_cycles(void) { return control_now; }
static inline void control_pass(uint64_t cycles) { control_now += cycles; }
static inline void control_idle(void) {}
static inline uint32_t control_rounds(uint32_t rounds) { return rounds; }
static inline uint32_t control_shift(void) { return 0; }
static inline uint32_t control_sequenced(void) { return 0; }

#endif

enum { WATCHDOG_CYCLES = WATCHDOG_MS * CYCLES_PER_MS, POLL_CYCLES = 10 };

#endif
