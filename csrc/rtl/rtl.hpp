/* Kernels that run on the simulated units of the card: csrc/rtl is a library of its own, built by
 * `make rtl-build`, because it needs Verilator. */
#ifndef LORA_RTL_HPP
#define LORA_RTL_HPP

#include "lora/abi.h"
#include "lora/kernels.h"

extern "C" {

#define LORA_RTL_VERSION 4 /* of this interface */

#define LORA_RTL_WEIGHTS 16
#define LORA_RTL_OPERATIONS 32
#define LORA_RTL_CACHES 4

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
    /* Calls by operation, simulated ones and native ones. */
    uint64_t by_weights[LORA_RTL_WEIGHTS][2];      /* matmuls: enum lora_weight_type */
    uint64_t by_operation[LORA_RTL_OPERATIONS][2]; /* enum lora_vector_op */
    uint64_t by_cache[LORA_RTL_CACHES][2];         /* attention: enum lora_kv_type */
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
}

#endif
