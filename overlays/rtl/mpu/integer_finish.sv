// SPDX-License-Identifier: Apache-2.0
// Takes a column tile's sums, or its totals of W4A8, through integer_round and on to result_store.
module integer_finish
  import mpu_types::*;
  import float_types::*;
#(
    parameter int ROWS = 1
) (
    input  logic               clk,
    input  logic               rst,
    input  command_t           command,
    input  logic               tile_ready,   // sums or totals are there, and scales and bias
    input  logic               store_free,
    output logic               taken,        // one cycle: they have been read
    output logic               params_free,  // one cycle: scales and bias too
    output logic [4:0]         column,       // whose sum is read in this cycle
    input  logic [511:0]       scale_line,   // of that column's half
    input  logic [511:0]       bias_line,
    input  logic [31:0]        sum[ROWS],
    input  logic [31:0]        total[ROWS],
    input  logic [31:0]        row_scale[ROWS],
    output logic               value_valid,
    output logic [32*ROWS-1:0] single,
    output logic [16*ROWS-1:0] half
);
  localparam int BIAS_DELAY = 11;
  logic reading, valid_1;
  logic [5:0] left;  // columns whose values have not come out
  logic [31:0] scale_1, scale_2, scale_3;
  logic [BIAS_DELAY-1:0][15:0] bias;
  assign taken = reading && column == 5'd31;
  assign params_free = value_valid && left == 6'd1;
  always_ff @(posedge clk) begin
    valid_1 <= reading;
    if (reading) column <= column + 5'd1;
    if (taken) reading <= 1'b0;
    if (value_valid) left <= left - 6'd1;
    if (!reading && left == 6'd0) begin
      if (store_free && tile_ready) begin
        reading <= 1'b1;
        column <= 5'd0;
        left <= 6'd32;
      end
    end
    if (left != 6'd0) begin
      scale_1 <= scale_line[32*column[3:0]+:32];
      scale_2 <= scale_1;
      scale_3 <= scale_2;
      bias <= {bias[BIAS_DELAY-2:0], bias_line[16*column+:16]};
    end
    if (rst) begin
      reading <= 1'b0;
      valid_1 <= 1'b0;
      left <= 6'd0;
    end
  end

  logic [31:0] bias_single;
  always_comb begin
    bias_single = FLOAT_NEGATIVE_ZERO;
    if (command.has_bias && left != 6'd0) bias_single = half_to_float(bias[BIAS_DELAY-1]);
  end
  logic [ROWS-1:0] valid_out;
  assign value_valid = valid_out[0] && left != 6'd0;
  for (genvar row = 0; row < ROWS; row++) begin : rows
    logic [31:0] sum_1, total_1;
    always_ff @(posedge clk) if (reading) begin
      sum_1 <= sum[row];
      total_1 <= total[row];
    end
    integer_round round (
        .clk(clk),
        .valid(valid_1),
        .is_single(command.four_bit),
        .sum(sum_1),
        .total(total_1),
        .scale(scale_3),
        .row_scale(command.row_scales ? row_scale[row] : FLOAT_ONE),
        .bias(bias_single),
        .value_valid(valid_out[row]),
        .single(single[32*row+:32]),
        .half(half[16*row+:16])
    );
  end
endmodule
