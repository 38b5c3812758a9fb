// SPDX-License-Identifier: Apache-2.0
// FP32 |a| + |b|, correctly rounded, subnormals kept: three cycles, as nothing can cancel. It takes a value each cycle.
module magnitude_add
  import float_types::*;
(
    input  logic        clk,
    input  logic [30:0] a,
    input  logic [30:0] b,
    output logic [30:0] sum
);
  // 1: the larger one first
  logic infinite_1, nan_1;
  logic [7:0] exponent_1, apart_1;
  logic [23:0] bigger_1, lesser_1;
  function automatic logic [7:0] exponent_of(input logic [7:0] field);
    return {field[7:1], field[0] || field == 8'd0};  // 1 of subnormals
  endfunction
  always_ff @(posedge clk) begin
    automatic logic swap = a < b;
    automatic logic [7:0] a_exponent = exponent_of(a[30:23]), b_exponent = exponent_of(b[30:23]);
    automatic logic [23:0] a_significand = {a[30:23] != 8'd0, a[22:0]}, b_significand = {b[30:23] != 8'd0, b[22:0]};
    automatic logic [7:0] a_above = a_exponent - b_exponent, b_above = b_exponent - a_exponent;
    infinite_1 <= a[30:23] == 8'd255 || b[30:23] == 8'd255;
    nan_1 <= (a[30:23] == 8'd255 && a[22:0] != 23'd0) || (b[30:23] == 8'd255 && b[22:0] != 23'd0);
    exponent_1 <= swap ? b_exponent : a_exponent;
    apart_1 <= swap ? b_above : a_above;
    bigger_1 <= swap ? b_significand : a_significand;
    lesser_1 <= swap ? a_significand : b_significand;
  end

  // 2: shift the smaller one, with two bits below, and add; whether any bit is lost
  logic infinite_2, nan_2, sticky_2;
  logic [7:0] exponent_2, above_2;
  logic [26:0] sum_2;
  always_ff @(posedge clk) begin
    automatic logic gone = apart_1[7:5] != 3'd0;
    automatic logic [25:0] shifted = {lesser_1, 2'd0} >> apart_1[4:0];
    automatic logic [23:0] lost;  // bits that are below
    for (int i = 0; i < 24; i++) lost[i] = lesser_1[i] && (gone || apart_1[4:0] > 5'(i + 2));
    {infinite_2, nan_2, exponent_2, above_2} <= {infinite_1, nan_1, exponent_1, exponent_1 + 8'd1};
    sum_2 <= {1'b0, bigger_1, 2'd0} + {1'b0, shifted & {26{!gone}}};
    sticky_2 <= lost != 24'd0;
  end

  // 3: one place down behind a carry, and round, which may carry into the exponent; without its leading bit it is subnormal
  always_ff @(posedge clk) begin
    automatic logic carry = sum_2[26];
    automatic logic [24:0] placed = carry ? {sum_2[25:2], sum_2[1] | sum_2[0]} : sum_2[24:0];
    automatic logic up = placed[1] && (placed[2] || placed[0] || sticky_2);
    automatic logic [30:0] rounded =
        {carry ? above_2 : sum_2[25] ? exponent_2 : 8'd0, placed[24:2]} + {30'd0, up};
    if (nan_2) sum <= FLOAT_NAN[30:0];
    else if (infinite_2 || rounded[30:23] == 8'd255) sum <= 31'h7f800000;
    else sum <= rounded;
  end
endmodule
