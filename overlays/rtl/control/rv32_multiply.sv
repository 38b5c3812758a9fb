// SPDX-License-Identifier: Apache-2.0
// A product of 32 by 32 bits in three cycles: four partial products, their sum, half of it.
module rv32_multiply (
    input  logic        clk,
    input  logic        rst,
    input  logic        request,  // held until `done`, with its operands
    input  logic [1:0]  which,    // mul, mulh, mulhsu, mulhu
    input  logic [31:0] a,
    input  logic [31:0] b,
    output logic        done,
    output logic [31:0] result
);
  logic signed [32:0] a_wide, b_wide;
  logic signed [17:0] a_low, b_low;
  logic signed [15:0] a_high, b_high;
  assign a_wide = {a[31] && which != 2'd3, a};
  assign b_wide = {b[31] && !which[1], b};
  assign a_low = {1'b0, a_wide[16:0]};
  assign b_low = {1'b0, b_wide[16:0]};
  assign a_high = a_wide[32:17];
  assign b_high = b_wide[32:17];

  logic signed [35:0] low;
  logic signed [33:0] middle[2];
  logic signed [31:0] high;
  logic signed [63:0] sum;
  logic summed;
  always_ff @(posedge clk) begin
    low <= a_low * b_low;
    middle[0] <= a_low * b_high;
    middle[1] <= a_high * b_low;
    high <= a_high * b_high;
    sum <= 64'(low) + (64'(middle[0]) <<< 17) + (64'(middle[1]) <<< 17) + (64'(high) <<< 34);
    summed <= request && !rst && !summed && !done;
    done <= summed && !rst;
  end
  assign result = which == 2'd0 ? sum[31:0] : sum[63:32];
endmodule
