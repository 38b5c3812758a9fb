/* Frames of any bytes in a Router's FIFOs, on a ring of four. Nothing outside of the gathered rows
 * may change, and every gather ends or waits. Input: six bytes choose the gather, then frames: a
 * byte (bit 0: the port, bit 1: sealed), a header of 32 bytes. */
#include "emu_board.h"
#include "taken.h"

uint32_t fuzz_taken;

enum { BOARDS = 4, AT = 8192, GUARD = 4096, FRAMES = EMU_FIFO_FRAMES - 1, ROWS = 40 };

static struct test_cluster cluster;
static struct emu_board *boards[BOARDS];
static struct lora_list lists[BOARDS];

static void ready(void) {
    if (cluster.boards) return;
    cluster = test_open(BOARDS, TEST_RING, 0);
    test_links_up(&cluster);
    for (uint32_t b = 0; b < BOARDS; b++) {
        boards[b] = test_inside(&cluster, b);
        lists[b] = (struct lora_list){
            .rank = (uint8_t)b, .boards = BOARDS, .ring = 1, .port_next = 1, .port_previous = 0};
    }
}

/* A gather that the firmware would let through. */
static struct lora_gather gather_of(const uint8_t *data) {
    struct lora_gather gather = {.opcode = LORA_CMD_GATHER, .unit = LORA_UNIT_ROUTER};
    gather.element_bytes = (uint16_t)(1u << (data[0] & 3));
    gather.columns = 1 + (uint32_t)data[1] * (data[0] & 4 ? 16 : 1);
    gather.share_unit = (uint16_t)(1 + data[2] % 128);
    gather.segment_unit = (uint16_t)(1 + data[3] % 128);
    gather.collective = data[0] >> 7;
    gather.offset = AT;
    gather.stride = (gather.columns * gather.element_bytes + 63) / 64 * 64;
    return gather;
}

static void deliver(const uint8_t *data, size_t bytes) {
    struct emu_port *port = &boards[0]->ports[data[0] & 1];
    struct lora_frame *frame = emu_port_slot(port, port->tail);
    memset(frame, 0x5a, EMU_SLOT_BYTES);
    memcpy(frame, data + 1, bytes < sizeof *frame ? bytes : sizeof *frame);
    if (data[0] & 2) {
        frame->magic = LORA_FRAME_MAGIC;
        if (frame->length <= LORA_FRAME_PAYLOAD) emu_frame_seal(frame, emu_frame_crc(frame));
    }
    port->poisons += frame->kind == LORA_FRAME_POISON;
    port->tail++;
}

static void check_guards(const uint8_t *onchip, uint64_t end) {
    for (uint32_t i = 0; i < GUARD; i++) CHECK(onchip[AT - GUARD + i] == 0xee);
    for (uint32_t i = 0; i < GUARD; i++) CHECK(onchip[end + i] == 0xee);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct hal_unit_result result;
    if (bytes < 6) return 0;
    ready();
    struct lora_gather gather = gather_of(data);
    struct lora_step_state state = {
        .size = sizeof state, .step = 7, .epoch = 3, .row_count = 1u + data[4] % ROWS};
    uint64_t end = AT + (uint64_t)gather.stride * state.row_count;
    if (end + GUARD > TEST_ONCHIP) return 0;
    uint8_t *onchip = boards[0]->memory.base[LORA_BANK_ONCHIP];
    memset(onchip + AT - GUARD, 0xee, GUARD + end - AT + GUARD);
    emu_unit_start(boards[0], LORA_UNIT_ROUTER, (void *)&gather, &lists[0], &state);
    if (data[5] & 1) emu_router_pump(boards[0]);
    data += 6, bytes -= 6;
    for (uint32_t i = 0; i < FRAMES && bytes; i++) {
        size_t taken = bytes < 33 ? bytes : 33;
        deliver(data, taken - 1);
        data += taken, bytes -= taken;
    }
    uint32_t unit = LORA_UNIT_BUSY;
    for (uint32_t i = 0; i < 4 && unit == LORA_UNIT_BUSY; i++) {
        emu_router_pump(boards[0]);
        unit = emu_unit_poll(boards[0], LORA_UNIT_ROUTER, &result);
    }
    fuzz_taken += unit == LORA_UNIT_DONE;
    emu_hal_bind(boards[0]);
    hal_links_poison(&lists[0], &state);
    hal_links_epoch(state.epoch + 1);
    emu_link_requests_run(boards[0]);
    emu_unit_abort(boards[0], LORA_UNIT_ROUTER);
    check_guards(onchip, end);
    for (uint32_t b = 0; b < BOARDS; b++)
        for (uint32_t p = 0; p < LORA_PORTS; p++) emu_port_flush(&boards[b]->ports[p]);
    return 0;
}
