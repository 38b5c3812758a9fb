// SPDX-License-Identifier: Apache-2.0
// The exact product of two normalized FP16 operands, one cycle: significand * 2^(exponent - 70), and
// whether it is NaN or infinite.
module fp16_product (
    input  logic               clk,
    input  logic signed [11:0] x_signed,
    input  logic        [5:0]  x_exponent,
    input  logic               x_negative,
    input  logic               x_zero,
    input  logic               x_infinite,
    input  logic               x_nan,
    input  logic               x_use,  // else the product is +0, whatever the weight
    input  logic signed [11:0] w_signed,
    input  logic        [5:0]  w_exponent,
    input  logic               w_negative,
    input  logic               w_zero,
    input  logic               w_infinite,
    input  logic               w_nan,
    output logic signed [22:0] product,
    output logic        [6:0]  exponent,
    output logic               nan,
    output logic               up,
    output logic               down
);
  logic nothing, infinite, not_number, negative;
  assign nothing = !x_use || x_zero || w_zero;
  assign not_number = x_nan || w_nan || (x_infinite && w_zero) || (x_zero && w_infinite);
  assign infinite = x_infinite || w_infinite;
  assign negative = x_negative ^ w_negative;
  always_ff @(posedge clk) begin
    product <= nothing ? 23'sd0 : 23'(x_signed * w_signed);
    exponent <= nothing ? 7'd0 : {1'b0, x_exponent} + {1'b0, w_exponent};
    nan <= x_use && not_number;
    up <= x_use && infinite && !not_number && !negative;
    down <= x_use && infinite && !not_number && negative;
  end
endmodule
