/* Writes first inputs of the targets that read structures of abi.h: `PROGRAM FOLDER`. */
#include "firmware_board.h"

static const char *folder;

static void put(const char *target, const char *name, const void *data, size_t bytes) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s/%s", folder, target, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file)) {
        fprintf(stderr, "%s: cannot be written\n", path);
        exit(1);
    }
}

static void put_lists(void) {
    struct test_list plain = list_new(), voting = ballot_list();
    size_t head = sizeof plain.header;
    put("list", "plain", &plain, head + plain.header.command_count * 64);
    put("list", "voting", &voting, head + voting.header.command_count * 64);
}

/* A block as `fuzz_block` takes it: the operation, the length, the bytes. */
static size_t block(uint8_t *at, uint32_t operation, const void *data, size_t bytes) {
    at[0] = (uint8_t)operation;
    at[1] = (uint8_t)bytes;
    at[2] = (uint8_t)(bytes >> 8);
    memcpy(at + 3, data, bytes);
    return bytes + 3;
}

struct small_step { /* offsets that lie close together keep the inputs small */
    struct lora_step header;
    struct lora_kv_op ops[2];
    uint16_t path[8];
    struct lora_row rows[3];
};

static struct small_step small_step(uint32_t number) {
    struct small_step step = {.header = step_new(number, 0).header};
    step.header.bytes = sizeof step;
    step.header.rows_offset = offsetof(struct small_step, rows);
    step.header.kv_ops_offset = offsetof(struct small_step, ops);
    step.header.path_offset = offsetof(struct small_step, path);
    step.header.row_count = 3;
    for (uint32_t i = 0; i < 3; i++)
        step.rows[i] = (struct lora_row){.position = i,
                                         .token = 5,
                                         .adapter = -1,
                                         .slot = 10 + (int32_t)i,
                                         .parent = (int32_t)i - 1 < 0 ? -1 : 9 + (int32_t)i,
                                         .flags = LORA_ROW_WANT_ARGMAX};
    return step;
}

static void put_blocks(void) {
    uint8_t bytes[4096];
    struct small_step first = small_step(1), second = small_step(2);
    size_t length = block(bytes, LORA_OP_STEP, &first, sizeof first);
    second.header.kv_op_count = 1;
    second.header.path_count = 2;
    second.path[0] = 10, second.path[1] = 11;
    second.ops[0] = (struct lora_kv_op){LORA_KV_COMMIT, 0, 0, 0, 2};
    second.header.row_count = 1;
    second.rows[0].position = 2, second.rows[0].slot = 14;
    length += block(bytes + length, LORA_OP_STEP, &second, sizeof second);
    put("block", "steps", bytes, length);
    struct {
        struct lora_step header;
        struct lora_generate generate;
        uint32_t stops[4];
    } tokens = {.header = step_new(1, 0).header};
    tokens.header.bytes = sizeof tokens;
    tokens.header.row_count = 1;
    tokens.header.generate_offset = 64;
    tokens.header.rows_offset = 64 + offsetof(struct lora_generate, row);
    tokens.header.kv_ops_offset = tokens.header.path_offset = 64;
    tokens.generate = (struct lora_generate){
        .size = sizeof tokens.generate,
        .max_tokens = 7,
        .stop_count = 1,
        .stop_offset = 64 + sizeof tokens.generate,
        .slots = {10, 11, 12},
        .row = {
            .token = 5, .adapter = -1, .slot = 10, .parent = -1, .flags = LORA_ROW_WANT_ARGMAX}};
    tokens.stops[0] = 99;
    put("block", "generate", bytes, block(bytes, LORA_OP_GENERATE, &tokens, sizeof tokens));
    struct lora_link_test test = {.size = sizeof test, .frames = 3, .payload = 64, .seed = 1};
    put("block", "links", bytes, block(bytes, LORA_OP_LINK_TEST, &test, sizeof test));
}

static size_t write_of(uint8_t *at, uint32_t offset, uint32_t value) {
    at[0] = (uint8_t)offset;
    at[1] = (uint8_t)(offset >> 8);
    memcpy(at + 2, &value, 4);
    return 6;
}

static void put_registers(void) {
    static const struct {
        uint32_t operation, at;
    } runs[] = {{LORA_OP_IDENTIFY, 0}, {LORA_OP_REGISTER, LIST_AT}, {LORA_OP_STEP, STEP_AT}};
    uint8_t bytes[256];
    size_t length = 0;
    for (uint32_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
        length += write_of(bytes + length, LORA_REG_OPERATION, runs[i].operation);
        length += write_of(bytes + length, LORA_REG_BLOCK_OFFSET, runs[i].at);
        length += write_of(bytes + length, LORA_REG_AP_CTRL, LORA_AP_START);
    }
    put("registers", "runs", bytes, length);
    length = write_of(bytes, LORA_REG_OPERATION, LORA_OP_CHECKSUM);
    length += write_of(bytes + length, LORA_REG_BANK, 2);
    length += write_of(bytes + length, LORA_REG_BYTES_LO, 4096);
    length += write_of(bytes + length, LORA_REG_AP_CTRL, LORA_AP_START);
    put("registers", "sum", bytes, length);
}

/* What three boards send to the first in a gather of 256 columns of FP16, one row. */
static void put_frames(void) {
    uint8_t bytes[6 + 3 * 33] = {1, 255, 31, 31, 0, 1};
    for (uint32_t i = 0; i < 3; i++) {
        struct lora_frame frame = {.magic = LORA_FRAME_MAGIC,
                                   .epoch = 3,
                                   .step = 7,
                                   .source = (uint8_t)(i + 1),
                                   .segment = (uint8_t)(2 * i + 2),
                                   .hop = i == 2 ? 2 : 1,
                                   .kind = LORA_FRAME_DATA,
                                   .segments = 2,
                                   .length = 128};
        bytes[6 + 33 * i] = (uint8_t)(2 | (i == 0));
        memcpy(bytes + 7 + 33 * i, &frame, sizeof frame);
    }
    put("frames", "data", bytes, sizeof bytes);
    struct lora_frame poison = {.epoch = 3, .step = 7, .hop = 1, .kind = LORA_FRAME_POISON};
    memcpy(bytes + 7, &poison, sizeof poison);
    put("frames", "poison", bytes, 6 + 33);
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    folder = arguments[1];
    put_lists();
    put_blocks();
    put_registers();
    put_frames();
    return 0;
}
