/* lora_ctrl's register file as the host reads and writes it. The firmware's side, without the
 * AP_CTRL rules and read-only bits, is in hal_host.c. */
#include "board.h"

#include <string.h>

void emu_control_program(struct emu_board *board, uint32_t firmware_crc) {
    memset(board->control, 0, sizeof board->control);
    board->control[LORA_REG_AP_CTRL / 4] = LORA_AP_IDLE | LORA_AP_READY;
    board->control[LORA_REG_IDENTITY_ABI / 4] = LORA_ABI_NUMBER;
    board->control[LORA_REG_IDENTITY_BOARD / 4] = board->info.board_kind;
    board->control[LORA_REG_IDENTITY_SERIAL / 4] = board->info.serial;
    board->control[LORA_REG_FIRMWARE_CRC / 4] = firmware_crc;
    for (uint32_t unit = 0; unit < LORA_UNITS; unit++)
        board->control[LORA_REG_LAST_INDEX / 4 + unit] = ~0u;
    board->in_flight = board->followed = false;
}

static int check_offset(const struct emu_board *board, uint32_t offset,
                        struct lora_failure *failure) {
    if (offset < EMU_CONTROL_BYTES && offset % 4 == 0) return LORA_OK;
    return emu_fail(failure, LORA_ERR_ARGUMENT, board,
                    "board %u: lora_ctrl has registers 0..%#x by fours, not %#x", board->index,
                    EMU_CONTROL_BYTES - 4, offset);
}

int emu_control_read(struct emu_board *board, uint32_t offset, uint32_t *value,
                     struct lora_failure *failure) {
    int status = check_offset(board, offset, failure);
    if (status) return status;
    *value = board->control[offset / 4];
    if (offset == LORA_REG_TOKEN) board->token_seen = *value;
    if (offset == LORA_REG_AP_CTRL && (*value & LORA_AP_DONE)) {
        board->control[offset / 4] &= ~(uint32_t)LORA_AP_DONE;
        board->in_flight = board->followed = false;
    }
    return LORA_OK;
}

static bool writable(uint32_t offset) {
    return offset < LORA_REG_IDENTITY_ABI || offset == LORA_REG_WATCHDOG_MS ||
           offset == LORA_REG_TOKEN || offset == LORA_REG_CANCEL || offset >= LORA_REG_ARENAS;
}

int emu_control_start(struct emu_board *board, struct lora_failure *failure) {
    uint32_t *control = &board->control[LORA_REG_AP_CTRL / 4];
    if (board->in_flight)
        return emu_fail(failure, LORA_ERR_TRANSPORT, board,
                        "board %u: a run is in flight (AP_CTRL %#x); wait for it or reset",
                        board->index, *control);
    if (board->control_faults.start_lost) {
        board->control_faults.start_lost = false;
        return LORA_OK;
    }
    *control = LORA_AP_START;
    if (board->control_faults.done_early) *control |= LORA_AP_DONE;
    board->control_faults.done_early = false;
    board->in_flight = true;
    board->link_test.active = false;
    emu_wake(board);
    return LORA_OK;
}

int emu_control_write(struct emu_board *board, uint32_t offset, uint32_t value,
                      struct lora_failure *failure) {
    int status = check_offset(board, offset, failure);
    if (status) return status;
    if (offset == LORA_REG_AP_CTRL)
        return value & LORA_AP_START ? emu_control_start(board, failure) : LORA_OK;
    if (writable(offset)) board->control[offset / 4] = value; /* as on the card, else no effect */
    if (offset == LORA_REG_TOKEN) {
        board->token_seen = value;
        board->followed = true;
    }
    return LORA_OK;
}
