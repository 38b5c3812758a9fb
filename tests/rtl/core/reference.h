/* rv32imc as docs/core.md has it, an instruction at a time: what the hardware is compared with, and
 * what is itself compared with unicorn. */
#ifndef LORA_TEST_CORE_REFERENCE_H
#define LORA_TEST_CORE_REFERENCE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LOCAL_BYTES 0x20000u

/* An access outside of local memory. Read: `data` becomes the word that holds the address. Returns
 * 0 if nothing answers there. */
struct bus_access {
    uint32_t address, bytes, data; /* bytes: one bit each, none for a read */
};
typedef int (*bus_function)(void *context, struct bus_access *access);

struct machine {
    uint32_t pc, x[32];
    uint32_t code_end; /* stores below it are noticed: the hardware may have fetched ahead */
    uint32_t code_stores;
    bus_function bus;
    void *context;
    uint8_t memory[LOCAL_BYTES];
};

struct retired {
    uint32_t pc, writes, rd, value;
};

/* One instruction: 0, or why it stops the core (mcause), which leaves the machine as it was. */
uint32_t reference_step(struct machine *m, struct retired *done);

/* Steps until `count` are done or one stops: how many were done; `cause` as above. */
uint64_t reference_run(struct machine *m, uint64_t count, uint32_t *cause);

#ifdef __cplusplus
}
#endif
#endif
