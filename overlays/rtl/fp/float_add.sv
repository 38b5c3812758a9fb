// SPDX-License-Identifier: Apache-2.0
// FP32 a + b, correctly rounded, subnormals kept: five cycles. Stages without a value keep still; what a stage computes is
// within its condition, so that a simulator does nothing there either.
module float_add
  import float_types::*;
(
    input  logic        clk,
    input  logic        valid,
    input  logic [31:0] a,
    input  logic [31:0] b,
    output logic        sum_valid,
    output logic [31:0] sum
);
  logic valid_1, valid_2, valid_3, valid_4;
  always_ff @(posedge clk) begin
    valid_1 <= valid;
    valid_2 <= valid_1;
    valid_3 <= valid_2;
    valid_4 <= valid_3;
    sum_valid <= valid_4;
  end

  // 1: the larger magnitude first
  logic sign_1, minus_1, infinite_1, nan_1;
  logic [7:0] exponent_1, apart_1;
  logic [23:0] bigger_1, lesser_1;
  always_ff @(posedge clk) if (valid) begin
    automatic logic [31:0] x = a, y = b;
    automatic logic swap = x[30:0] < y[30:0];
    automatic logic [31:0] bigger = swap ? y : x;
    automatic logic [31:0] lesser = swap ? x : y;
    automatic logic [7:0] bigger_exponent = bigger[30:23] == 8'd0 ? 8'd1 : bigger[30:23];  // 1 of subnormals
    automatic logic [7:0] lesser_exponent = lesser[30:23] == 8'd0 ? 8'd1 : lesser[30:23];
    sign_1 <= bigger[31];
    minus_1 <= x[31] ^ y[31];
    infinite_1 <= bigger[30:23] == 8'd255;
    nan_1 <= bigger[30:0] > 31'h7f800000 || (lesser[30:0] == 31'h7f800000 && (x[31] ^ y[31]));
    exponent_1 <= bigger_exponent;
    apart_1 <= bigger_exponent - lesser_exponent;
    bigger_1 <= {bigger[30:23] != 8'd0, bigger[22:0]};
    lesser_1 <= {lesser[30:23] != 8'd0, lesser[22:0]};
  end

  // 2: shift the smaller one, with two bits below and a sticky one
  logic sign_2, minus_2, infinite_2, nan_2;
  logic [7:0] exponent_2;
  logic [23:0] bigger_2;
  logic [26:0] lesser_2;
  always_ff @(posedge clk) if (valid_1) begin
    automatic logic [4:0] right = apart_1 > 8'd27 ? 5'd27 : apart_1[4:0];
    automatic logic [52:0] shifted = {lesser_1, 29'd0} >> right;
    {sign_2, minus_2, infinite_2, nan_2} <= {sign_1, minus_1, infinite_1, nan_1};
    exponent_2 <= exponent_1;
    bigger_2 <= bigger_1;
    lesser_2 <= {shifted[52:27], shifted[26:0] != 27'd0};
  end

  // 3: add
  logic sign_3, infinite_3, nan_3;
  logic [7:0] exponent_3;
  logic [27:0] sum_3;
  always_ff @(posedge clk) if (valid_2) begin
    sign_3 <= sign_2;
    infinite_3 <= infinite_2;
    nan_3 <= nan_2;
    exponent_3 <= exponent_2;
    sum_3 <= minus_2 ? {1'b0, bigger_2, 3'd0} - {1'b0, lesser_2} : {1'b0, bigger_2, 3'd0} + {1'b0, lesser_2};
    if (minus_2 && {bigger_2, 3'd0} == lesser_2) sign_3 <= 1'b0;  // +0
  end

  // 4: the leading bit to its place, but no further than exponent 1
  logic sign_4, infinite_4, nan_4;
  logic [8:0] exponent_4;
  logic [26:0] sum_4;  // 24 bits and three below
  always_ff @(posedge clk) if (valid_3) begin
    automatic logic [4:0] zeros = leading_zeros_32({sum_3[26:0], 5'd0});
    automatic logic [7:0] most = exponent_3 - 8'd1;
    automatic logic [4:0] left = {3'd0, zeros} > most ? most[4:0] : zeros;
    sign_4 <= sign_3;
    infinite_4 <= infinite_3;
    nan_4 <= nan_3;
    if (sum_3[27]) begin
      sum_4 <= {sum_3[27:2], sum_3[1] | sum_3[0]};
      exponent_4 <= {1'b0, exponent_3} + 9'd1;
    end else begin
      sum_4 <= sum_3[26:0] << left;
      exponent_4 <= {1'b0, exponent_3} - {4'd0, left};
    end
  end

  // 5: round; without its leading bit the sum is subnormal or zero
  always_ff @(posedge clk) if (valid_4) begin
    automatic logic up = sum_4[2] && (sum_4[3] || sum_4[1:0] != 2'd0);
    // a carry moves on into the exponent
    automatic logic [31:0] rounded = {sum_4[26] ? exponent_4 : 9'd0, sum_4[25:3]} + {31'd0, up};
    if (nan_4) sum <= FLOAT_NAN;
    else if (infinite_4 || rounded[31:23] >= 9'd255) sum <= {sign_4, 31'h7f800000};
    else sum <= {sign_4, rounded[30:0]};
  end
endmodule
