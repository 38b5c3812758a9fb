// A matmul array as a unit of the sequencer: keeps the command that was told until the array can take it, starts
// it when told to, and keeps the result until it is taken. Row numbers are those of the command's rows.
module matmul_slot
  import abi_types::*;
#(
    parameter int FOUR_BIT_TYPE = int'(LORA_WEIGHT_W4A16)  // this array's weights of 4 bits
) (
    input  logic         clk,
    input  logic         rst,
    // sequencer
    input  logic         unit_announce,
    input  logic [511:0] unit_line,
    input  logic [6:0]   unit_rows,
    input  logic         unit_start,
    input  logic         unit_abort,
    output logic         unit_idle,
    output logic         result_valid,
    input  logic         result_ready,
    output logic [1:0]   result_state,
    // array
    output logic         announce_valid,
    output logic         command_valid,
    input  logic         command_ready,
    input  logic         idle,
    input  logic         done,
    output logic [15:0]  k,
    output logic [31:0]  n,
    output logic [6:0]   rows,
    output logic [31:0]  weight_line,
    output logic [15:0]  first,
    output logic [7:0]   merge,
    output logic [5:0]   bank_first,
    output logic [5:0]   bank_count,
    output logic         has_bias,
    output logic [5:0]   bias_bank,
    output logic [31:0]  bias_line,
    output logic [5:0]   x_bank,
    output logic [31:0]  x_line,
    output logic [31:0]  x_stride,
    output logic [5:0]   y_bank,
    output logic [31:0]  y_line,
    output logic [31:0]  y_stride,
    output logic         y_single,
    output logic         four_bit,
    output logic [1:0]   group_log
);
  matrix_record_t told;
  logic held, starts, runs, over;
  assign k = told.k[15:0];
  assign n = told.n;
  assign weight_line = told.weight_line;
  assign first = told.first;
  assign merge = told.merge;
  assign bank_first = told.bank_first[5:0];
  assign bank_count = told.bank_count[5:0];
  assign has_bias = told.bias_bank != 8'(LORA_NO_BANK);
  assign bias_bank = told.bias_bank[5:0];
  assign bias_line = told.bias_line;
  assign x_bank = told.x_bank[5:0];
  assign x_line = {6'd0, told.x_offset[31:6]};
  assign x_stride = {6'd0, told.x_stride[31:6]};
  assign y_bank = told.y_bank[5:0];
  assign y_line = {6'd0, told.y_offset[31:6]};
  assign y_stride = {6'd0, told.y_stride[31:6]};
  assign y_single = told.y_type == 8'(LORA_FP32);
  assign four_bit = (told.weight_type & 8'(LORA_WEIGHT_TYPE_MASK)) == 8'(FOUR_BIT_TYPE);
  assign group_log = 2'((told.weight_type >> LORA_WEIGHT_GROUP_SHIFT) - 8'd5);

  assign announce_valid = held && idle;  // again each cycle until the array has taken it
  assign command_valid = held && starts;
  assign unit_idle = idle && !held && !runs;
  assign result_valid = over;
  assign result_state = 2'(LORA_UNIT_DONE);
  always_ff @(posedge clk) begin
    if (unit_start) {starts, runs} <= 2'b11;
    if (command_valid && command_ready) {held, starts} <= 2'b00;
    if (unit_announce) begin
      held <= 1'b1;
      told <= unit_line;
      rows <= unit_rows;
    end
    if (done) over <= 1'b1;
    if (result_valid && result_ready) {runs, over} <= 2'b00;
    if (rst || unit_abort) {held, starts, runs, over} <= 4'b0000;
  end
endmodule
