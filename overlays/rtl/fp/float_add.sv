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

  // 1: the larger magnitude first. What both sides need is found beside the comparison, not behind it.
  logic sign_1, minus_1, infinite_1, nan_1;
  logic [7:0] exponent_1, apart_1;
  logic [23:0] bigger_1, lesser_1;
  function automatic logic [7:0] exponent_of(input logic [7:0] field);
    return {field[7:1], field[0] || field == 8'd0};  // 1 of subnormals
  endfunction
  always_ff @(posedge clk) if (valid) begin
    automatic logic swap = a[30:0] < b[30:0];
    automatic logic [7:0] a_exponent = exponent_of(a[30:23]), b_exponent = exponent_of(b[30:23]);
    automatic logic [23:0] a_significand = {a[30:23] != 8'd0, a[22:0]}, b_significand = {b[30:23] != 8'd0, b[22:0]};
    automatic logic a_top = a[30:23] == 8'd255, b_top = b[30:23] == 8'd255;
    automatic logic a_whole = a[22:0] == 23'd0, b_whole = b[22:0] == 23'd0;
    automatic logic [7:0] a_above = a_exponent - b_exponent, b_above = b_exponent - a_exponent;
    sign_1 <= swap ? b[31] : a[31];
    minus_1 <= a[31] ^ b[31];
    infinite_1 <= a_top || b_top;
    nan_1 <= (a_top && !a_whole) || (b_top && !b_whole) || (a_top && b_top && (a[31] ^ b[31]));
    exponent_1 <= swap ? b_exponent : a_exponent;
    apart_1 <= swap ? b_above : a_above;
    bigger_1 <= swap ? b_significand : a_significand;
    lesser_1 <= swap ? a_significand : b_significand;
  end

  // 2: shift the smaller one, with two bits below and a sticky one
  logic sign_2, minus_2, infinite_2, nan_2;
  logic [7:0] exponent_2;
  logic [23:0] bigger_2;
  logic [26:0] lesser_2;
  always_ff @(posedge clk) if (valid_1) begin
    automatic logic gone = apart_1[7:5] != 3'd0;
    automatic logic [25:0] shifted = {lesser_1, 2'd0} >> apart_1[4:0];
    automatic logic [23:0] lost;  // bits that are below
    for (int i = 0; i < 24; i++) lost[i] = lesser_1[i] && (gone || apart_1[4:0] > 5'(i + 2));
    {sign_2, minus_2, infinite_2, nan_2} <= {sign_1, minus_1, infinite_1, nan_1};
    exponent_2 <= exponent_1;
    bigger_2 <= bigger_1;
    lesser_2 <= {shifted & {26{!gone}}, lost != 24'd0};
  end

  // 3: add. A place as far down as exponent 1 allows is marked, for the next stage.
  logic sign_3, infinite_3, nan_3;
  logic [7:0] exponent_3;
  logic [27:0] sum_3, furthest_3;
  always_ff @(posedge clk) if (valid_2) begin
    sign_3 <= sign_2;
    infinite_3 <= infinite_2;
    nan_3 <= nan_2;
    exponent_3 <= exponent_2;
    for (int i = 0; i < 28; i++) furthest_3[i] <= exponent_2 == 8'(27 - i);
    sum_3 <= minus_2 ? {1'b0, bigger_2, 3'd0} - {1'b0, lesser_2} : {1'b0, bigger_2, 3'd0} + {1'b0, lesser_2};
    if (minus_2 && {bigger_2, 3'd0} == lesser_2) sign_3 <= 1'b0;  // +0
  end

  // 4: the leading bit to the place of a carry, but no further than exponent 1. Of zero the exponent means nothing.
  logic sign_4, infinite_4, nan_4;
  logic [8:0] exponent_4;
  logic [26:0] sum_4;  // 24 bits and three below
  always_ff @(posedge clk) if (valid_3) begin
    automatic logic [4:0] left = leading_zeros_32({sum_3 | furthest_3, 4'd0});
    // by what is known first
    automatic logic [27:0] shifted = ((sum_3 << {left[4:3], 3'd0}) << {left[2], 2'd0}) << left[1:0];
    sign_4 <= sign_3;
    infinite_4 <= infinite_3;
    nan_4 <= nan_3;
    sum_4 <= {shifted[27:2], shifted[1] | (sum_3[27] & sum_3[0])};
    exponent_4 <= {1'b0, exponent_3} + 9'd1 - {4'd0, left};
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
