// SPDX-License-Identifier: Apache-2.0
// The sequencer and an array of FP16 as its MPU; a test plays the other units.
module sequenced_matmul
  import abi_types::*;
  import sequencer_types::*;
  import mpu_types::MATMUL;
  import mpu_types::FP16_ARRAY;
(
    input  logic         clk,
    input  logic         rst,
    input  logic         start,
    input  logic         give_up,
    input  logic [6:0]   rows,
    input  logic [31:0]  onchip_bytes,
    input  index_t       command_count,
    input  index_t       counter_count,
    output logic         busy,
    output logic         failed,
    input  logic         seal_write,
    input  logic [9:0]   seal_where,
    input  logic [31:0]  seal_data,
    output logic         ar_valid,
    input  logic         ar_ready,
    output logic [41:0]  ar_line,
    output logic [3:0]   ar_beats,
    input  logic         r_valid,
    output logic         r_ready,
    input  logic [511:0] r_data,
    input  logic         r_last,
    // the other units
    output logic [UNITS-1:0] unit_announce,
    output logic [UNITS-1:0] unit_start,
    output logic         unit_abort,
    input  logic [UNITS-1:0] idle,
    input  logic [UNITS-1:0] result_valid,
    output logic [UNITS-1:0] result_ready,
    // the array
    output logic         array_told,     // a command is there that has not been started
    output logic [31:0]  nonfinite_count,
    output logic         read_valid,
    input  logic         read_ready,
    output logic [5:0]   read_bank,
    output logic [31:0]  read_line,
    output logic [15:0]  read_tag,
    input  logic         line_valid,
    input  logic [15:0]  line_tag,
    input  logic [511:0] line_data,
    output logic         write_valid,
    input  logic         write_ready,
    output logic [5:0]   write_bank,
    output logic [31:0]  write_line,
    output logic [63:0]  write_bytes,
    output logic [511:0] write_data
);
  localparam int MPU = int'(LORA_UNIT_MPU);
  logic [511:0] unit_line;
  logic [6:0] unit_rows;
  logic [UNITS-1:0] idle_now, valid_now;
  logic [UNITS-1:0][1:0] states;
  logic [UNITS-1:0][31:0] counts, first_rows;
  logic mpu_idle, mpu_valid;
  logic [1:0] mpu_state;
  logic [UNITS-1:0][7:0] statuses;
  logic [7:0] mpu_status;
  logic [31:0] array_count, array_row, mpu_count, mpu_row;
  always_comb begin
    idle_now = idle;
    idle_now[MPU] = mpu_idle;
    valid_now = result_valid;
    valid_now[MPU] = mpu_valid;
    states = {UNITS{2'(LORA_UNIT_DONE)}};
    states[MPU] = mpu_state;
    statuses = '0;
    statuses[MPU] = mpu_status;
    counts = '0;
    counts[MPU] = mpu_count;
    first_rows = '1;
    first_rows[MPU] = mpu_row;
  end
  sequencer runs (
      .clk(clk), .rst(rst), .start(start), .give_up(give_up), .dry(1'b0), .moves_kv(1'b0), .votes(1'b0),
      .poisons(1'b0), .rows(rows), .selected(rows), .list_id(1'b0), .list_line(42'd0),
      .command_count(command_count), .counter_count(counter_count), .local_limit(48'h7fffffff),
      .remote_limit(48'h7fffffff), .busy(busy), .failed(failed), .ballot(), .ballot_done(1'b0), .poison(),
      .seal_write(seal_write), .seal_where(seal_where), .seal_data(seal_data), .ar_valid(ar_valid),
      .ar_ready(ar_ready), .ar_line(ar_line), .ar_beats(ar_beats), .r_valid(r_valid), .r_ready(r_ready),
      .r_data(r_data), .r_last(r_last), .r_error(1'b0), .unit_announce(unit_announce), .unit_line(unit_line),
      .unit_rows(unit_rows), .unit_start(unit_start), .unit_abort(unit_abort),
      .unit_idle(idle_now), .hold_units(1'b0),
      .result_valid(valid_now), .result_ready(result_ready), .result_state(states), .result_status(statuses),
      .result_nonfinite_count(counts), .result_nonfinite_row(first_rows), .result_port('0), .result_frames('0),
      .segments('0), .blame_code(), .blame_index(), .blame_opcode(), .blame_unit(), .blame_found(),
      .blame_expected(), .blame_counter(), .blame_port(), .last_index(), .unit_state(),
      .nonfinite_count(nonfinite_count), .nonfinite_index(), .nonfinite_row(), .frames(), .cycles(), .run_index(),
      .run_rows(),
      .peek_counter('0), .peek_value()
  );

  // Of the slot's units the FP16 array alone is there.
  logic [MATMUL-1:0] announce_valid, command_valid, abort_valid;
  logic command_ready, array_idle, done;
  mpu_types::command_t command;
  logic [5:0] row, row_number;
  always_ff @(posedge clk) row_number <= row;
  matmul_slot slot (
      .clk(clk), .rst(rst), .unit_announce(unit_announce[MPU]), .unit_line(unit_line), .unit_rows(unit_rows),
      .room(), .unit_start(unit_start[MPU]), .unit_abort(unit_abort), .unit_idle(mpu_idle), .result_valid(mpu_valid),
      .result_ready(result_ready[MPU]), .result_state(mpu_state), .result_status(mpu_status),
      .result_nonfinite_count(mpu_count), .result_nonfinite_row(mpu_row), .onchip_bytes(onchip_bytes),
      .adapter_columns('0), .row(row), .row_selected(), .row_number(row_number), .line_refused('0), .line_error('0),
      .write_refused(1'b0), .write_error(1'b0), .write_open(1'b0), .abort_valid(abort_valid),
      .announce_valid(announce_valid), .command_valid(command_valid), .command_ready({2'b11, command_ready}),
      .idle({2'b11, array_idle}), .early(3'd0), .done({2'b00, done}), .nonfinite_count({64'd0, array_count}),
      .nonfinite_row({64'd0, array_row}), .verdict('0), .adapter_row('0), .command_told(), .array_command(command), .down(),
      .matrix(), .h_offset(), .h_stride()
  );
  mpu_fp16 #(
      .LANES(8)
  ) array (
      .clk(clk), .rst(rst), .abort_valid(abort_valid[FP16_ARRAY]), .idle(array_idle),
      .announce_valid(announce_valid[FP16_ARRAY]), .command_valid(command_valid[FP16_ARRAY]),
      .command_ready(command_ready), .k(command.k), .n(command.n), .rows(command.rows),
      .weight_line(command.weight_line), .first(command.first), .merge(command.merge),
      .bank_first(command.bank_first), .bank_count(command.bank_count), .has_bias(command.has_bias),
      .bias_bank(command.bias_bank), .bias_line(command.bias_line), .x_bank(command.x_bank), .x_line(command.x_line),
      .x_stride(command.x_stride), .y_bank(command.y_bank), .y_line(command.y_line), .y_stride(command.y_stride),
      .y_single(command.y_single), .four_bit(command.four_bit), .group_log(command.group_log),
      .adapted(1'b0), .done(done), .nonfinite_count(array_count),
      .nonfinite_row(array_row), .stripe_log(), .stripe_valid(), .stripe_values(), .values_free(1'b1), .values_valid(1'b0),
      .values_single('0), .values_half('0), .read_valid(read_valid), .read_ready(read_ready), .read_bank(read_bank),
      .read_line(read_line), .read_tag(read_tag), .line_valid(line_valid), .line_tag(line_tag),
      .line_data(line_data), .write_valid(write_valid), .write_ready(write_ready), .write_bank(write_bank),
      .write_line(write_line), .write_bytes(write_bytes), .write_data(write_data)
  );
  assign array_told = !array_idle && command_ready;
endmodule
