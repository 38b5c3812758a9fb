/* Kernels that run on the simulated units of the card: csrc/rtl is a library of its own, built by
 * `make rtl-build`, because it needs Verilator. */
#ifndef LORA_RTL_HPP
#define LORA_RTL_HPP

#include "lora/abi.h"
#include "lora/kernels.h"

extern "C" {

#define LORA_RTL_VERSION 6 /* of this interface */

#define LORA_RTL_WEIGHTS 16
#define LORA_RTL_OPERATIONS 64
#define LORA_RTL_CACHES 4
#define LORA_RTL_STATES 64

/* What ran where since the library was opened. */
struct lora_rtl_counts {
    uint64_t simulated; /* matmuls on the simulated arrays */
    uint64_t products;  /* their multiplications */
    uint64_t cycles;    /* their clock cycles, from command to done */
    uint64_t matrix;    /* matmuls that went to the native kernels, */
    uint64_t vector;    /* and so did these */
    uint64_t attention;
    uint64_t adapter;
    uint64_t vectors;       /* vector commands on the simulated unit */
    uint64_t vector_cycles; /* their clock cycles */
    uint64_t attentions;    /* attention commands on the simulated unit */
    uint64_t attention_cycles;
    uint64_t adapters; /* A*x on the simulated unit; what it adds to a matmul counts there */
    uint64_t adapter_cycles;
    /* Calls by operation, simulated ones and native ones. */
    uint64_t by_weights[LORA_RTL_WEIGHTS][2];      /* matmuls: enum lora_weight_type */
    uint64_t by_operation[LORA_RTL_OPERATIONS][2]; /* enum lora_vector_op */
    uint64_t by_cache[LORA_RTL_CACHES][2];         /* attention: enum lora_kv_type */
};

/* Matmuls whose rows name adapters are LORA_RTL_ADAPT's. */
enum lora_rtl_unit {
    LORA_RTL_FP16_ARRAY,
    LORA_RTL_INT8_ARRAY,
    LORA_RTL_VECTOR,
    LORA_RTL_ATTEND,
    LORA_RTL_ADAPT,
    LORA_RTL_UNITS
};

/* What was done to commands of a unit. `left`: on offer and not taken in the cycle of the abort. */
struct lora_rtl_disturbed {
    uint64_t commands;  /* that were done right in the end */
    uint64_t attempts;  /* begun and ended, power-ups aside */
    uint64_t foreign;   /* of these another command than the next one */
    uint64_t announces; /* told before the start */
    uint64_t aborts;
    uint64_t aborts_announced;  /* before the start */
    uint64_t aborts_with_reads; /* answers were still to come */
    uint64_t aborts_with_read_left;
    uint64_t aborts_with_write_left;
    uint64_t resets;
    uint64_t resets_with_reads;
    uint64_t late; /* abort or reset behind the end */
    uint64_t power_ups;
    uint64_t states_at_power_up; /* bit s: state s, before the reset */
    uint64_t aborts_in[LORA_RTL_STATES];
};

uint32_t lora_rtl_version(void);
/* The table for an emulated cluster. What no unit can do yet goes to `native`, which must outlive
 * it. Registers and memories of the units begin with random bits made from `seed`. NULL where
 * memory ran out. One table a process: a second call gives the same units. */
const struct lora_kernels *lora_rtl_open(const struct lora_kernels *native, uint32_t seed);
void lora_rtl_read_counts(struct lora_rtl_counts *counts);
/* How the memory behaves that the units read: cycles from a request to its line, and in how many of
 * 256 cycles a port is not ready (0 at first). */
void lora_rtl_memory(uint32_t latency, uint32_t busy);
/* For tests: before each command that a unit runs, commands are begun and ended by abort or reset
 * `attempts` times, at cycles made from `seed`, and memory answers in any order. 0: no longer. A
 * unit that then does anything wrong ends the call with LORA_ERR_UNIT. */
void lora_rtl_disturb(uint32_t seed, uint32_t attempts);
void lora_rtl_read_disturbed(enum lora_rtl_unit unit, struct lora_rtl_disturbed *counts);
/* What was wrong first; "" nothing. */
const char *lora_rtl_disturb_error(void);
}

#endif
