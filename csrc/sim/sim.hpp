/* Simulated cards (overlays/rtl/card) as the controls of emulated boards: csrc/sim is a library of
 * its own, built by `make sim-build`, because it needs Verilator. */
#ifndef LORA_SIM_HPP
#define LORA_SIM_HPP

#include "lora/abi.h"
#include "lora/kernels.h"
#include "lora/transport.h"

#include "lora/emu.h"

extern "C" {

#define LORA_SIM_VERSION 5 /* of this interface */

/* Times in cycles of the card's clock; spacings in 1/65536 of one. */
struct lora_sim_config {
    uint32_t size;
    uint32_t boards;
    uint32_t cycles_per_ms;
    uint32_t slice;        /* of a poll; at most link_latency where boards have cables */
    uint32_t latency;      /* of memory, from a request to its answer */
    uint32_t onchip;       /* of the activation buffer, the same */
    uint32_t link_latency; /* from a frame's end to its arrival at the other board */
    uint32_t beat_spacing; /* between two transfers of a link */
    uint32_t seed;         /* 0: times as above. Others: memory and links answer now and then, in
                              any order, for tests */
    uint32_t line_spacing[LORA_MAX_BANKS + 1]; /* between two lines of a bank */
    /* Optional, for measurements: told of the begin and the end of each command of a list, and of
     * each operation, LORA_SIM_OPERATION; by the board's serial and its card's cycles, maybe from
     * several threads. */
    void (*told)(uint32_t serial, uint64_t cycle, uint32_t index, uint32_t ends);
};
#define LORA_SIM_OPERATION UINT32_MAX

struct lora_sim_counts {
    uint64_t cycles; /* simulated */
    uint64_t busy;   /* of these, while the host waited for an operation */
};

uint32_t lora_sim_version(void);
/* FP16 lanes of the cards' arrays. */
uint32_t lora_sim_lanes(void);
/* Channels of their integer matmuls, each behind its bank; 0: one array behind the units' port. */
uint32_t lora_sim_channels(void);
/* Bytes of the cards' activation buffer. */
uint32_t lora_sim_onchip_bytes(void);
/* Of one cluster; NULL: no memory, or a record of another size. */
const struct lora_control *lora_sim_open(const struct lora_sim_config *config);
/* Its last board ends it. */
void lora_sim_close(const struct lora_control *control);
/* 0 where the board has no card yet. */
void lora_sim_read_counts(const struct lora_control *control, uint32_t board,
                          struct lora_sim_counts *counts);
}

#endif
