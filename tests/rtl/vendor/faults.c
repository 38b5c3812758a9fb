// Faults of the emulated board that a card's memory has.
#include "board.h"

// Once, for the fault of a unit whose command fails: whether this read does.
int card_read_fails(void);
int card_read_fails(void) {
    uint32_t *left = emu_hal_port(0)->board->control_faults.commands_to_failure;
    for (uint32_t unit = 0; unit < LORA_UNITS; unit++) {
        if (!left[unit]) continue;
        left[unit] = 0;
        return 1;
    }
    return 0;
}
