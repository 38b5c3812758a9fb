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
  logic [3:0] zeros_1;     // before the scale's leading bit
  logic [7:0] exponent_1;  // of the result, if the sum has 18 bits
  logic [28:0] product_2;
  logic zero_2;
  logic [4:0] zeros_2;     // before the product's leading bit, or one more is there
  logic [7:0] exponent_2;  // of the result, if one more is there
  always_ff @(posedge clk) begin
    valid_1 <= valid;
    valid_2 <= valid_1;
    if (valid) begin
      automatic logic [3:0] zeros_of_scale =
          scale[14:10] == 5'd0 ? 4'(leading_zeros_32({1'b0, scale[9:0], 21'h1fffff})) : 4'd0;
      negative_1 <= sum[31] ^ scale[15];
      special_1 <= scale[14:10] == 5'd31;
      nan_1 <= scale[14:10] == 5'd31 && (scale[9:0] != 10'd0 || sum == 32'sd0);
      size_1 <= 18'(sum[31] ? -sum : sum);
      significand_1 <= {scale[14:10] != 5'd0, scale[9:0]};
      zeros_1 <= zeros_of_scale;
      // bit 28 of a product is worth 2^28 * 2^(exponent - 25)
      exponent_1 <= scale[14:10] == 5'd0 ? 8'd130 - {4'd0, zeros_of_scale} : 8'd129 + {3'd0, scale[14:10]};
    end
    if (valid_1) begin
      automatic logic [4:0] zeros_of_sum = leading_zeros_32({size_1, 14'd0});
      {negative_2, special_2, nan_2} <= {negative_1, special_1, nan_1};
      zero_2 <= size_1 == 18'd0 || significand_1 == 11'd0;
      zeros_2 <= zeros_of_sum + {1'b0, zeros_1};
      exponent_2 <= exponent_1 - {3'd0, zeros_of_sum};
      product_2 <= size_1 * significand_1;
    end
    if (valid_2) begin
      automatic logic [28:0] first = product_2 << zeros_2;
      automatic logic [28:0] shifted = first[28] ? first : {first[27:0], 1'b0};
      automatic logic [3:0] below, below_more;
      automatic logic up;
      automatic logic [31:0] rounded;  // and a bit below
      // what is lost, without waiting for the shift
      for (int i = 0; i < 4; i++) begin
        below[i] = product_2[i] && zeros_2 < 5'(4 - i);
        below_more[i] = product_2[i] && zeros_2 < 5'(3 - i);
      end
      up = first[28] ? first[4] && (first[5] || below != 4'd0) : first[3] && (first[4] || below_more != 4'd0);
      rounded = {exponent_2, 23'd0, 1'b1} + {7'd0, first[28], shifted[27:5], up};  // `up` carries in
      if (nan_2) product <= FLOAT_NAN;
      else if (special_2) product <= {negative_2, 31'h7f800000};
      else if (zero_2) product <= 32'd0;
      else product <= {negative_2, rounded[31:1]};
    end
  end
endmodule
