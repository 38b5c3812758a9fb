/* The link test: numbered pattern frames with the sender's serial and port in the payload, both
 * ways at once. What arrives is compared word by word, so silent faults are found. */
#include "board.h"

#include <string.h>

#define TEST_COLLECTIVE 0xffff
#define PATTERN_HEAD 16 /* bytes: serial, port, number, seed */
#define UNHEARD 0xffffffffu

struct pattern {
    uint32_t serial, port, number, seed;
};

static uint32_t mix(uint32_t value) { /* a bijection of 32 bits, so every word tells its index */
    value ^= value >> 16;
    value *= 0x7feb352du;
    value ^= value >> 15;
    value *= 0x846ca68bu;
    return value ^ value >> 16;
}

static uint32_t pattern_word(const struct pattern *head, uint32_t key, uint32_t at) {
    switch (at) {
    case 0: return head->serial;
    case 1: return head->port;
    case 2: return head->number;
    case 3: return head->seed;
    default: return mix(key + at);
    }
}

static uint32_t pattern_key(const struct pattern *head) {
    return mix(head->seed ^ mix(head->serial ^ mix(head->port ^ mix(head->number))));
}

static void pattern_fill(uint8_t *payload, const struct pattern *head, uint32_t bytes) {
    uint32_t key = pattern_key(head);
    for (uint32_t at = 0; at < bytes; at += 4) {
        uint32_t word = pattern_word(head, key, at / 4);
        memcpy(payload + at, &word, bytes - at < 4 ? bytes - at : 4);
    }
}

static bool pattern_holds(const uint8_t *payload, const struct pattern *head, uint32_t bytes) {
    uint32_t key = pattern_key(head);
    for (uint32_t at = 0; at < bytes; at += 4) {
        uint32_t word = pattern_word(head, key, at / 4);
        if (memcmp(payload + at, &word, bytes - at < 4 ? bytes - at : 4)) return false;
    }
    return true;
}

static void begin(struct emu_board *board, struct lora_link_test *test) {
    board->link_test = (struct emu_link_test){.active = true};
    for (uint32_t p = 0; p < LORA_PORTS; p++) {
        struct lora_link_test_port *result = &test->ports[p];
        struct emu_port *port = &board->ports[p];
        result->sent = result->received = result->bad = 0;
        result->peer_serial = result->peer_port = result->first_bad = UNHEARD;
        /* What an earlier run left in the FIFO; the far end may have begun this one already. */
        for (struct lora_frame *frame; (frame = emu_port_head(port)) != NULL; emu_port_pop(port))
            if (frame->kind == LORA_FRAME_TEST && frame->epoch == test->seed) break;
    }
}

static void send(struct emu_board *board, const struct lora_link_test *test, uint32_t index,
                 struct lora_link_test_port *result) {
    struct emu_port *port = &board->ports[index];
    while (result->sent < test->frames) {
        struct lora_frame *frame = emu_port_claim(port, 0);
        if (!frame) return;
        struct pattern head = {board->info.serial, index, result->sent, test->seed};
        *frame = (struct lora_frame){.magic = LORA_FRAME_MAGIC,
                                     .epoch = test->seed,
                                     .step = result->sent,
                                     .collective = TEST_COLLECTIVE,
                                     .hop = 1,
                                     .kind = LORA_FRAME_TEST,
                                     .length = test->payload};
        pattern_fill(emu_frame_payload(frame), &head, test->payload);
        emu_frame_seal(frame, emu_frame_crc(frame));
        emu_port_commit(port);
        result->sent++;
    }
}

static bool frame_holds(struct emu_port *port, const struct lora_link_test *test, uint32_t number,
                        struct pattern *head) {
    struct lora_frame *frame = emu_port_head(port);
    if (!emu_port_head_intact(port) || frame->kind != LORA_FRAME_TEST ||
        frame->epoch != test->seed || frame->step != number || frame->length != test->payload)
        return false;
    memcpy(head, emu_frame_payload(frame), sizeof *head);
    struct pattern expected = {head->serial, head->port, number, test->seed};
    return pattern_holds(emu_frame_payload(frame), &expected, test->payload);
}

static void receive(struct emu_board *board, const struct lora_link_test *test, uint32_t index,
                    struct lora_link_test_port *result) {
    struct emu_port *port = &board->ports[index];
    while (result->received < test->frames && emu_port_head(port)) {
        struct pattern head;
        if (!frame_holds(port, test, result->received, &head)) {
            if (result->bad++ == 0) result->first_bad = result->received;
        } else if (result->peer_serial == UNHEARD) {
            result->peer_serial = head.serial;
            result->peer_port = head.port;
        }
        emu_port_pop(port);
        result->received++;
    }
}

uint32_t emu_link_test_slice(struct emu_board *board, struct lora_link_test *test) {
    if (test->size != sizeof *test || test->frames == 0 || test->payload < PATTERN_HEAD ||
        test->payload > LORA_FRAME_PAYLOAD)
        return LORA_UNIT_FAILED;
    if (!board->link_test.active) begin(board, test);
    uint32_t state = LORA_UNIT_DONE;
    for (uint32_t p = 0; p < LORA_PORTS; p++) {
        struct lora_link_test_port *result = &test->ports[p];
        if (!result->enabled) continue;
        send(board, test, p, result);
        receive(board, test, p, result);
        if (result->sent == test->frames && result->received == test->frames) continue;
        state = board->ports[p].up ? state : LORA_UNIT_FAILED;
        if (state == LORA_UNIT_DONE) state = LORA_UNIT_BUSY;
    }
    if (state != LORA_UNIT_BUSY) board->link_test.active = false;
    return state;
}
