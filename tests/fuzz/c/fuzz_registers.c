/* Any writes of a host to the registers of lora_ctrl, doorbells among them. Input: writes of six
 * bytes, u16 offset and u32 value. Arena records stay inside the banks: the transports see to that.
 */
#include "firmware_board.h"
#include "taken.h"

uint32_t fuzz_taken;

enum { POLLS = 200000 };

static int is_inside(const struct lora_arena_record *record) {
    return !record->valid || (record->bank < BANKS && record->offset <= BANK_BYTES &&
                              record->bytes <= BANK_BYTES - record->offset);
}

/* Whether the operation was done. */
static uint32_t settle(void) {
    uint32_t polls = 0, state;
    do {
        control_pass(10);
        state = fw_poll(board.fw);
        CHECK(++polls < POLLS);
    } while (state == LORA_FW_RUNNING || state == LORA_FW_WAITING);
    for (uint32_t unit = 0; unit < LORA_UNITS; unit++) CHECK(!board.units[unit].busy);
    CHECK(board.registers[LORA_REG_AP_CTRL / 4] & LORA_AP_DONE);
    return state == LORA_FW_DONE;
}

/* 0 where a doorbell led to an error. */
static uint32_t put(uint32_t offset, uint32_t value) {
    uint32_t *at = &board.registers[offset / 4], kept = *at;
    struct lora_arena_record record;
    if (offset >= LORA_REG_IDENTITY_ABI && offset < LORA_REG_WATCHDOG_MS) return 1; /* read-only */
    *at = value;
    if (offset >= LORA_REG_ARENAS) {
        uint32_t first = (offset - LORA_REG_ARENAS) / sizeof record;
        memcpy(&record, (uint8_t *)board.registers + LORA_REG_ARENAS + first * sizeof record,
               sizeof record);
        if (!is_inside(&record)) *at = kept;
    }
    if (offset == LORA_REG_ARENA_COUNT && value > LORA_MAX_ARENAS) *at = kept;
    if (offset == LORA_REG_WATCHDOG_MS && value > 100) *at = kept;
    if (offset == LORA_REG_AP_CTRL && value & LORA_AP_START) return settle();
    return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct test_step step = step_new(1, 0);
    board_clean();
    list = ballot_list();
    CHECK_EQUAL(list_register(&list), LORA_OK);
    *table_entry(0, 0) = 2;
    script_begin();
    step_row(&step, 0, 0, 10, -1)->flags = LORA_ROW_WANT_ARGMAX;
    memcpy(board.banks[CONTROL] + STEP_AT, &step, sizeof step);
    uint32_t good = 1;
    for (; bytes >= 6; bytes -= 6, data += 6) {
        uint32_t value;
        memcpy(&value, data + 2, 4);
        uint32_t offset = ((uint32_t)data[0] | (uint32_t)data[1] << 8) & ~3u;
        if (offset < LORA_REG_ARENAS + LORA_MAX_ARENAS * sizeof(struct lora_arena_record))
            good &= put(offset, value);
    }
    fuzz_taken += good;
    return 0;
}
