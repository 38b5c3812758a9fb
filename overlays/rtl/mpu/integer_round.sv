// SPDX-License-Identifier: Apache-2.0
// What follows the sums of a row, a column a cycle (docs/numbers.md, 6.2, 6.3 and 6.10): times the
// column's scale, times the row's, plus the bias, then FP16 or FP32. Sixteen cycles.
module integer_round
  import float_types::*;
(
    input  logic               clk,
    input  logic               valid,
    input  logic               is_single,  // the total, not the sum
    input  logic signed [31:0] sum,
    input  logic        [31:0] total,
    input  logic        [31:0] scale,      // two cycles later
    input  logic        [31:0] row_scale,  // 1 where rows have none
    input  logic        [31:0] bias,       // ten cycles later; -0 where there is none
    output logic               value_valid,
    output logic        [31:0] single,
    output logic        [15:0] half
);
  logic converted_valid, scaled_valid, product_valid, sum_valid;
  logic [31:0] converted, total_1, total_2, scaled, product, result;
  always_ff @(posedge clk) begin
    total_1 <= total;
    total_2 <= total_1;
  end
  int_to_float convert (
      .clk(clk),
      .valid(valid),
      .value(sum),
      .float_valid(converted_valid),
      .single(converted)
  );
  float_multiply by_column (
      .clk(clk),
      .valid(converted_valid),
      .a(is_single ? total_2 : converted),
      .b(scale),
      .product_valid(scaled_valid),
      .product(scaled)
  );
  float_multiply by_row (
      .clk(clk),
      .valid(scaled_valid),
      .a(scaled),
      .b(row_scale),
      .product_valid(product_valid),
      .product(product)
  );
  float_add add_bias (
      .clk(clk),
      .valid(product_valid),
      .a(product),
      .b(bias),
      .sum_valid(sum_valid),
      .sum(result)
  );
  always_ff @(posedge clk) begin
    value_valid <= sum_valid;
    if (sum_valid) begin
      single <= canonical(result);
      half <= float_to_half(result);
    end
  end
endmodule
