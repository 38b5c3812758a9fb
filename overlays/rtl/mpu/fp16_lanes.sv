// SPDX-License-Identifier: Apache-2.0
// LANES columns times ROWS rows of fp16_lane: one line of weights and one x a row each cycle, then
// results, one column of every row a cycle. From `w` and `x` to the product three cycles; the controls
// are those of fp16_lane and arrive with the product.
module fp16_lanes #(
    parameter int LANES = 32,
    parameter int ROWS = 1
) (
    input  logic                   clk,
    input  logic [16*LANES-1:0]    w,
    input  logic [16*ROWS-1:0]     x,
    input  logic                   use_product,
    input  logic                   join_hold,
    input  logic                   hold_load,
    input  logic [4:0]             column,      // whose result is read
    input  logic                   sum_clear,
    input  logic                   flags_take,
    output logic [32*ROWS-1:0]     single,  // of that column, a cycle later
    output logic [16*ROWS-1:0]     half
);
  localparam int LOG = $clog2(LANES);
  logic x_use_1, x_use;
  always_ff @(posedge clk) begin
    x_use_1 <= use_product;
    x_use <= x_use_1;
  end

  logic signed [11:0] w_signed[LANES];
  logic [5:0] w_exponent[LANES];
  logic [LANES-1:0] w_negative, w_zero, w_infinite, w_nan;
  for (genvar lane = 0; lane < LANES; lane++) begin : weights
    fp16_operand operand (
        .clk(clk),
        .value(w[16*lane+:16]),
        .signed_significand(w_signed[lane]),
        .exponent(w_exponent[lane]),
        .negative(w_negative[lane]),
        .zero(w_zero[lane]),
        .infinite(w_infinite[lane]),
        .nan(w_nan[lane])
    );
  end

  for (genvar row = 0; row < ROWS; row++) begin : rows
    logic signed [11:0] x_signed;
    logic [5:0] x_exponent;
    logic x_negative, x_zero, x_infinite, x_nan;
    fp16_operand operand (
        .clk(clk),
        .value(x[16*row+:16]),
        .signed_significand(x_signed),
        .exponent(x_exponent),
        .negative(x_negative),
        .zero(x_zero),
        .infinite(x_infinite),
        .nan(x_nan)
    );
    logic signed [24:0] hold_mantissa[LANES];
    logic [6:0] hold_exponent[LANES];
    logic [1:0] flags[LANES];
    logic [LOG-1:0] index;
    assign index = column[LOG-1:0];
    for (genvar lane = 0; lane < LANES; lane++) begin : lanes
      fp16_lane one (
          .clk(clk),
          .x_signed(x_signed),
          .x_exponent(x_exponent),
          .x_negative(x_negative),
          .x_zero(x_zero),
          .x_infinite(x_infinite),
          .x_nan(x_nan),
          .x_use(x_use),
          .w_signed(w_signed[lane]),
          .w_exponent(w_exponent[lane]),
          .w_negative(w_negative[lane]),
          .w_zero(w_zero[lane]),
          .w_infinite(w_infinite[lane]),
          .w_nan(w_nan[lane]),
          .join_hold(join_hold),
          .hold_load(hold_load),
          .sum_clear(sum_clear),
          .flags_take(flags_take),
          .hold_mantissa(hold_mantissa[lane]),
          .hold_exponent(hold_exponent[lane]),
          .flags(flags[lane])
      );
    end
    sum_to_float round (
        .clk(clk),
        .mantissa(hold_mantissa[index]),
        .exponent(hold_exponent[index]),
        .flags(flags[index]),
        .single(single[32*row+:32]),
        .half(half[16*row+:16])
    );
  end
endmodule
