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

  // 1: significands, and the exponent that a product has whose bit 47 leads
  logic sign_1, sign_2, sign_3, infinite_1, infinite_2, infinite_3, nan_1, nan_2, nan_3;
  logic signed [10:0] exponent_1, exponent_2;
  logic [23:0] a_1, b_1;
  function automatic logic [7:0] exponent_of(input logic [7:0] field);
    return field == 8'd0 ? 8'd1 : field;
  endfunction
  always_ff @(posedge clk) if (valid) begin
    automatic logic a_infinite = a[30:0] == 31'h7f800000;
    automatic logic b_infinite = b[30:0] == 31'h7f800000;
    automatic logic a_nan = a[30:0] > 31'h7f800000;
    automatic logic b_nan = b[30:0] > 31'h7f800000;
    sign_1 <= a[31] ^ b[31];
    nan_1 <= a_nan || b_nan || (a_infinite && b[30:0] == 31'd0) || (b_infinite && a[30:0] == 31'd0);
    infinite_1 <= a_infinite || b_infinite;
    exponent_1 <= $signed({3'd0, exponent_of(a[30:23])}) + $signed({3'd0, exponent_of(b[30:23])}) - 11'sd126;
    a_1 <= {a[30:23] != 8'd0, a[22:0]};
    b_1 <= {b[30:23] != 8'd0, b[22:0]};
  end

  // 2: multiply
  logic [47:0] product_2;
  always_ff @(posedge clk) if (valid_1) begin
    {sign_2, infinite_2, nan_2} <= {sign_1, infinite_1, nan_1};
    exponent_2 <= exponent_1;
    product_2 <= a_1 * b_1;
  end

  // 3: the leading bit to bit 47, but the exponent not below 1
  logic [26:0] kept_3;  // 24 bits and three below
  logic [9:0] exponent_3;
  always_ff @(posedge clk) if (valid_2) begin
    automatic logic [5:0] zeros = leading_zeros_64({product_2, 16'd0});
    automatic logic signed [10:0] room = exponent_2 - 11'sd1;
    automatic logic signed [10:0] lack = 11'sd1 - exponent_2;  // its negative
    automatic logic [5:0] left = room < $signed({5'd0, zeros}) ? room[5:0] : zeros;
    automatic logic [5:0] right = lack > 11'sd27 ? 6'd27 : lack[5:0];
    automatic logic [47:0] shifted_left = product_2 << left;
    automatic logic [49:0] shifted_right = {product_2[47:24], 26'd0} >> right;
    {sign_3, infinite_3, nan_3} <= {sign_2, infinite_2, nan_2};
    if (room >= 11'sd0) begin
      kept_3 <= {shifted_left[47:22], shifted_left[21:0] != 22'd0};
      exponent_3 <= exponent_2[9:0] - {4'd0, left};
    end else begin
      kept_3 <= {shifted_right[49:24], shifted_right[23:0] != 24'd0 || product_2[23:0] != 24'd0};
      exponent_3 <= 10'd1;
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
