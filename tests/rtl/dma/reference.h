/* The emulated boards' DMA unit with its memory, without the boards: the truth for the simulated
 * one. */
#ifndef DMA_REFERENCE_H
#define DMA_REFERENCE_H

#include <stdint.h>

#include "lora/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

struct reference;

struct reference_outcome {
    uint32_t status, value;
};

struct reference *reference_new(uint32_t banks, uint64_t bank_bytes, uint32_t onchip_bytes);
void reference_free(struct reference *r);
void reference_reserve(struct reference *r, uint32_t bank, uint64_t offset, uint64_t bytes);
/* Of a bank, where an arena is: its byte `offset`. */
uint8_t *reference_at(struct reference *r, uint32_t bank, uint64_t offset);
struct reference_outcome reference_run(struct reference *r, const struct lora_command *command,
                                       const struct lora_list *list,
                                       const struct lora_step_state *state);

#ifdef __cplusplus
}
#endif

#endif
