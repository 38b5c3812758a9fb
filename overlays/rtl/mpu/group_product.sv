// SPDX-License-Identifier: Apache-2.0
// FP32(sum)*FP32(scale) of a part of a group of W4A8, one rounding, three cycles (docs/numbers.md, 6.3).
// |sum| is below 2^18 and scale is FP16, so the product has 29 bits and is never subnormal.
module group_product
  import float_types::*;
(
    input  logic               clk,
    input  logic               valid,
    input  logic signed [31:0] sum,
    input  logic        [15:0] scale,
    output logic        [31:0] product
);
  logic valid_1, valid_2;
  logic negative_1, negative_2, special_1, special_2, nan_1, nan_2;
  logic [17:0] size_1;
  logic [10:0] significand_1;
  logic [4:0] exponent_1, exponent_2;  // of the scale, 1 for subnormals
  logic [28:0] product_2;
  always_ff @(posedge clk) begin
    valid_1 <= valid;
    valid_2 <= valid_1;
    if (valid) begin
      negative_1 <= sum[31] ^ scale[15];
      special_1 <= scale[14:10] == 5'd31;
      nan_1 <= scale[14:10] == 5'd31 && (scale[9:0] != 10'd0 || sum == 32'sd0);
      size_1 <= 18'(sum[31] ? -sum : sum);
      significand_1 <= {scale[14:10] != 5'd0, scale[9:0]};
      exponent_1 <= scale[14:10] == 5'd0 ? 5'd1 : scale[14:10];
    end
    if (valid_1) begin
      {negative_2, special_2, nan_2} <= {negative_1, special_1, nan_1};
      exponent_2 <= exponent_1;
      product_2 <= size_1 * significand_1;
    end
    if (valid_2) begin
      automatic logic [4:0] zeros = leading_zeros_32({product_2, 3'd0});
      automatic logic [28:0] shifted = product_2 << zeros;
      automatic logic up = shifted[4] && (shifted[5] || shifted[3:0] != 4'd0);
      // bit 28 is worth 2^28 * 2^(exponent - 25)
      if (nan_2) product <= FLOAT_NAN;
      else if (special_2) product <= {negative_2, 31'h7f800000};
      else if (product_2 == 29'd0) product <= 32'd0;
      else product <= {negative_2, {8'd130 + {3'd0, exponent_2} - {3'd0, zeros}, shifted[27:5]} + {30'd0, up}};
    end
  end
endmodule
