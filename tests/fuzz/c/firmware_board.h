/* The scripted board of the firmware tests, opened once and cleaned for each input. */
#ifndef FUZZ_FIRMWARE_BOARD_H
#define FUZZ_FIRMWARE_BOARD_H

#include "fw_ballot.h"

enum { USED = TABLE_AT + 0x1000 }; /* of the control bank, by lists, blocks and results */

/* As `board_open`, without the memory that no input changes. */
static void board_clean(void) {
    if (!board.fw) board_open();
    memset(board.registers, 0, sizeof board.registers);
    memset(board.units, 0, sizeof board.units);
    memset(board.banks[CONTROL], 0, USED);
    board.posted.bytes = 0;
    board.log_count = board.aborted = board.poisoned = 0;
    control_now = 0;
    board.link_polls = 0;
    board.on_start = NULL;
    for (uint32_t bank = 0; bank < 4; bank++) set_arena(bank, bank, 0, BANK_BYTES);
    set_arena(4, CONTROL, 0, BANK_BYTES);
    board.registers[LORA_REG_CONTROL_BANK / 4] = CONTROL;
    board.registers[LORA_REG_WATCHDOG_MS / 4] = 100;
    board.link_state = LORA_UNIT_DONE;
    fw_reset(board.fw);
    CHECK_EQUAL(fw_poll(board.fw), LORA_FW_IDLE);
}

#endif
