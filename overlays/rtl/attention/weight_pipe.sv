// SPDX-License-Identifier: Apache-2.0
// Weights of scores (docs/numbers.md, 3.8, 4.1, 6.6), one a cycle: FP16(exp(score - maximum)) 80 cycles later, or
// rint(127 * exp(..)) 84 later. No score is above the maximum, so 2^n is exact: the exponent takes n.
// |r| is at most 0.35; where score - maximum is below exp's range, or NaN, what was made of it is not used.
module weight_pipe
  import float_types::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        integers,
    input  logic        valid,
    input  logic [31:0] score,
    input  logic [31:0] maximum,
    output logic        weight_valid,
    output logic [15:0] weight,
    output logic        weight_nan   // of integers, whose weight is 0 then
);
  // csrc/include/lora/coefficients.h
  localparam logic [31:0] LOG2E = 32'h3fb8aa3b, LN2_HIGH = 32'h3f318000, LN2_LOW = 32'hb95e8083;
  localparam logic [31:0] LEAST = 32'hc2ae0000, TIMES_127 = 32'h42fe0000;
  localparam logic [31:0] C[7] = '{
    32'h3ab6887e, 32'h3c0905b1, 32'h3d2aaa8d, 32'h3e2aaa6f, 32'h3f000000, FLOAT_ONE, FLOAT_ONE
  };
  logic [84:1] at;  // a value is after so many cycles
  logic moves;
  assign moves = valid || at != '0;
  always_ff @(posedge clk) at <= rst ? '0 : {at[83:1], valid};

  // verilator lint_off PINCONNECTEMPTY
  logic [31:0] x, x_14, n_9, n_10, high_14, low_14, low_19, r_19, r_24, p[7], r[7];
  float_add subtract (.clk, .valid, .a(score), .b(maximum ^ 32'h80000000), .sum_valid(), .sum(x));
  normal_multiply turns (.clk, .valid(at[5]), .a(x), .b(LOG2E), .product_valid(), .product(n_9));
  always_ff @(posedge clk) if (at[9]) n_10 <= vfu_types::rounded(n_9);
  normal_multiply high (.clk, .valid(at[10]), .a(n_10), .b(LN2_HIGH), .product_valid(), .product(high_14));
  normal_multiply low (.clk, .valid(at[10]), .a(n_10), .b(LN2_LOW), .product_valid(), .product(low_14));
  delay_line #(.CYCLES(9)) keep_x (.clk, .moves, .value(x), .late(x_14));
  float_add less_high (.clk, .valid(at[14]), .a(x_14), .b(high_14 ^ 32'h80000000), .sum_valid(), .sum(r_19));
  delay_line #(.CYCLES(5)) keep_low (.clk, .moves, .value(low_14), .late(low_19));
  float_add less_low (.clk, .valid(at[19]), .a(r_19), .b(low_19 ^ 32'h80000000), .sum_valid(), .sum(r_24));
  assign p[0] = C[0];
  assign r[0] = r_24;
  for (genvar i = 0; i < 6; i++) begin : polynomial
    horner_step #(.C(C[i+1])) step (.clk, .valid(at[24+9*i]), .p(p[i]), .r(r[i]), .sum_valid(), .sum(p[i+1]));
    if (i < 5) begin : on
      delay_line #(.CYCLES(9)) keep_r (.clk, .moves, .value(r[i]), .late(r[i+1]));
    end
  end

  // 2^n, and values that are none of 4.1's polynomial
  logic [7:0] n_11, n_78;
  logic nan_6, tiny_6, nan_78, tiny_78, nan_79, nan_83;
  logic [31:0] exponential, scaled, whole;
  logic signed [9:0] eight;
  always_ff @(posedge clk) begin
    if (at[10]) n_11 <= 8'(vfu_types::small_integer(n_10));
    if (at[5]) begin
      nan_6 <= x[30:0] > 31'h7f800000;
      tiny_6 <= float_less(x, LEAST);
    end
    if (at[78]) begin
      exponential <= nan_78 ? FLOAT_NAN : tiny_78 ? 32'd0 : {1'b0, p[6][30:23] + n_78, p[6][22:0]};
      nan_79 <= nan_78;
    end
  end
  delay_line #(.WIDTH(8), .CYCLES(67)) keep_n (.clk, .moves, .value(n_11), .late(n_78));
  delay_line #(.WIDTH(2), .CYCLES(72)) keep_flags (.clk, .moves, .value({nan_6, tiny_6}), .late({nan_78, tiny_78}));
  normal_multiply times_127
    (.clk, .valid(at[79] && integers), .a(exponential), .b(TIMES_127), .product_valid(), .product(scaled));
  delay_line #(.WIDTH(1), .CYCLES(4)) keep_nan (.clk, .moves, .value(nan_79), .late(nan_83));
  // verilator lint_on PINCONNECTEMPTY
  assign whole = vfu_types::rounded(scaled);
  assign eight = vfu_types::small_integer(whole);
  assign weight_valid = integers ? at[84] : at[80];
  always_ff @(posedge clk) begin
    if (!integers && at[79]) weight <= float_to_half(exponential);
    if (integers && at[83]) begin
      weight <= nan_83 ? 16'd0 : 16'(eight);
      weight_nan <= nan_83;
    end
  end
endmodule
