/* Random programs: every instruction of rv32imc, between branches and calls that stay inside. */
#ifndef LORA_TEST_CORE_PROGRAMS_H
#define LORA_TEST_CORE_PROGRAMS_H

#include "reference.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CODE_BYTES 0x4000u /* from address 0 */
#define DEVICE 0x10000000u /* where programs reach beyond local memory */
#define DEVICE_BYTES 0x1000u

/* Fills memory and clears registers; a program sets each register before it uses it. The same for
 * the same seed. */
void program_make(struct machine *m, uint32_t seed);

/* What the device at DEVICE answers to its n-th access. */
uint32_t device_answer(uint32_t n, uint32_t address);

#ifdef __cplusplus
}
#endif
#endif
