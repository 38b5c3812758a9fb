/* Ways to spoil the list of fw_list.h, each with the error that registration gives for it. */
#ifndef TEST_FW_SPOILT_H
#define TEST_FW_SPOILT_H

#include "fw_list.h"

struct spoilt {
    const char *what;
    void (*spoil)(struct test_list *list);
    uint32_t code;
    uint32_t index; /* ~0: the header */
};

#define SPOIL(name, statement)                                                                     \
    static void name(struct test_list *list) {                                                     \
        struct lora_list *h = &list->header;                                                       \
        union record *c = list->commands;                                                          \
        (void)h, (void)c;                                                                          \
        statement;                                                                                 \
    }

SPOIL(header_size, h->size = 255)
SPOIL(header_abi, h->abi = LORA_ABI_NUMBER + 1)
SPOIL(header_id, h->list_id = 1)
SPOIL(no_commands, h->command_count = 0)
SPOIL(many_commands, h->command_count = 8193)
SPOIL(huge_commands, h->command_count = 0xffffffff)
SPOIL(beyond_arena, h->command_count = 8192)
SPOIL(many_counters, h->counter_count = LORA_MAX_COUNTERS + 1)
SPOIL(rank_beyond, h->rank = 2)
SPOIL(boards_65, h->boards = 65)
SPOIL(no_port, h->port_next = LORA_NO_PORT)
SPOIL(port_two, h->port_next = 2)
SPOIL(same_port, h->port_previous = 1)
SPOIL(ring_two, h->ring = 2)
SPOIL(rows_many, h->max_rows = LORA_MAX_ROWS + 1)
SPOIL(rows_none, h->max_rows = 0)
SPOIL(scratch_many, h->max_scratch = LORA_MAX_SCRATCH + 1)
SPOIL(sequences_many, h->max_sequences = LORA_MAX_SEQUENCES + 1)
SPOIL(tiles_none, h->max_tiles = 0)
SPOIL(tiles_huge, h->max_tiles = 0xffffffff)
SPOIL(pages_scratch_only, h->page_count = 2)
SPOIL(pages_huge, h->page_count = 0x10001)
SPOIL(onchip_more, h->onchip_bytes = ONCHIP_BYTES + 1)
SPOIL(results_page_zero, h->results_offset = 0x800)
SPOIL(results_on_list, h->results_offset = LIST_AT + 64)
SPOIL(results_on_table, h->results_offset = TABLE_AT)
SPOIL(results_beyond, h->results_bytes = 0xffffffff)
SPOIL(table_page_zero, h->table_line = 0)
SPOIL(table_on_list, h->table_line = LIST_AT / 64)
SPOIL(table_beyond, h->table_line = BANK_BYTES / 64 - 1)
SPOIL(table_no_arena, h->table_bank = 7)
SPOIL(table_in_pool, (h->table_bank = 3, h->table_line = KV_LINE + 1))
SPOIL(other_control, h->control_bank = 33)
SPOIL(pool_no_arena, h->kv_bank_first = 3)
SPOIL(pool_no_banks, h->kv_bank_count = 0)
SPOIL(pool_beyond, h->kv_line = BANK_BYTES / 64 - 16)
SPOIL(pool_overflow, (h->page_count = 0x10000, h->kv_layers = 4096, h->kv_heads = 4096))
SPOIL(spill_in_scratch, (h->kv_spill_bank_count = 1, h->kv_spill_page = 1, h->kv_spill_line = 1024))
SPOIL(spill_no_pages, (h->kv_spill_bank_count = 1, h->kv_spill_page = 20, h->kv_spill_line = 1024))
SPOIL(spill_no_arena,
      (h->kv_spill_bank_count = 1, h->kv_spill_bank_first = 9, h->kv_spill_page = 10))
SPOIL(spill_beyond, (h->kv_spill_bank_count = 1, h->kv_spill_bank_first = 2, h->kv_spill_page = 10,
                     h->kv_spill_line = BANK_BYTES / 64 - 16))
SPOIL(spill_on_table, (h->kv_spill_bank_count = 1, h->kv_spill_bank_first = CONTROL,
                       h->kv_spill_page = 19, h->kv_spill_line = TABLE_AT / 64))
SPOIL(spill_on_results, (h->kv_spill_bank_count = 1, h->kv_spill_bank_first = CONTROL,
                         h->kv_spill_page = 19, h->kv_spill_line = RESULTS_AT / 64))
SPOIL(spill_on_list, (h->kv_spill_bank_count = 1, h->kv_spill_bank_first = CONTROL,
                      h->kv_spill_page = 19, h->kv_spill_line = LIST_AT / 64))
SPOIL(spill_page_zero, (h->kv_spill_bank_count = 1, h->kv_spill_bank_first = CONTROL,
                        h->kv_spill_page = 19, h->kv_spill_line = 0))
SPOIL(taps_many, h->taps = LORA_MAX_TAPS + 1)
SPOIL(vocabulary_none, h->vocabulary = 0)

SPOIL(argmax_on_records, c[ARGMAX_AT].vector.y_offset = LORA_ERROR_OFFSET)
SPOIL(argmax_beyond_records, c[ARGMAX_AT].vector.y_offset = LORA_RECORDS_BYTES - 8)

SPOIL(opcode_zero, c[MATRIX_AT].command.opcode = 0)
SPOIL(opcode_unknown, c[MATRIX_AT].command.opcode = 12)
SPOIL(opcode_checksum, (c[PACK_AT].command.opcode = LORA_CMD_CHECKSUM))
SPOIL(wrong_unit, c[MATRIX_AT].command.unit = LORA_UNIT_VFU)
SPOIL(unknown_unit, c[MATRIX_AT].command.unit = 9)
SPOIL(unknown_flag, c[MATRIX_AT].command.flags |= 0x40)
SPOIL(pack_on_matrix, c[MATRIX_AT].command.flags |= LORA_FLAG_PACK)
SPOIL(early_end, (c[ARGMAX_AT] = c[END_AT]))
SPOIL(no_end, (c[END_AT] = c[FENCE_AT]))
SPOIL(wait_beyond, c[ROPE_AT].command.wait_counter = COUNTERS)
SPOIL(signal_beyond, c[ROPE_AT].command.signal_counter = COUNTERS)
SPOIL(wait_segments_beyond, c[HEAD_AT].command.wait_counter = COUNTERS - 7)
SPOIL(signal_segments_beyond, c[GATHER_AT].command.signal_counter = COUNTERS - 7)
SPOIL(never_signalled, c[ROPE_AT].command.wait_value = 2)
SPOIL(too_few_heads, c[PACK_AT].command.wait_value = 3)
SPOIL(groups_as_plain, c[MATRIX_AT].command.flags &= (uint16_t)~LORA_FLAG_WAIT_GROUPS)
SPOIL(selected_as_all, c[HEAD_AT].command.flags &= (uint16_t)~LORA_FLAG_SELECTED)
SPOIL(waits_for_later, c[EMBED_AT].command.wait_counter = C_ROPE;
      c[EMBED_AT].command.wait_value = 1)
SPOIL(selected_too_many,
      (c[HEAD_AT].command.wait_counter = C_GATHER, c[HEAD_AT].command.wait_value = 2))
SPOIL(waits_behind_fence,
      (c[FENCE_AT].command.wait_counter = C_COMMIT, c[FENCE_AT].command.wait_value = 2))

SPOIL(vector_op, c[EMBED_AT].vector.op = LORA_VEC_JOIN_HEADS + 1)
SPOIL(vector_op_zero, c[EMBED_AT].vector.op = 0)
SPOIL(columns_huge, c[EMBED_AT].vector.columns = 0x80000000)
SPOIL(table_rows, h->vocabulary = BANK_BYTES / 64 + 1)
SPOIL(table_bank_none, c[EMBED_AT].vector.a_bank = LORA_NO_BANK)
SPOIL(position_rows, (c[EMBED_AT].vector.b_bank = 1, c[EMBED_AT].vector.b_line = 4096 - 256 + 1))
SPOIL(embed_columns_beyond, c[EMBED_AT].vector.first = 33)
SPOIL(embed_to_weights, c[EMBED_AT].vector.y_bank = 0)

/* The tokens as columns of a matrix: x_offset is bank_count | merge << 8 | weight_type << 16. */
static void tokens_in_blocks(union record *c, uint32_t packed, uint32_t line) {
    c[EMBED_AT].vector.flags |= LORA_FLAG_TOKEN_BLOCKS;
    c[EMBED_AT].vector.x_offset = packed;
    c[EMBED_AT].vector.x_stride = 0;
    c[EMBED_AT].vector.a_line = line;
}
SPOIL(token_blocks_fp16, tokens_in_blocks(c, 0x010101, 0))
SPOIL(token_blocks_unknown, tokens_in_blocks(c, 0xc60101, 0))
SPOIL(token_blocks_cut, tokens_in_blocks(c, 0x560101, 0))
SPOIL(token_blocks_no_merge, tokens_in_blocks(c, 0x160001, 0))
SPOIL(token_blocks_no_bank, tokens_in_blocks(c, 0x160100, 0))
SPOIL(token_blocks_beyond, tokens_in_blocks(c, 0x160101, BANK_BYTES / 64 - 4 * 68 + 1))
SPOIL(token_blocks_rope, c[ROPE_AT].vector.flags |= LORA_FLAG_TOKEN_BLOCKS)
static void sums_over(union record *c, uint32_t first, uint32_t columns, uint32_t op) {
    c[ROPE_AT].vector.op = (uint16_t)op;
    c[ROPE_AT].vector.columns = columns;
    c[ROPE_AT].vector.first = first;
    c[ROPE_AT].vector.extra = 256; /* segments of 32 columns */
    c[ROPE_AT].vector.z_offset = 16384;
    c[ROPE_AT].vector.z_stride = 64;
}
SPOIL(sums_of_nothing, sums_over(c, 32, 0, LORA_VEC_LN_SUMS))
SPOIL(sums_of_a_part, sums_over(c, 0, 31, LORA_VEC_RMS_SUMS))
SPOIL(sums_from_within, sums_over(c, 16, 48, LORA_VEC_LN_SUMS))
SPOIL(sums_into_a_part, sums_over(c, 32, 40, LORA_VEC_LN_SUMS))
SPOIL(rope_head_dim, c[ROPE_AT].vector.extra = 8)
SPOIL(rope_table, c[ROPE_AT].vector.a_line = 4096 - 255)
SPOIL(rope_beyond, c[ROPE_AT].vector.x_offset = ONCHIP_BYTES - 39 * 192 - 126)
SPOIL(argmax_beyond, c[ARGMAX_AT].vector.y_offset = RESULTS_AT + RESULTS_BYTES - 39 * 8)
SPOIL(argmax_before, c[ARGMAX_AT].vector.y_offset = RESULTS_AT - 8)
SPOIL(argmax_vocabulary, c[ARGMAX_AT].vector.first = 51)
SPOIL(argmax_unaligned, c[ARGMAX_AT].vector.y_offset += 2)
SPOIL(weight_type, c[MATRIX_AT].matrix.weight_type = 2)
SPOIL(y_type, c[MATRIX_AT].matrix.y_type = 0)
SPOIL(merge_none, c[MATRIX_AT].matrix.merge = 0)
SPOIL(banks_none, c[MATRIX_AT].matrix.bank_count = 0)
SPOIL(banks_onchip, (c[MATRIX_AT].matrix.bank_first = 62, c[MATRIX_AT].matrix.bank_count = 2))
SPOIL(k_none, c[MATRIX_AT].matrix.k = 0)
SPOIL(k_huge, c[MATRIX_AT].matrix.k = 0xffffff80)
SPOIL(n_huge, c[MATRIX_AT].matrix.n = 0x100001)
SPOIL(weights_beyond, c[MATRIX_AT].matrix.weight_line = 4096 - 255)
SPOIL(bias_beyond, c[MATRIX_AT].matrix.bias_line = 4096 - 2)
SPOIL(x_row_beyond, c[MATRIX_AT].matrix.x_stride = ONCHIP_BYTES / 39)
SPOIL(y_stride_short, c[MATRIX_AT].matrix.y_stride = 190)
SPOIL(y_stride_wraps, c[MATRIX_AT].matrix.y_stride = 110127368)
SPOIL(y_odd, c[MATRIX_AT].matrix.y_offset += 1)
SPOIL(attention_head_dim, c[ATTENTION_AT].attention.head_dim = 32)
SPOIL(attention_layer, c[ATTENTION_AT].attention.kv_layer = 2)
SPOIL(attention_group_none, c[ATTENTION_AT].attention.group = 0)
SPOIL(attention_first, c[ATTENTION_AT].attention.kv_first = 1)
SPOIL(slopes_kind, c[ATTENTION_AT].attention.slope_kind = LORA_SLOPE_SINK + 1)
SPOIL(cap_infinite, c[ATTENTION_AT].attention.cap = 0x7f800000)
SPOIL(cap_negative, c[ATTENTION_AT].attention.cap = 0xbf800000)
SPOIL(slopes_beyond, c[ATTENTION_AT].attention.slope_kind = LORA_SLOPE_DISTANCE;
      c[ATTENTION_AT].attention.slope_line = 1u << 20)
SPOIL(slopes_bank, c[ATTENTION_AT].attention.slope_kind = LORA_SLOPE_BF16_POSITION;
      c[ATTENTION_AT].attention.slope_bank = 20)
SPOIL(attention_heads, (c[ATTENTION_AT].attention.q_first = 3))
SPOIL(store_heads, c[KV_STORE_AT].kv_store.kv_heads = 3)
SPOIL(store_beyond, c[KV_STORE_AT].kv_store.v_offset = ONCHIP_BYTES)
SPOIL(gather_width, c[GATHER_AT].gather.element_bytes = 3)
SPOIL(gather_unit, c[GATHER_AT].gather.share_unit = 0)
SPOIL(gather_twice, c[HEAD_GATHER_AT].gather.collective = 0)
SPOIL(gather_beyond, c[GATHER_AT].gather.offset = ONCHIP_BYTES - 39 * 128 - 126)
SPOIL(move_beyond, c[PACK_AT].move.bytes = 0xffffffff)
SPOIL(move_from_weights, c[PACK_AT].move.x_bank = 0)
SPOIL(commit_twice, (c[PACK_AT] = c[KV_COMMIT_AT]))
SPOIL(commit_late,
      (c[KV_COMMIT_AT] = c[KV_STORE_AT], c[KV_STORE_AT].command.opcode = LORA_CMD_KV_COMMIT,
       c[KV_STORE_AT].command.body[0] = 0))
SPOIL(commit_part, (c[KV_COMMIT_AT].kv_commit.layers = 1))
SPOIL(commit_beyond, (c[KV_COMMIT_AT].kv_commit.layers = 3))
SPOIL(commit_later, (c[KV_COMMIT_AT].kv_commit.kv_layer = 1))
SPOIL(commit_behind, (commit_layers(c), c[KV_STORE_AT].kv_store.kv_layer = 1))

#define HEADER 0xffffffffu
static const struct spoilt spoilt[] = {
    {"header size", header_size, LORA_ERR_SIZE, HEADER},
    {"ABI", header_abi, LORA_ERR_ABI, HEADER},
    {"list id", header_id, LORA_ERR_LIST, HEADER},
    {"no commands", no_commands, LORA_ERR_SIZE, HEADER},
    {"8193 commands", many_commands, LORA_ERR_SIZE, HEADER},
    {"2^32-1 commands", huge_commands, LORA_ERR_SIZE, HEADER},
    {"list beyond its arena", beyond_arena, LORA_ERR_ADDRESS, HEADER},
    {"counters", many_counters, LORA_ERR_SIZE, HEADER},
    {"rank", rank_beyond, LORA_ERR_SIZE, HEADER},
    {"boards", boards_65, LORA_ERR_SIZE, HEADER},
    {"port missing", no_port, LORA_ERR_SIZE, HEADER},
    {"port 2", port_two, LORA_ERR_SIZE, HEADER},
    {"one port twice", same_port, LORA_ERR_SIZE, HEADER},
    {"ring", ring_two, LORA_ERR_SIZE, HEADER},
    {"rows", rows_many, LORA_ERR_SIZE, HEADER},
    {"no rows", rows_none, LORA_ERR_SIZE, HEADER},
    {"scratch", scratch_many, LORA_ERR_SIZE, HEADER},
    {"sequences", sequences_many, LORA_ERR_SIZE, HEADER},
    {"no tiles", tiles_none, LORA_ERR_SIZE, HEADER},
    {"tiles", tiles_huge, LORA_ERR_SIZE, HEADER},
    {"pages for scratch only", pages_scratch_only, LORA_ERR_SIZE, HEADER},
    {"pages", pages_huge, LORA_ERR_SIZE, HEADER},
    {"on-chip bytes", onchip_more, LORA_ERR_SIZE, HEADER},
    {"results in the first page", results_page_zero, LORA_ERR_ADDRESS, HEADER},
    {"results on the list", results_on_list, LORA_ERR_ADDRESS, HEADER},
    {"results on the table", results_on_table, LORA_ERR_ADDRESS, HEADER},
    {"results beyond", results_beyond, LORA_ERR_ADDRESS, HEADER},
    {"table in the first page", table_page_zero, LORA_ERR_ADDRESS, HEADER},
    {"table on the list", table_on_list, LORA_ERR_ADDRESS, HEADER},
    {"table beyond", table_beyond, LORA_ERR_ADDRESS, HEADER},
    {"table without arena", table_no_arena, LORA_ERR_ADDRESS, HEADER},
    {"table in the pool", table_in_pool, LORA_ERR_ADDRESS, HEADER},
    {"control bank", other_control, LORA_ERR_ADDRESS, HEADER},
    {"pool without arena", pool_no_arena, LORA_ERR_ADDRESS, HEADER},
    {"pool without banks", pool_no_banks, LORA_ERR_SIZE, HEADER},
    {"pool beyond", pool_beyond, LORA_ERR_ADDRESS, HEADER},
    {"spilled scratch pages", spill_in_scratch, LORA_ERR_SIZE, HEADER},
    {"no spilled pages", spill_no_pages, LORA_ERR_SIZE, HEADER},
    {"spilled pages without arena", spill_no_arena, LORA_ERR_ADDRESS, HEADER},
    {"spilled pages beyond", spill_beyond, LORA_ERR_ADDRESS, HEADER},
    {"spilled pages on the tables", spill_on_table, LORA_ERR_ADDRESS, HEADER},
    {"spilled pages on the results", spill_on_results, LORA_ERR_ADDRESS, HEADER},
    {"spilled pages on the list", spill_on_list, LORA_ERR_ADDRESS, HEADER},
    {"spilled pages on the first page", spill_page_zero, LORA_ERR_ADDRESS, HEADER},
    {"pool of 2^41 blocks", pool_overflow, LORA_ERR_SIZE, HEADER},
    {"taps", taps_many, LORA_ERR_SIZE, HEADER},
    {"vocabulary", vocabulary_none, LORA_ERR_SIZE, HEADER},
    {"opcode 0", opcode_zero, LORA_ERR_OPCODE, MATRIX_AT},
    {"opcode 12", opcode_unknown, LORA_ERR_OPCODE, MATRIX_AT},
    {"checksum in a list", opcode_checksum, LORA_ERR_OPCODE, PACK_AT},
    {"unit of another opcode", wrong_unit, LORA_ERR_OPCODE, MATRIX_AT},
    {"unit 9", unknown_unit, LORA_ERR_OPCODE, MATRIX_AT},
    {"flag", unknown_flag, LORA_ERR_OPCODE, MATRIX_AT},
    {"flag of another opcode", pack_on_matrix, LORA_ERR_OPCODE, MATRIX_AT},
    {"END before the end", early_end, LORA_ERR_OPCODE, ARGMAX_AT},
    {"no END", no_end, LORA_ERR_OPCODE, END_AT},
    {"wait counter", wait_beyond, LORA_ERR_COUNTER, ROPE_AT},
    {"signal counter", signal_beyond, LORA_ERR_COUNTER, ROPE_AT},
    {"wait counters of segments", wait_segments_beyond, LORA_ERR_COUNTER, HEAD_AT},
    {"signal counters of segments", signal_segments_beyond, LORA_ERR_COUNTER, GATHER_AT},
    {"value never reached", never_signalled, LORA_ERR_COUNTER, ROPE_AT},
    {"more heads than there are", too_few_heads, LORA_ERR_COUNTER, PACK_AT},
    {"wait for a group that 0 rows never signal", groups_as_plain, LORA_ERR_COUNTER, MATRIX_AT},
    {"all rows wait for selected groups", selected_as_all, LORA_ERR_COUNTER, HEAD_AT},
    {"selected rows wait for twice their groups", selected_too_many, LORA_ERR_COUNTER, HEAD_AT},
    {"circle of waits", waits_for_later, LORA_ERR_COUNTER, EMBED_AT},
    {"fence that waits too long", waits_behind_fence, LORA_ERR_COUNTER, FENCE_AT},
    {"vector operation", vector_op, LORA_ERR_OPCODE, EMBED_AT},
    {"vector operation 0", vector_op_zero, LORA_ERR_OPCODE, EMBED_AT},
    {"columns", columns_huge, LORA_ERR_SIZE, EMBED_AT},
    {"token table", table_rows, LORA_ERR_ADDRESS, EMBED_AT},
    {"token table absent", table_bank_none, LORA_ERR_ADDRESS, EMBED_AT},
    {"position table", position_rows, LORA_ERR_ADDRESS, EMBED_AT},
    {"columns of a vector row", embed_columns_beyond, LORA_ERR_SIZE, EMBED_AT},
    {"activations in a weight bank", embed_to_weights, LORA_ERR_ADDRESS, EMBED_AT},
    {"tokens in blocks of FP16", token_blocks_fp16, LORA_ERR_OPCODE, EMBED_AT},
    {"tokens in unknown blocks", token_blocks_unknown, LORA_ERR_OPCODE, EMBED_AT},
    {"tokens in parts of blocks", token_blocks_cut, LORA_ERR_SIZE, EMBED_AT},
    {"tokens in requests of nothing", token_blocks_no_merge, LORA_ERR_SIZE, EMBED_AT},
    {"tokens in no bank", token_blocks_no_bank, LORA_ERR_ADDRESS, EMBED_AT},
    {"tokens in blocks past the bank", token_blocks_beyond, LORA_ERR_ADDRESS, EMBED_AT},
    {"rotation of tokens in blocks", token_blocks_rope, LORA_ERR_OPCODE, ROPE_AT},
    {"sums of no columns", sums_of_nothing, LORA_ERR_SIZE, ROPE_AT},
    {"sums of less than a segment", sums_of_a_part, LORA_ERR_SIZE, ROPE_AT},
    {"sums from within a segment", sums_from_within, LORA_ERR_SIZE, ROPE_AT},
    {"sums to within a segment", sums_into_a_part, LORA_ERR_SIZE, ROPE_AT},
    {"RoPE's head_dim", rope_head_dim, LORA_ERR_SIZE, ROPE_AT},
    {"RoPE's table", rope_table, LORA_ERR_ADDRESS, ROPE_AT},
    {"RoPE beyond the buffer", rope_beyond, LORA_ERR_ADDRESS, ROPE_AT},
    {"argmax on the records", argmax_on_records, LORA_ERR_ADDRESS, ARGMAX_AT},
    {"argmax beyond the records", argmax_beyond_records, LORA_ERR_ADDRESS, ARGMAX_AT},
    {"argmax beyond the results", argmax_beyond, LORA_ERR_ADDRESS, ARGMAX_AT},
    {"argmax before the results", argmax_before, LORA_ERR_ADDRESS, ARGMAX_AT},
    {"argmax beyond the vocabulary", argmax_vocabulary, LORA_ERR_SIZE, ARGMAX_AT},
    {"argmax unaligned", argmax_unaligned, LORA_ERR_ADDRESS, ARGMAX_AT},
    {"weight type", weight_type, LORA_ERR_OPCODE, MATRIX_AT},
    {"result type", y_type, LORA_ERR_OPCODE, MATRIX_AT},
    {"merge 0", merge_none, LORA_ERR_SIZE, MATRIX_AT},
    {"no weight banks", banks_none, LORA_ERR_ADDRESS, MATRIX_AT},
    {"weights on-chip", banks_onchip, LORA_ERR_ADDRESS, MATRIX_AT},
    {"K = 0", k_none, LORA_ERR_SIZE, MATRIX_AT},
    {"K of 2^32", k_huge, LORA_ERR_SIZE, MATRIX_AT},
    {"N of 2^20 + 1", n_huge, LORA_ERR_SIZE, MATRIX_AT},
    {"weights beyond", weights_beyond, LORA_ERR_ADDRESS, MATRIX_AT},
    {"bias beyond", bias_beyond, LORA_ERR_ADDRESS, MATRIX_AT},
    {"last row beyond", x_row_beyond, LORA_ERR_ADDRESS, MATRIX_AT},
    {"rows that overlap", y_stride_short, LORA_ERR_ADDRESS, MATRIX_AT},
    {"39 strides of 2^32 + 56", y_stride_wraps, LORA_ERR_ADDRESS, MATRIX_AT},
    {"odd offset", y_odd, LORA_ERR_ADDRESS, MATRIX_AT},
    {"attention's head_dim", attention_head_dim, LORA_ERR_SIZE, ATTENTION_AT},
    {"attention's layer", attention_layer, LORA_ERR_SIZE, ATTENTION_AT},
    {"attention's group", attention_group_none, LORA_ERR_SIZE, ATTENTION_AT},
    {"KV head before the first", attention_first, LORA_ERR_SIZE, ATTENTION_AT},
    {"kind of slopes", slopes_kind, LORA_ERR_OPCODE, ATTENTION_AT},
    {"an infinite cap", cap_infinite, LORA_ERR_SIZE, ATTENTION_AT},
    {"a negative cap", cap_negative, LORA_ERR_SIZE, ATTENTION_AT},
    {"slopes beyond the bank", slopes_beyond, LORA_ERR_ADDRESS, ATTENTION_AT},
    {"slopes in no bank", slopes_bank, LORA_ERR_ADDRESS, ATTENTION_AT},
    {"KV head beyond the last", attention_heads, LORA_ERR_SIZE, ATTENTION_AT},
    {"stored heads", store_heads, LORA_ERR_SIZE, KV_STORE_AT},
    {"stored from beyond", store_beyond, LORA_ERR_ADDRESS, KV_STORE_AT},
    {"element bytes", gather_width, LORA_ERR_SIZE, GATHER_AT},
    {"share unit", gather_unit, LORA_ERR_SIZE, GATHER_AT},
    {"collective twice", gather_twice, LORA_ERR_SIZE, HEAD_GATHER_AT},
    {"gather beyond", gather_beyond, LORA_ERR_ADDRESS, GATHER_AT},
    {"row of 2^32 bytes", move_beyond, LORA_ERR_ADDRESS, PACK_AT},
    {"move from a weight bank", move_from_weights, LORA_ERR_ADDRESS, PACK_AT},
    {"two KV_COMMITs", commit_twice, LORA_ERR_OPCODE, PACK_AT},
    {"KV_COMMIT after KV_STORE", commit_late, LORA_ERR_OPCODE, KV_STORE_AT},
    {"KV_COMMIT of a part of the layers", commit_part, LORA_ERR_OPCODE, END_AT},
    {"KV_COMMIT of more layers", commit_beyond, LORA_ERR_SIZE, KV_COMMIT_AT},
    {"KV_COMMIT of the second layer alone", commit_later, LORA_ERR_OPCODE, KV_COMMIT_AT},
    {"KV_COMMIT behind its layer's KV_STORE", commit_behind, LORA_ERR_OPCODE, PACK_AT},
};

#endif
