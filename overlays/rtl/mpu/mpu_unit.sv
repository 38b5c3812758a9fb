// SPDX-License-Identifier: Apache-2.0
// The MPU of a board, as one unit of the sequencer: a group of each matmul array (FP16 and W4A16; INT8 and W4A8),
// adapters' products and attention, behind the slots that check their commands, on one memory port. The next command is
// checked, and its weights are fetched, while another one runs; of channels also weights of those after it, up to AHEAD. With CHANNELS, INT8 matmuls have banks' ports of their own,
// and so do attention units for K and V.
module mpu_unit
  import attention_types::*;
  import mpu_types::*;
#(
    parameter int LANES = 32,    // of the FP16 array
    parameter int DSP48 = 0,     // of the INT8 array, and the next
    parameter int DSP58 = 0,
    parameter int ROWS  = 1,     // of both
    parameter int DEPTH = 8,     // of the INT8 array
    parameter int TILES = 4096,  // of attention: scores that fit
    parameter int TAG_BITS = 18,
    parameter int CHANNELS = 0,  // of integer_arrays, each behind its bank; 0: the INT8 array alone
    parameter int BANKS = CHANNELS > 0 ? CHANNELS : 1,
    parameter int ATTENTIONS = 1,  // 1; or 2, 4, 8 of attention_units, with CHANNELS
    parameter int FLOAT_ATTENTIONS = ATTENTIONS > 1 ? 2 : 1,  // FLOATS of attention_units
    parameter int AHEAD = 1  // commands that it may be told beyond the one that runs
) (
    input  logic          clk,
    input  logic          rst,
    // sequencer
    input  logic          unit_announce,
    input  logic [511:0]  unit_line,
    input  logic [6:0]    unit_rows,
    input  logic          unit_start,
    input  logic          unit_abort,
    output logic          unit_idle,
    output logic          result_valid,
    input  logic          result_ready,
    output logic [1:0]    result_state,
    output logic [7:0]    result_status,
    output logic [31:0]   result_nonfinite_count,
    output logic [31:0]   result_nonfinite_row,           // of the step
    // struct lora_list, as REGISTER accepts it; held while a command is told or runs
    input  logic [31:0]   list_onchip_bytes,
    input  logic [15:0]   list_kv_type,
    input  logic [15:0]   list_kv_layers,
    input  logic [15:0]   list_kv_heads,
    input  logic [15:0]   list_head_dim,
    input  logic [5:0]    list_kv_bank_first,
    input  logic [5:0]    list_kv_bank_count,
    input  logic [31:0]   list_kv_line,
    input  logic [16:0]   list_kv_spill_page,
    input  logic [5:0]    list_kv_spill_bank_first,
    input  logic [5:0]    list_kv_spill_bank_count,
    input  logic [31:0]   list_kv_spill_line,
    input  logic [5:0]    list_table_bank,
    input  logic [31:0]   list_table_line,
    input  logic [31:0]   list_max_tiles,
    input  logic [10:0]   list_adapter_slots,
    input  logic [20:0]   list_adapter_chunks,
    input  logic [15:0]   list_adapter_matrices,
    input  logic [24:0]   list_adapter_columns,
    input  logic [31:0]   list_adapter_line,
    input  logic [5:0]    list_adapter_bank_first,
    input  logic [5:0]    list_adapter_bank_count,
    // rows of the step, held too
    output logic [5:0]    row,                            // of the command; in the next cycle:
    output logic          row_selected,                   // it counts among the selected rows
    input  logic [5:0]    row_number,                     // in the step
    input  logic [31:0]   row_sequence,                   // struct lora_row
    input  logic [31:0]   row_slot,
    input  logic [31:0]   row_committed,                  // of its sequence
    input  logic [31:0]   row_adapter,                    // negative: none
    output logic [6:0]    slot,                           // in the next cycle:
    input  logic [15:0]   slot_parent,                    // struct lora_slot
    // memory port, one unit of port_arbiter
    output logic          read_valid,
    input  logic          read_ready,
    output logic [5:0]    read_bank,
    output logic [31:0]   read_line,
    output logic [TAG_BITS-1:0] read_tag,
    input  logic          line_valid,
    input  logic [TAG_BITS-1:0] line_tag,
    input  logic [511:0]  line_data,
    input  logic          line_refused,
    input  logic          line_error,
    output logic          write_valid,
    input  logic          write_ready,
    output logic [5:0]    write_bank,
    output logic [31:0]   write_line,
    output logic [63:0]   write_bytes,
    output logic [511:0]  write_data,
    input  logic          write_refused,
    input  logic          write_error,
    input  logic          write_open,
    // banks' ports of the channels, as card/channel_ports.sv has them
    /* verilator lint_off UNUSEDSIGNAL */  // without CHANNELS
    output logic [BANKS-1:0] bank_read_valid,
    input  logic [BANKS-1:0] bank_read_ready,
    output logic [31:0]   bank_read_line[BANKS],
    input  logic [BANKS-1:0] bank_line_valid,
    input  logic [511:0]  bank_line_data[BANKS],
    input  logic [BANKS-1:0] bank_line_refused,
    input  logic [BANKS-1:0] bank_line_error,
    // ports of attention_units, with what was wrong with a line
    output logic [ATTENTIONS-1:0] kv_read_valid,
    input  logic [ATTENTIONS-1:0] kv_read_ready,
    output logic [5:0]    kv_read_bank[ATTENTIONS],
    output logic [31:0]   kv_read_line[ATTENTIONS],
    output short_tag_t    kv_read_tag[ATTENTIONS],
    input  logic [ATTENTIONS-1:0] kv_line_valid,
    output logic [ATTENTIONS-1:0] kv_line_ready,
    input  short_tag_t    kv_line_tag[ATTENTIONS],
    input  logic [511:0]  kv_line_data[ATTENTIONS],
    input  logic [ATTENTIONS-1:0] kv_line_refused,
    input  logic [ATTENTIONS-1:0] kv_line_error
    /* verilator lint_on UNUSEDSIGNAL */
);
  localparam int QUEUE = 1 << $clog2(AHEAD + 1);  // of the channels: the one that runs, too
  localparam int UNIT_TAG = TAG_BITS - 2;
  typedef logic [UNITS-1:0] units_t;

  // --- which slot has the next command, and which one runs -------------------------------------------
  logic attends_next, attends, tell_matmul, tell_attention, matmul_room, attention_room, all_told;
  logic [511:0] told_line;
  logic [6:0] told_rows;
  told_commands #(
      .AHEAD(AHEAD)
  ) told (
      .clk(clk), .clear(rst || unit_abort), .announce(unit_announce), .line(unit_line), .rows(unit_rows), .start(unit_start),
      .room_for_matmul(matmul_room), .room_for_attention(attention_room), .tell_matmul(tell_matmul),
      .tell_attention(tell_attention), .told_line(told_line), .told_rows(told_rows), .attends(attends_next), .empty(all_told)
  );
  always_ff @(posedge clk) if (unit_start) attends <= attends_next;

  // --- units' sides of the memory port ---------------------------------------------------------------
  units_t asks_read, read_taken, line_here, refused, failed, asks_write, write_taken;
  logic [UNITS-1:0][5:0] read_banks, write_banks;
  logic [UNITS-1:0][31:0] read_lines, write_lines;
  logic [UNITS-1:0][UNIT_TAG-1:0] read_tags;
  logic [UNITS-1:0][63:0] bytes_written;
  logic [UNITS-1:0][511:0] data_written;
  shared_port #(
      .UNITS(UNITS), .TAG_BITS(UNIT_TAG)
  ) memory (
      .clk(clk), .rst(rst), .unit_read_valid(asks_read), .unit_read_ready(read_taken), .unit_read_bank(read_banks),
      .unit_read_line(read_lines), .unit_read_tag(read_tags), .unit_line_valid(line_here),
      .unit_line_refused(refused), .unit_line_error(failed), .unit_write_valid(asks_write),
      .unit_write_ready(write_taken), .unit_write_bank(write_banks), .unit_write_line(write_lines),
      .unit_write_bytes(bytes_written), .unit_write_data(data_written), .read_valid(read_valid),
      .read_ready(read_ready), .read_bank(read_bank), .read_line(read_line), .read_tag(read_tag),
      .line_valid(line_valid), .line_refused(line_refused), .line_error(line_error),
      .line_unit(line_tag[TAG_BITS-1:UNIT_TAG]), .write_valid(write_valid), .write_ready(write_ready),
      .write_bank(write_bank), .write_line(write_line), .write_bytes(write_bytes), .write_data(write_data)
  );

  // --- matmuls and A*x -------------------------------------------------------------------------------
  logic [MATMUL-1:0] matmul_abort, announce, start, ready, idle, done;
  logic [MATMUL-1:0][31:0] counts, first_rows;
  command_t command;
  logic down;
  logic [1:0] verdict;
  logic [MATMUL-1:0] lines_refused, lines_failed;  // of the command that runs, or the one that was told
  logic early;                                     // integer_arrays take the next one already, for channels
  /* verilator lint_off UNUSEDSIGNAL */            // without CHANNELS
  logic start_told;                                // what they were told first
  /* verilator lint_on UNUSEDSIGNAL */
  logic [15:0] matrix;
  logic [31:0] h_offset, h_stride;
  logic [5:0] adapter_row;
  logic matmul_idle, matmul_valid, matmul_selected;
  logic [1:0] matmul_state;
  logic [5:0] matmul_row;
  logic [7:0] matmul_status;
  logic [31:0] matmul_count, matmul_first;
  matmul_slot #(
      .ROWS(ROWS), .AHEAD(AHEAD)
  ) matmuls (
      .clk(clk), .rst(rst), .unit_announce(tell_matmul), .unit_line(told_line),
      .unit_rows(told_rows), .room(matmul_room), .unit_start(unit_start && !attends_next), .unit_abort(unit_abort),
      .unit_idle(matmul_idle), .result_valid(matmul_valid), .result_ready(result_ready && !attends),
      .result_state(matmul_state), .result_status(matmul_status), .result_nonfinite_count(matmul_count),
      .result_nonfinite_row(matmul_first), .onchip_bytes(list_onchip_bytes), .adapter_columns(list_adapter_columns),
      .row(matmul_row), .row_selected(matmul_selected), .row_number(row_number), .line_refused(lines_refused),
      .line_error(lines_failed), .write_refused(write_refused), .write_error(write_error),
      .write_open(write_open), .abort_valid(matmul_abort), .announce_valid(announce), .command_valid(start),
      .command_ready(ready), .idle(idle), .early(MATMUL'(early) << INT8_ARRAY), .done(done), .nonfinite_count(counts),
      .nonfinite_row(first_rows), .verdict(verdict), .adapter_row(adapter_row), .command_told(start_told),
      .array_command(command), .down(down),
      .matrix(matrix), .h_offset(h_offset), .h_stride(h_stride)
  );

  // The adapter unit takes the stripes of the array that runs; the other one may have been told a command with adapters.
  logic of_integers, stripe_valid, values_free, values_valid, integers_valid;
  logic [1:0] stripes_valid;
  logic [1:0][2:0] stripe_logs;
  logic [1:0][32*ROWS-1:0] stripes;
  logic [32*ROWS-1:0] values_single;
  logic [16*ROWS-1:0] values_half;
  always_ff @(posedge clk) if (start != '0) of_integers <= start[INT8_ARRAY];
  assign stripe_valid = stripes_valid[of_integers];
  assign integers_valid = values_valid && of_integers;
  mpu_fp16 #(
      .LANES(LANES), .ROWS(ROWS)
  ) fp16 (
      .clk(clk), .rst(rst), .abort_valid(matmul_abort[FP16_ARRAY]), .idle(idle[FP16_ARRAY]),
      .announce_valid(announce[FP16_ARRAY]), .command_valid(start[FP16_ARRAY]), .command_ready(ready[FP16_ARRAY]),
      .k(command.k), .n(command.n), .rows(command.rows), .weight_line(command.weight_line), .first(command.first),
      .merge(command.merge), .bank_first(command.bank_first), .bank_count(command.bank_count),
      .has_bias(command.has_bias), .bias_bank(command.bias_bank), .bias_line(command.bias_line),
      .x_bank(command.x_bank), .x_line(command.x_line), .x_stride(command.x_stride), .y_bank(command.y_bank),
      .y_line(command.y_line), .y_stride(command.y_stride), .y_single(command.y_single), .four_bit(command.four_bit),
      .group_log(command.group_log), .adapted(command.adapted), .done(done[FP16_ARRAY]),
      .nonfinite_count(counts[FP16_ARRAY]), .nonfinite_row(first_rows[FP16_ARRAY]),
      .stripe_log(stripe_logs[FP16_ARRAY]), .stripe_valid(stripes_valid[FP16_ARRAY]),
      .stripe_values(stripes[FP16_ARRAY]), .values_free(values_free), .values_valid(values_valid && !of_integers),
      .values_single(values_single), .values_half(values_half), .read_valid(asks_read[FP16_ARRAY]),
      .read_ready(read_taken[FP16_ARRAY]), .read_bank(read_banks[FP16_ARRAY]), .read_line(read_lines[FP16_ARRAY]),
      .read_tag(read_tags[FP16_ARRAY]), .line_valid(line_here[FP16_ARRAY]), .line_tag(line_tag[UNIT_TAG-1:0]),
      .line_data(line_data), .write_valid(asks_write[FP16_ARRAY]), .write_ready(write_taken[FP16_ARRAY]),
      .write_bank(write_banks[FP16_ARRAY]), .write_line(write_lines[FP16_ARRAY]),
      .write_bytes(bytes_written[FP16_ARRAY]), .write_data(data_written[FP16_ARRAY])
  );
  if (CHANNELS == 0) begin : alone
    mpu_int8 #(
        .ROWS(ROWS), .DEPTH(DEPTH), .DSP58(DSP58), .DSP48(DSP48)
    ) int8 (
        .clk(clk), .rst(rst), .abort_valid(matmul_abort[INT8_ARRAY]), .idle(idle[INT8_ARRAY]),
        .announce_valid(announce[INT8_ARRAY]), .command_valid(start[INT8_ARRAY]), .command_ready(ready[INT8_ARRAY]),
        .k(command.k), .n(command.n), .rows(command.rows), .weight_line(command.weight_line), .first(command.first),
        .merge(command.merge), .bank_first(command.bank_first), .bank_count(command.bank_count),
        .has_bias(command.has_bias), .bias_bank(command.bias_bank), .bias_line(command.bias_line),
        .x_bank(command.x_bank), .x_line(command.x_line), .x_stride(command.x_stride), .y_bank(command.y_bank),
        .y_line(command.y_line), .y_stride(command.y_stride), .y_single(command.y_single), .four_bit(command.four_bit),
        .group_log(command.group_log), .adapted(command.adapted), .row_scales(command.row_scales),
        .done(done[INT8_ARRAY]), .nonfinite_count(counts[INT8_ARRAY]), .nonfinite_row(first_rows[INT8_ARRAY]),
        .stripe_log(stripe_logs[INT8_ARRAY]), .stripe_valid(stripes_valid[INT8_ARRAY]),
        .stripe_values(stripes[INT8_ARRAY]), .values_free(values_free), .values_valid(integers_valid),
        .values_single(values_single), .values_half(values_half), .read_valid(asks_read[INT8_ARRAY]),
        .read_ready(read_taken[INT8_ARRAY]), .read_bank(read_banks[INT8_ARRAY]), .read_line(read_lines[INT8_ARRAY]),
        .read_tag(read_tags[INT8_ARRAY]), .line_valid(line_here[INT8_ARRAY]), .line_tag(line_tag[UNIT_TAG-1:0]),
        .line_data(line_data), .write_valid(asks_write[INT8_ARRAY]), .write_ready(write_taken[INT8_ARRAY]),
        .write_bank(write_banks[INT8_ARRAY]), .write_line(write_lines[INT8_ARRAY]),
        .write_bytes(bytes_written[INT8_ARRAY]), .write_data(data_written[INT8_ARRAY])
    );
    assign bank_read_valid = '0;
    assign bank_read_line[0] = '0;
    assign {lines_refused, lines_failed} = {refused[MATMUL-1:0], failed[MATMUL-1:0]};
    assign early = 1'b0;
  end else begin : wide
    logic wide_refused, wide_failed;
    always_comb begin
      {lines_refused, lines_failed} = {refused[MATMUL-1:0], failed[MATMUL-1:0]};
      {lines_refused[INT8_ARRAY], lines_failed[INT8_ARRAY]} = {wide_refused, wide_failed};
    end
    integer_arrays #(
        .CHANNELS(CHANNELS), .ROWS(ROWS), .DEPTH(DEPTH), .DSP58(DSP58), .DSP48(DSP48), .QUEUE(QUEUE)
    ) int8 (
        .clk(clk), .rst(rst), .abort_valid(matmul_abort[INT8_ARRAY]), .idle(idle[INT8_ARRAY]), .early(early),
        .announce_valid(announce[INT8_ARRAY]), .command_valid(start[INT8_ARRAY]), .command_ready(ready[INT8_ARRAY]),
        .command_told(start_told), .command(command), .done(done[INT8_ARRAY]), .refused(wide_refused), .failed(wide_failed),
        .nonfinite_count(counts[INT8_ARRAY]), .nonfinite_row(first_rows[INT8_ARRAY]),
        .stripe_log(stripe_logs[INT8_ARRAY]), .stripe_valid(stripes_valid[INT8_ARRAY]),
        .stripe_values(stripes[INT8_ARRAY]), .values_free(values_free), .values_valid(integers_valid),
        .values_single(values_single), .values_half(values_half), .read_valid(asks_read[INT8_ARRAY]),
        .read_ready(read_taken[INT8_ARRAY]), .read_bank(read_banks[INT8_ARRAY]), .read_line(read_lines[INT8_ARRAY]),
        .read_tag(read_tags[INT8_ARRAY]), .line_valid(line_here[INT8_ARRAY]),
        .line_refused(refused[INT8_ARRAY]), .line_error(failed[INT8_ARRAY]), .line_tag(line_tag[UNIT_TAG-1:0]),
        .line_data(line_data), .write_valid(asks_write[INT8_ARRAY]), .write_ready(write_taken[INT8_ARRAY]),
        .write_bank(write_banks[INT8_ARRAY]), .write_line(write_lines[INT8_ARRAY]),
        .write_bytes(bytes_written[INT8_ARRAY]), .write_data(data_written[INT8_ARRAY]), .bank_read_valid(bank_read_valid),
        .bank_read_ready(bank_read_ready), .bank_read_line(bank_read_line), .bank_line_valid(bank_line_valid),
        .bank_line_data(bank_line_data), .bank_line_refused(bank_line_refused), .bank_line_error(bank_line_error)
    );
  end
  adapter #(
      .ROWS(ROWS)
  ) adapters (
      .clk(clk), .rst(rst), .abort_valid(matmul_abort[ADAPTER]), .idle(idle[ADAPTER]),
      .announce_valid(announce[ADAPTER]), .command_valid(start[ADAPTER]), .command_ready(ready[ADAPTER]), .down(down),
      .matrix(matrix), .k(command.k), .n(command.n), .rows(command.rows), .x_line(command.x_line),
      .x_stride(command.x_stride), .h_offset(h_offset), .h_stride(h_stride), .slots(list_adapter_slots),
      .slot_chunks(list_adapter_chunks), .slot_matrices(list_adapter_matrices), .h_columns(list_adapter_columns),
      .slot_line(list_adapter_line), .slot_bank_first(list_adapter_bank_first),
      .slot_bank_count(list_adapter_bank_count), .row(adapter_row), .row_adapter(row_adapter), .done(done[ADAPTER]),
      .verdict(verdict), .nonfinite_count(counts[ADAPTER]), .nonfinite_row(first_rows[ADAPTER]),
      .stripe_log(stripe_logs[of_integers]), .sums_valid(stripe_valid), .sums(stripes[of_integers]),
      .values_free(values_free), .values_valid(values_valid), .values_single(values_single),
      .values_half(values_half), .read_valid(asks_read[ADAPTER]), .read_ready(read_taken[ADAPTER]),
      .read_bank(read_banks[ADAPTER]), .read_line(read_lines[ADAPTER]), .read_tag(read_tags[ADAPTER]),
      .line_valid(line_here[ADAPTER]), .line_tag(line_tag[UNIT_TAG-1:0]), .line_data(line_data),
      .write_valid(asks_write[ADAPTER]), .write_ready(write_taken[ADAPTER]), .write_bank(write_banks[ADAPTER]),
      .write_line(write_lines[ADAPTER]), .write_bytes(bytes_written[ADAPTER]), .write_data(data_written[ADAPTER])
  );

  // --- attention -------------------------------------------------------------------------------------
  logic attention_idle, attention_valid, attention_selected, attention_abort, attention_start, attention_ready,
      attention_done, slot_is_last, kv_refused, kv_failed;
  assign kv_refused = (kv_line_valid & kv_line_ready & kv_line_refused) != '0;
  assign kv_failed = (kv_line_valid & kv_line_ready & kv_line_error) != '0;
  logic [1:0] attention_state, kind, slope_kind;
  logic [5:0] attention_row, onchip_bank, slope_bank;
  logic [6:0] rows, unit_row, unit_slot, slot_parent_found, row_slot_found;
  logic [7:0] attention_status;
  logic [8:0] head_dim;
  logic [15:0] q_heads, q_first, kv_first, group, kv_layer, row_sequence_found;
  logic [16:0] max_tiles;
  logic [17:0] row_committed_found;
  logic [31:0] attention_count, attention_first, q_offset, q_stride, y_offset, y_stride, scale, v_scale, cap, window,
      slope_line, nonfinite_count, nonfinite_row;
  attention_slot #(
      .MAX_POSITIONS(32 * TILES)
  ) attention_commands (
      .clk(clk), .rst(rst), .unit_announce(tell_attention), .unit_line(told_line),
      .unit_rows(told_rows), .room(attention_room), .unit_start(unit_start && attends_next), .unit_abort(unit_abort),
      .unit_idle(attention_idle), .result_valid(attention_valid), .result_ready(result_ready && attends),
      .result_state(attention_state), .result_status(attention_status), .result_nonfinite_count(attention_count),
      .result_nonfinite_row(attention_first), .onchip_bytes(list_onchip_bytes), .kv_type(list_kv_type),
      .list_head_dim(list_head_dim), .list_kv_bank_count({2'd0, list_kv_bank_count}), .list_max_tiles(list_max_tiles),
      .row(attention_row), .row_selected(attention_selected), .row_number(row_number), .row_sequence(row_sequence),
      .row_slot(row_slot), .row_committed(row_committed), .slot(slot), .slot_parent(slot_parent),
      .line_refused(refused[ATTENTION] || kv_refused), .line_error(failed[ATTENTION] || kv_failed),
      .write_refused(write_refused), .write_error(write_error), .write_open(write_open), .abort_valid(attention_abort),
      .command_valid(attention_start), .command_ready(attention_ready), .kind(kind), .head_dim(head_dim), .rows(rows),
      .q_heads(q_heads), .q_first(q_first), .kv_first(kv_first), .group(group), .onchip_bank(onchip_bank),
      .q_offset(q_offset), .q_stride(q_stride), .y_offset(y_offset), .y_stride(y_stride), .scale(scale),
      .v_scale(v_scale), .cap(cap), .window(window), .slope_kind(slope_kind), .slope_bank(slope_bank),
      .slope_line(slope_line), .kv_layer(kv_layer), .max_tiles(max_tiles), .unit_row(unit_row),
      .unit_row_sequence(row_sequence_found), .unit_row_committed(row_committed_found),
      .unit_row_slot(row_slot_found), .unit_slot(unit_slot), .unit_slot_is_last(slot_is_last),
      .unit_slot_parent(slot_parent_found), .done(attention_done), .nonfinite_count(nonfinite_count),
      .nonfinite_row(nonfinite_row)
  );
  if (ATTENTIONS == 1) begin : one_attention
    line_tag_t tag;
    assign read_tags[ATTENTION] = UNIT_TAG'(tag);
    attention #(
        .TILES(TILES)
    ) attention_unit (
        .clk(clk), .rst(rst), .unit(3'd0), .last_unit(3'd0), .abort_valid(attention_abort),
        .command_valid(attention_start), .command_ready(attention_ready), .kind(kind), .head_dim(head_dim),
        .rows(rows), .q_heads(q_heads),
        .q_first(q_first), .kv_first(kv_first), .group(group), .onchip_bank(onchip_bank), .q_offset(q_offset),
        .q_stride(q_stride), .y_offset(y_offset), .y_stride(y_stride), .scale(scale), .v_scale(v_scale), .cap(cap),
        .window(window), .slope_kind(slope_kind), .slope_bank(slope_bank), .slope_line(slope_line),
        .kv_layers(list_kv_layers), .kv_heads(list_kv_heads), .kv_layer(kv_layer), .kv_bank_first(list_kv_bank_first),
        .kv_bank_count(list_kv_bank_count), .kv_line(list_kv_line), .spill_page(list_kv_spill_page),
        .spill_bank_first(list_kv_spill_bank_first), .spill_bank_count(list_kv_spill_bank_count),
        .spill_line(list_kv_spill_line), .table_bank(list_table_bank), .table_line(list_table_line),
        .max_tiles(max_tiles),
        // verilator lint_off PINCONNECTEMPTY
        .looks(), .read_kv(),
        // verilator lint_on PINCONNECTEMPTY
        .turn(1'b1), .row(unit_row), .row_sequence(row_sequence_found), .row_committed(row_committed_found),
        .row_slot(row_slot_found), .slot(unit_slot), .slot_is_last(slot_is_last), .slot_parent(slot_parent_found),
        .done(attention_done), .nonfinite_count(nonfinite_count), .nonfinite_row(nonfinite_row),
        .read_valid(asks_read[ATTENTION]), .read_ready(read_taken[ATTENTION]), .read_bank(read_banks[ATTENTION]),
        .read_line(read_lines[ATTENTION]), .read_tag(tag), .line_valid(line_here[ATTENTION]),
        .line_tag(line_tag[14:0]), .line_data(line_data), .write_valid(asks_write[ATTENTION]),
        .write_ready(write_taken[ATTENTION]), .write_bank(write_banks[ATTENTION]), .write_line(write_lines[ATTENTION]),
        .write_bytes(bytes_written[ATTENTION]), .write_data(data_written[ATTENTION])
    );
    assign {kv_read_valid, kv_line_ready} = '0;
    assign {kv_read_bank[0], kv_read_line[0], kv_read_tag[0]} = '0;
  end else begin : several_attentions
    attention_units #(
        .UNITS(ATTENTIONS), .FLOATS(FLOAT_ATTENTIONS), .TILES(TILES), .BANKS(CHANNELS)
    ) attention_unit (
        .clk(clk), .rst(rst), .abort_valid(attention_abort), .command_valid(attention_start),
        .command_ready(attention_ready), .kind(kind), .head_dim(head_dim), .rows(rows), .q_heads(q_heads),
        .q_first(q_first), .kv_first(kv_first), .group(group), .onchip_bank(onchip_bank), .q_offset(q_offset),
        .q_stride(q_stride), .y_offset(y_offset), .y_stride(y_stride), .scale(scale), .v_scale(v_scale), .cap(cap),
        .window(window), .slope_kind(slope_kind), .slope_bank(slope_bank), .slope_line(slope_line),
        .kv_layers(list_kv_layers), .kv_heads(list_kv_heads), .kv_layer(kv_layer), .kv_bank_first(list_kv_bank_first),
        .kv_bank_count(list_kv_bank_count), .kv_line(list_kv_line), .spill_page(list_kv_spill_page),
        .spill_bank_first(list_kv_spill_bank_first), .spill_bank_count(list_kv_spill_bank_count),
        .spill_line(list_kv_spill_line), .table_bank(list_table_bank), .table_line(list_table_line),
        .max_tiles(max_tiles), .row(unit_row), .row_sequence(row_sequence_found), .row_committed(row_committed_found),
        .row_slot(row_slot_found), .slot(unit_slot), .slot_is_last(slot_is_last), .slot_parent(slot_parent_found),
        .done(attention_done), .nonfinite_count(nonfinite_count), .nonfinite_row(nonfinite_row),
        .read_valid(asks_read[ATTENTION]), .read_ready(read_taken[ATTENTION]), .read_bank(read_banks[ATTENTION]),
        .read_line(read_lines[ATTENTION]), .read_tag(read_tags[ATTENTION]), .line_valid(line_here[ATTENTION]),
        .line_tag(line_tag[UNIT_TAG-1:0]), .line_data(line_data), .write_valid(asks_write[ATTENTION]),
        .write_ready(write_taken[ATTENTION]), .write_bank(write_banks[ATTENTION]), .write_line(write_lines[ATTENTION]),
        .write_bytes(bytes_written[ATTENTION]), .write_data(data_written[ATTENTION]),
        .kv_read_valid(kv_read_valid), .kv_read_ready(kv_read_ready), .kv_read_bank(kv_read_bank),
        .kv_read_line(kv_read_line), .kv_read_tag(kv_read_tag), .kv_line_valid(kv_line_valid),
        .kv_line_ready(kv_line_ready), .kv_line_tag(kv_line_tag), .kv_line_data(kv_line_data)
    );
  end

  // --- of the one that runs --------------------------------------------------------------------------
  assign unit_idle = matmul_idle && attention_idle && all_told;
  assign row = attends ? attention_row : matmul_row;
  assign row_selected = attends ? attention_selected : matmul_selected;
  assign result_valid = attends ? attention_valid : matmul_valid;
  assign {result_state, result_status, result_nonfinite_count, result_nonfinite_row} =
      attends ? {attention_state, attention_status, attention_count, attention_first}
              : {matmul_state, matmul_status, matmul_count, matmul_first};
endmodule
