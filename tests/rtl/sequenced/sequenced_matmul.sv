// The sequencer and an array of FP16 as its MPU; a test plays the other units.
module sequenced_matmul
  import abi_types::*;
  import sequencer_types::*;
(
    input  logic         clk,
    input  logic         rst,
    input  logic         start,
    input  logic         give_up,
    input  logic [6:0]   rows,
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
  logic [31:0] array_count, array_row;
  always_comb begin
    idle_now = idle;
    idle_now[MPU] = mpu_idle;
    valid_now = result_valid;
    valid_now[MPU] = mpu_valid;
    states = {UNITS{2'(LORA_UNIT_DONE)}};
    states[MPU] = mpu_state;
    counts = '0;
    counts[MPU] = array_count;
    first_rows = '1;
    first_rows[MPU] = array_row;
  end
  sequencer runs (
      .clk(clk), .rst(rst), .start(start), .give_up(give_up), .dry(1'b0), .moves_kv(1'b0), .votes(1'b0),
      .poisons(1'b0), .rows(rows), .selected(rows), .list_id(1'b0), .list_line(42'd0),
      .command_count(command_count), .counter_count(counter_count), .local_limit(48'h7fffffff),
      .remote_limit(48'h7fffffff), .busy(busy), .failed(failed), .ballot(), .ballot_done(1'b0), .poison(),
      .seal_write(seal_write), .seal_where(seal_where), .seal_data(seal_data), .ar_valid(ar_valid),
      .ar_ready(ar_ready), .ar_line(ar_line), .ar_beats(ar_beats), .r_valid(r_valid), .r_ready(r_ready),
      .r_data(r_data), .r_last(r_last), .r_error(1'b0), .unit_announce(unit_announce), .unit_line(unit_line),
      .unit_rows(unit_rows), .unit_start(unit_start), .unit_abort(unit_abort), .unit_idle(idle_now),
      .result_valid(valid_now), .result_ready(result_ready), .result_state(states), .result_status('0),
      .result_nonfinite_count(counts), .result_nonfinite_row(first_rows), .result_port('0), .result_frames('0),
      .segments('0), .blame_code(), .blame_index(), .blame_opcode(), .blame_unit(), .blame_found(),
      .blame_expected(), .blame_counter(), .blame_port(), .last_index(), .unit_state(),
      .nonfinite_count(nonfinite_count), .nonfinite_index(), .nonfinite_row(), .frames(), .cycles(), .run_index(),
      .run_rows(),
      .peek_counter('0), .peek_value()
  );

  logic announce_valid, command_valid, command_ready, array_idle, done;
  logic [15:0] k, first;
  logic [31:0] n, weight_line, bias_line, x_line, x_stride, y_line, y_stride;
  logic [6:0] its_rows;
  logic [7:0] merge;
  logic [5:0] bank_first, bank_count, bias_bank, x_bank, y_bank;
  logic has_bias, y_single, four_bit;
  logic [1:0] group_log;
  matmul_slot slot (
      .clk(clk), .rst(rst), .unit_announce(unit_announce[MPU]), .unit_line(unit_line), .unit_rows(unit_rows),
      .unit_start(unit_start[MPU]), .unit_abort(unit_abort), .unit_idle(mpu_idle), .result_valid(mpu_valid),
      .result_ready(result_ready[MPU]), .result_state(mpu_state), .announce_valid(announce_valid),
      .command_valid(command_valid), .command_ready(command_ready), .idle(array_idle), .done(done), .k(k), .n(n),
      .rows(its_rows), .weight_line(weight_line), .first(first), .merge(merge), .bank_first(bank_first),
      .bank_count(bank_count), .has_bias(has_bias), .bias_bank(bias_bank), .bias_line(bias_line), .x_bank(x_bank),
      .x_line(x_line), .x_stride(x_stride), .y_bank(y_bank), .y_line(y_line), .y_stride(y_stride),
      .y_single(y_single), .four_bit(four_bit), .group_log(group_log)
  );
  mpu_fp16 #(
      .LANES(8)
  ) array (
      .clk(clk), .rst(rst), .abort_valid(unit_abort), .idle(array_idle), .announce_valid(announce_valid),
      .command_valid(command_valid), .command_ready(command_ready), .k(k), .n(n), .rows(its_rows),
      .weight_line(weight_line), .first(first), .merge(merge), .bank_first(bank_first), .bank_count(bank_count),
      .has_bias(has_bias), .bias_bank(bias_bank), .bias_line(bias_line), .x_bank(x_bank), .x_line(x_line),
      .x_stride(x_stride), .y_bank(y_bank), .y_line(y_line), .y_stride(y_stride), .y_single(y_single),
      .four_bit(four_bit), .group_log(group_log), .adapted(1'b0), .done(done), .nonfinite_count(array_count),
      .nonfinite_row(array_row), .stripe_log(), .stripe_valid(), .stripe_values(), .values_free(1'b1), .values_valid(1'b0),
      .values_single('0), .values_half('0), .read_valid(read_valid), .read_ready(read_ready), .read_bank(read_bank),
      .read_line(read_line), .read_tag(read_tag), .line_valid(line_valid), .line_tag(line_tag),
      .line_data(line_data), .write_valid(write_valid), .write_ready(write_ready), .write_bank(write_bank),
      .write_line(write_line), .write_bytes(write_bytes), .write_data(write_data)
  );
  assign array_told = !array_idle && command_ready;
endmodule
