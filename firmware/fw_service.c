/* CHECKSUM and LINK_TEST: what the host asks for outside of steps. */
#include "fw.h"

static uint64_t register_pair(uint32_t offset) {
    return (uint64_t)hal_register(offset + 4) << 32 | hal_register(offset);
}

void fw_sum_begin(struct fw *fw, uint32_t bank, uint64_t offset, uint32_t bytes, uint32_t crc) {
    struct fw_cursor *cursor = &fw->cursors[LORA_UNIT_DMA];
    struct lora_checksum command;
    fw_zero(&command, sizeof command);
    command.opcode = LORA_CMD_CHECKSUM;
    command.unit = LORA_UNIT_DMA;
    command.wait_counter = command.signal_counter = LORA_NO_COUNTER;
    command.layer = 0xffff;
    command.bank = bank;
    command.crc = crc;
    command.offset_lo = (uint32_t)offset;
    command.offset_hi = (uint32_t)(offset >> 32);
    command.bytes = bytes;
    fw_copy(&cursor->command, &command, sizeof cursor->command);
    cursor->index = FW_NONE;
    cursor->rows = 0;
    fw_unit_begin(fw, LORA_UNIT_DMA);
}

static void begin_slice(struct fw *fw, uint32_t crc) {
    uint64_t offset = fw->checksum_offset;
    uint32_t bytes = FW_CHECKSUM_SLICE;
    if (fw->checksum_left < FW_CHECKSUM_SLICE) bytes = (uint32_t)fw->checksum_left;
    fw->checksum_offset += bytes;
    fw->checksum_left -= bytes;
    fw_sum_begin(fw, hal_register(LORA_REG_BANK), offset, bytes, crc);
}

uint32_t fw_checksum_begin(struct fw *fw) {
    fw->list = &fw->lists[0];
    fw->checksum_offset = register_pair(LORA_REG_OFFSET_LO);
    fw->checksum_left = register_pair(LORA_REG_BYTES_LO);
    if (fw_check_range(fw, hal_register(LORA_REG_BANK), fw->checksum_offset, fw->checksum_left) ==
        FW_FAILED)
        return FW_FAILED;
    if (fw->checksum_left == 0) return FW_OVER;
    begin_slice(fw, 0);
    fw->phase = FW_PHASE_CHECKSUM;
    return FW_MORE;
}

uint32_t fw_checksum(struct fw *fw) {
    struct hal_unit_result result;
    uint32_t outcome = fw_unit_poll(fw, LORA_UNIT_DMA, &result);
    if (outcome != FW_OVER) return outcome;
    fw->completion.checksum = result.value;
    if (fw->checksum_left == 0) return FW_OVER;
    begin_slice(fw, result.value);
    return FW_MORE;
}

uint32_t fw_link_test_begin(struct fw *fw) {
    struct lora_link_test *test = &fw->link_test;
    if (fw->block_offset < LORA_CONTROL_PAGE || fw->block_offset % 4 != 0) {
        fw->error.bank = fw->control_bank;
        fw->error.offset = fw->block_offset;
        return fw_fail(fw, LORA_ERR_ADDRESS, fw->block_offset, LORA_CONTROL_PAGE);
    }
    if (fw_check_range(fw, fw->control_bank, fw->block_offset, sizeof *test) == FW_FAILED)
        return FW_FAILED;
    hal_read(fw->control_bank, fw->block_offset, test, sizeof *test);
    if (test->size != sizeof *test) return fw_fail(fw, LORA_ERR_SIZE, test->size, sizeof *test);
    if (test->payload > LORA_FRAME_PAYLOAD)
        return fw_fail(fw, LORA_ERR_SIZE, test->payload, LORA_FRAME_PAYLOAD);
    fw->phase = FW_PHASE_LINK_TEST;
    return FW_MORE;
}

void fw_link_test_store(struct fw *fw) {
    hal_write(fw->control_bank, fw->block_offset, &fw->link_test, sizeof fw->link_test);
}

/* The first port whose frames have not all arrived whole. */
static uint32_t unfinished_port(const struct lora_link_test *test) {
    for (uint32_t port = 0; port < LORA_PORTS; port++)
        if (test->ports[port].enabled &&
            (test->ports[port].received < test->frames || test->ports[port].bad))
            return port;
    return FW_NONE;
}

uint32_t fw_link_test(struct fw *fw) {
    uint32_t state = hal_link_test(&fw->link_test);
    fw->error.port = unfinished_port(&fw->link_test);
    if (state != LORA_UNIT_DONE && state != LORA_UNIT_FAILED) return FW_WAITING;
    fw_link_test_store(fw);
    if (state == LORA_UNIT_FAILED) return fw_fail(fw, LORA_ERR_LINK_DOWN, state, LORA_UNIT_DONE);
    fw->error.port = FW_NONE;
    return FW_OVER;
}
