// SPDX-License-Identifier: Apache-2.0
// FP32 a * b, correctly rounded, subnormals kept: four cycles. Stages without a value keep still.
module float_multiply
  import float_types::*;
(
    input  logic        clk,
    input  logic        valid,
    input  logic [31:0] a,
    input  logic [31:0] b,
    output logic        product_valid,
    output logic [31:0] product
);
  logic valid_1, valid_2, valid_3;
  always_ff @(posedge clk) begin
    valid_1 <= valid;
    valid_2 <= valid_1;
    valid_3 <= valid_2;
    product_valid <= valid_3;
  end

  // 1: significands, and the exponent that a product has whose bit 47 leads. Zeros before a subnormal's leading bit:
  // so many the product has, or one more.
  logic sign_1, sign_2, sign_3, infinite_1, infinite_2, infinite_3, nan_1, nan_2, nan_3;
  logic signed [10:0] exponent_1, exponent_2;
  logic [23:0] a_1, b_1;
  logic [4:0] zeros_1;
  function automatic logic [7:0] exponent_of(input logic [7:0] field);
    return {field[7:1], field[0] || field == 8'd0};
  endfunction
  always_ff @(posedge clk) if (valid) begin
    automatic logic a_top = a[30:23] == 8'd255, b_top = b[30:23] == 8'd255;
    automatic logic a_small = a[30:23] == 8'd0, b_small = b[30:23] == 8'd0;
    automatic logic a_whole = a[22:0] == 23'd0, b_whole = b[22:0] == 23'd0;
    sign_1 <= a[31] ^ b[31];
    nan_1 <= (a_top && !a_whole) || (b_top && !b_whole) || (a_top && b_small && b_whole) || (b_top && a_small && a_whole);
    infinite_1 <= a_top || b_top;
    exponent_1 <= $signed({3'd0, exponent_of(a[30:23])}) + $signed({3'd0, exponent_of(b[30:23])}) - 11'sd126;
    a_1 <= {!a_small, a[22:0]};
    b_1 <= {!b_small, b[22:0]};
    // of two subnormals any will do: their product goes right
    zeros_1 <= !a_small && !b_small ? 5'd0 : leading_zeros_32({1'b0, a_small ? a[22:0] : b[22:0], 8'd0});
  end

  // 2: multiply; how far the product goes, left by no more than the exponent has above 1
  logic [47:0] product_2;
  logic deep_2, more_2;  // right; one more to the left, if bit 47 is not set then
  logic [4:0] by_2;
  always_ff @(posedge clk) if (valid_1) begin
    automatic logic signed [10:0] room = exponent_1 - 11'sd1;
    automatic logic signed [10:0] lack = 11'sd1 - exponent_1;  // its negative
    automatic logic tight = room < $signed({6'd0, zeros_1});
    {sign_2, infinite_2, nan_2} <= {sign_1, infinite_1, nan_1};
    exponent_2 <= exponent_1;
    product_2 <= a_1 * b_1;
    deep_2 <= room[10];
    more_2 <= room > $signed({6'd0, zeros_1});
    by_2 <= room[10] ? (lack > 11'sd27 ? 5'd27 : lack[4:0]) : tight ? room[4:0] : zeros_1;
  end

  // 3: the leading bit to bit 47, but the exponent not below 1
  logic [26:0] kept_3;  // 24 bits and three below
  logic [9:0] exponent_3;
  always_ff @(posedge clk) if (valid_2) begin
    automatic logic [47:0] shifted = product_2 << by_2;
    automatic logic [25:0] right = {product_2[47:24], 2'd0} >> by_2;
    automatic logic more = more_2 && !shifted[47];
    automatic logic [21:0] below, below_more;  // bits that the left shift does not keep
    automatic logic [23:0] lost;  // and the right one
    for (int i = 0; i < 22; i++) begin
      below[i] = product_2[i] && by_2 < 5'(22 - i);
      below_more[i] = product_2[i] && by_2 < 5'(21 - i);
    end
    for (int i = 0; i < 24; i++) lost[i] = product_2[24+i] && by_2 > 5'(i + 2);
    {sign_3, infinite_3, nan_3} <= {sign_2, infinite_2, nan_2};
    if (deep_2) begin
      kept_3 <= {right, lost != 24'd0 || product_2[23:0] != 24'd0};
      exponent_3 <= 10'd1;
    end else begin
      kept_3 <= more ? {shifted[46:21], below_more != 22'd0} : {shifted[47:22], below != 22'd0};
      exponent_3 <= exponent_2[9:0] - {5'd0, by_2} - {9'd0, more};
    end
  end

  // 4: round; without its leading bit the product is subnormal or zero
  always_ff @(posedge clk) if (valid_3) begin
    automatic logic up = kept_3[2] && (kept_3[3] || kept_3[1:0] != 2'd0);
    automatic logic [32:0] rounded = {kept_3[26] ? exponent_3 : 10'd0, kept_3[25:3]} + {32'd0, up};
    if (nan_3) product <= FLOAT_NAN;
    else if (infinite_3 || rounded[32:23] >= 10'd255) product <= {sign_3, 31'h7f800000};
    else product <= {sign_3, rounded[30:0]};
  end
endmodule
