/* The board's control program: one source, run by the card's soft core and by the emulated
 * board. */
#ifndef LORA_FIRMWARE_H
#define LORA_FIRMWARE_H

#include <stdint.h>

/* All of a board's firmware state: no globals, so that several emulated boards share the code.
 * The HAL finds its board through a thread-local or static pointer of its own. */
struct fw;

/* The board's registers must answer from the first fw_poll on; fw_reset touches no HAL function.
 * fw_poll returns DONE or ERROR once, when a run ends, and IDLE afterwards until AP_CTRL's start
 * bit is set again; LORA_REG_FIRMWARE_STATE keeps DONE or ERROR. WAITING: nothing changes until a
 * unit or a link does. */
uint32_t fw_bytes(void); /* size of the state; at most 48 KiB */
void fw_reset(struct fw *fw);
uint32_t fw_poll(struct fw *fw); /* never blocks; enum lora_firmware_state */

#endif
