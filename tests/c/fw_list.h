/* A small command list with one command of every kind, which tests change and register. */
#ifndef TEST_FW_LIST_H
#define TEST_FW_LIST_H

#include "fw_board.h"

enum {
    MAX_COMMANDS = 64,
    ROWS = 40, /* three row groups */
    KV_LINE = 0x400
};

union record {
    struct lora_command command;
    struct lora_matrix matrix;
    struct lora_vector vector;
    struct lora_attention attention;
    struct lora_kv_store kv_store;
    struct lora_kv_commit kv_commit;
    struct lora_gather gather;
    struct lora_move_rows move;
};

struct test_list {
    struct lora_list header;
    union record commands[MAX_COMMANDS];
};

/* Indices of list_new's commands. */
enum {
    KV_COMMIT_AT,
    EMBED_AT,
    GATHER_AT,
    MATRIX_AT,
    ROPE_AT,
    KV_STORE_AT,
    ATTENTION_AT,
    PACK_AT,
    HEAD_GATHER_AT,
    HEAD_AT,
    ARGMAX_AT,
    FENCE_AT,
    END_AT,
    COMMANDS
};
/* Counters: one a command in order, eight for GATHER and HEAD_GATHER. */
enum {
    C_COMMIT,
    C_EMBED,
    C_GATHER,
    C_MATRIX = C_GATHER + 8,
    C_ROPE,
    C_STORE,
    C_HEADS,
    C_PACK,
    C_HEAD_GATHER,
    C_HEAD = C_HEAD_GATHER + 8,
    COUNTERS
};

static struct lora_list header_new(void) {
    return (struct lora_list){.size = sizeof(struct lora_list),
                              .abi = LORA_ABI_NUMBER,
                              .list_id = 0,
                              .command_count = COMMANDS,
                              .counter_count = COUNTERS,
                              .rank = 0,
                              .boards = 2,
                              .ring = 0,
                              .port_next = 1,
                              .port_previous = LORA_NO_PORT,
                              .control_bank = CONTROL,
                              .table_bank = CONTROL,
                              .max_rows = ROWS,
                              .max_scratch = 64,
                              .max_sequences = 4,
                              .max_tiles = 8,
                              .page_count = 20,
                              .vocabulary = 100,
                              .positions = 256,
                              .onchip_bytes = ONCHIP_BYTES,
                              .kv_bank_first = 2,
                              .kv_bank_count = 2,
                              .kv_layers = 2,
                              .kv_heads = 2,
                              .head_dim = 16,
                              .kv_line = KV_LINE,
                              .table_line = TABLE_AT / 64,
                              .results_offset = RESULTS_AT,
                              .results_bytes = RESULTS_BYTES,
                              .embed_columns = 64};
}

static void common(union record *record, uint32_t opcode, uint32_t unit, uint32_t flags,
                   uint32_t wait, uint32_t value, uint32_t signal) {
    memset(record, 0, sizeof *record);
    record->command.opcode = (uint8_t)opcode;
    record->command.unit = (uint8_t)unit;
    record->command.flags = (uint16_t)flags;
    record->command.wait_counter = (uint16_t)wait;
    record->command.wait_value = (uint16_t)value;
    record->command.signal_counter = (uint16_t)signal;
}

/* A KV_COMMIT of the first layer, and one of the second where PACK was. */
static inline void commit_layers(union record *c) {
    c[KV_COMMIT_AT].kv_commit.layers = 1;
    common(&c[PACK_AT], LORA_CMD_KV_COMMIT, LORA_UNIT_DMA, 0, C_HEADS, 1, C_PACK);
    c[PACK_AT].kv_commit.kv_layer = c[PACK_AT].kv_commit.layers = 1;
}

static void fill_front(union record *c) {
    const uint32_t segments = LORA_FLAG_WAIT_SEGMENTS | LORA_FLAG_WAIT_GROUPS;
    common(&c[KV_COMMIT_AT], LORA_CMD_KV_COMMIT, LORA_UNIT_DMA, 0, LORA_NO_COUNTER, 0, C_COMMIT);
    common(&c[EMBED_AT], LORA_CMD_VECTOR, LORA_UNIT_VFU, 0, LORA_NO_COUNTER, 0, C_EMBED);
    c[EMBED_AT].vector.op = LORA_VEC_EMBED;
    c[EMBED_AT].vector.columns = 32;
    c[EMBED_AT].vector.y_bank = LORA_BANK_ONCHIP;
    c[EMBED_AT].vector.y_stride = 128;
    c[EMBED_AT].vector.a_bank = 0;
    c[EMBED_AT].vector.b_bank = LORA_NO_BANK;
    common(&c[GATHER_AT], LORA_CMD_GATHER, LORA_UNIT_ROUTER, LORA_FLAG_SIGNAL_SEGMENTS, C_EMBED, 1,
           C_GATHER);
    c[GATHER_AT].gather = (struct lora_gather){.opcode = LORA_CMD_GATHER,
                                               .unit = LORA_UNIT_ROUTER,
                                               .flags = LORA_FLAG_SIGNAL_SEGMENTS,
                                               .wait_counter = C_EMBED,
                                               .wait_value = 1,
                                               .signal_counter = C_GATHER,
                                               .stride = 128,
                                               .columns = 64,
                                               .share_unit = 32,
                                               .segment_unit = 32,
                                               .element_bytes = 2};
    common(&c[MATRIX_AT], LORA_CMD_MATRIX, LORA_UNIT_MPU, segments, C_GATHER, 1, C_MATRIX);
    c[MATRIX_AT].matrix.bank_count = 2;
    c[MATRIX_AT].matrix.merge = 2;
    c[MATRIX_AT].matrix.weight_type = c[MATRIX_AT].matrix.y_type = LORA_FP16;
    c[MATRIX_AT].matrix.weight_line = 128;
    c[MATRIX_AT].matrix.first = 1;
    c[MATRIX_AT].matrix.x_bank = c[MATRIX_AT].matrix.y_bank = LORA_BANK_ONCHIP;
    c[MATRIX_AT].matrix.k = 64;
    c[MATRIX_AT].matrix.n = 96;
    c[MATRIX_AT].matrix.x_stride = 128;
    c[MATRIX_AT].matrix.y_offset = 8192;
    c[MATRIX_AT].matrix.y_stride = 192;
    c[MATRIX_AT].matrix.bias_bank = 1;
    common(&c[ROPE_AT], LORA_CMD_VECTOR, LORA_UNIT_VFU, 0, C_MATRIX, 1, C_ROPE);
    c[ROPE_AT].vector.op = LORA_VEC_ROPE;
    c[ROPE_AT].vector.columns = 64;
    c[ROPE_AT].vector.extra = 16;
    c[ROPE_AT].vector.x_offset = 8192;
    c[ROPE_AT].vector.x_stride = 192;
}

static void fill_back(union record *c) {
    const uint32_t segments = LORA_FLAG_WAIT_SEGMENTS | LORA_FLAG_WAIT_GROUPS;
    common(&c[KV_STORE_AT], LORA_CMD_KV_STORE, LORA_UNIT_DMA, 0, C_ROPE, 1, C_STORE);
    c[KV_STORE_AT].kv_store.head_dim = 16;
    c[KV_STORE_AT].kv_store.kv_heads = 2;
    c[KV_STORE_AT].kv_store.k_offset = 8192 + 64;
    c[KV_STORE_AT].kv_store.v_offset = 8192 + 128;
    c[KV_STORE_AT].kv_store.stride = 192;
    common(&c[ATTENTION_AT], LORA_CMD_ATTENTION, LORA_UNIT_MPU, LORA_FLAG_SIGNAL_HEADS, C_STORE, 1,
           C_HEADS);
    c[ATTENTION_AT].attention.head_dim = 16;
    c[ATTENTION_AT].attention.q_heads = 2;
    c[ATTENTION_AT].attention.kv_heads = 2;
    c[ATTENTION_AT].attention.group = 2;
    c[ATTENTION_AT].attention.q_offset = 8192;
    c[ATTENTION_AT].attention.q_stride = 192;
    c[ATTENTION_AT].attention.y_offset = 16384;
    c[ATTENTION_AT].attention.y_stride = 128;
    common(&c[PACK_AT], LORA_CMD_MOVE_ROWS, LORA_UNIT_DMA, LORA_FLAG_SELECTED | LORA_FLAG_PACK,
           C_HEADS, 2, C_PACK);
    c[PACK_AT].move.x_bank = c[PACK_AT].move.y_bank = LORA_BANK_ONCHIP;
    c[PACK_AT].move.x_offset = 16384;
    c[PACK_AT].move.x_stride = c[PACK_AT].move.y_stride = 128;
    c[PACK_AT].move.y_offset = 24576;
    c[PACK_AT].move.bytes = 64;
    c[HEAD_GATHER_AT] = c[GATHER_AT];
    c[HEAD_GATHER_AT].gather.flags |= LORA_FLAG_SELECTED;
    c[HEAD_GATHER_AT].gather.wait_counter = C_PACK;
    c[HEAD_GATHER_AT].gather.signal_counter = C_HEAD_GATHER;
    c[HEAD_GATHER_AT].gather.offset = 24576;
    c[HEAD_GATHER_AT].gather.collective = 1;
    c[HEAD_AT] = c[MATRIX_AT];
    c[HEAD_AT].matrix.flags = (uint16_t)(segments | LORA_FLAG_SELECTED);
    c[HEAD_AT].matrix.wait_counter = C_HEAD_GATHER;
    c[HEAD_AT].matrix.signal_counter = C_HEAD;
    c[HEAD_AT].matrix.n = 50;
    c[HEAD_AT].matrix.x_offset = 24576;
    c[HEAD_AT].matrix.y_bank = CONTROL;
    c[HEAD_AT].matrix.y_offset = RESULTS_AT;
    c[HEAD_AT].matrix.y_stride = 256;
    c[HEAD_AT].matrix.y_type = LORA_FP32;
    c[HEAD_AT].matrix.bias_bank = LORA_NO_BANK;
    common(&c[ARGMAX_AT], LORA_CMD_VECTOR, LORA_UNIT_VFU, LORA_FLAG_SELECTED, C_HEAD, 1,
           LORA_NO_COUNTER);
    c[ARGMAX_AT].vector.op = LORA_VEC_ARGMAX;
    c[ARGMAX_AT].vector.columns = 50;
    c[ARGMAX_AT].vector.y_bank = CONTROL;
    c[ARGMAX_AT].vector.x_offset = RESULTS_AT;
    c[ARGMAX_AT].vector.x_stride = 256;
    c[ARGMAX_AT].vector.y_offset = RESULTS_AT + ROWS * 256;
    c[ARGMAX_AT].vector.y_stride = 8;
    common(&c[FENCE_AT], LORA_CMD_FENCE, LORA_UNIT_CONTROL, 0, LORA_NO_COUNTER, 0, LORA_NO_COUNTER);
    common(&c[END_AT], LORA_CMD_END, LORA_UNIT_CONTROL, 0, LORA_NO_COUNTER, 0, LORA_NO_COUNTER);
}

static struct test_list list_new(void) {
    struct test_list list;
    memset(&list, 0, sizeof list);
    list.header = header_new();
    fill_front(list.commands);
    fill_back(list.commands);
    for (uint32_t i = 0; i < COMMANDS; i++)
        list.commands[i].command.layer = (uint16_t)i; /* names the command in the start log */
    return list;
}

static void list_store(struct test_list *list) {
    uint32_t bytes = list->header.command_count < MAX_COMMANDS ? list->header.command_count : 0;
    list->header.crc = 0;
    list->header.crc = lora_crc32(lora_crc32(0, &list->header, sizeof list->header), list->commands,
                                  bytes * 64);
    memcpy(board.banks[CONTROL] + LIST_AT, &list->header, sizeof list->header);
    memcpy(board.banks[CONTROL] + LIST_AT + sizeof list->header, list->commands, bytes * 64);
    board.registers[LORA_REG_BLOCK_OFFSET / 4] = LIST_AT;
    board.registers[LORA_REG_LIST_ID / 4] = 0;
}

static uint32_t list_register(struct test_list *list) {
    list_store(list);
    return operate(LORA_OP_REGISTER);
}

#endif
