/* Step blocks, GENERATE's, link tests and sums of any bytes on a list that is right. Input: for
 * each operation a byte (its number, modulo 10), two bytes (length) and the block. */
#include "firmware_board.h"
#include "taken.h"

uint32_t fuzz_taken;

enum { OPERATIONS = 8 };

/* Bytes taken; `good`: whether the operation was done. */
static size_t take(const uint8_t *data, size_t bytes, uint32_t *good) {
    size_t length = (size_t)data[1] | (size_t)data[2] << 8;
    uint8_t *block = board.banks[CONTROL] + STEP_AT;
    if (length > bytes - 3) length = bytes - 3;
    if (length > BLOCK) length = BLOCK;
    memset(block, 0, BLOCK);
    memcpy(block, data + 3, length);
    board.registers[LORA_REG_BLOCK_OFFSET / 4] = STEP_AT;
    board.registers[LORA_REG_TOKEN / 4] = 0;
    board.log_count = board.aborted = board.poisoned = 0;
    if (operate(data[0] % 10u) != LORA_OK) *good = 0;
    return length + 3;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    board_clean();
    list = ballot_list();
    CHECK_EQUAL(list_register(&list), LORA_OK);
    for (uint32_t tile = 0; tile < 8; tile++) *table_entry(0, tile) = (uint16_t)(2 + tile);
    script_begin();
    uint32_t good = 1;
    for (uint32_t i = 0; i < OPERATIONS && bytes >= 3; i++) {
        size_t taken = take(data, bytes, &good);
        data += taken;
        bytes -= taken;
    }
    fuzz_taken += good;
    return 0;
}
