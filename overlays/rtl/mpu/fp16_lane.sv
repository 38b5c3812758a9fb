// SPDX-License-Identifier: Apache-2.0
// One column of one row: FP16 products summed as docs/numbers.md, 2 says. The eight segments take
// turns in one eight-stage adder, slot by slot; the same adder then joins them by the tree and adds
// the bias, which comes as a product with 1. `fp16_schedule` drives the control inputs.
module fp16_lane (
    input  logic               clk,
    // normalized operands, registered by the sender
    input  logic signed [11:0] x_signed,
    input  logic        [5:0]  x_exponent,
    input  logic               x_negative,
    input  logic               x_zero,
    input  logic               x_infinite,
    input  logic               x_nan,
    input  logic               x_use,  // else the product is +0, whatever the weight
    input  logic signed [11:0] w_signed,
    input  logic        [5:0]  w_exponent,
    input  logic               w_negative,
    input  logic               w_zero,
    input  logic               w_infinite,
    input  logic               w_nan,
    // one cycle later, beside the product
    input  logic               join_hold,   // add what is held, not a product
    input  logic               hold_load,   // hold the sum that comes out next: for the tree, or as result
    input  logic               sum_clear,   // the next sum is +0: a new column begins
    input  logic               flags_take,  // results' flags are complete; this product is new
    output logic signed [24:0] hold_mantissa,
    output logic        [6:0]  hold_exponent,
    output logic        [1:0]  flags
);
  logic signed [22:0] product;
  logic [6:0] product_exponent;
  logic product_nan, product_up, product_down;  // not finite
  fp16_product multiply (
      .clk(clk),
      .x_signed(x_signed),
      .x_exponent(x_exponent),
      .x_negative(x_negative),
      .x_zero(x_zero),
      .x_infinite(x_infinite),
      .x_nan(x_nan),
      .x_use(x_use),
      .w_signed(w_signed),
      .w_exponent(w_exponent),
      .w_negative(w_negative),
      .w_zero(w_zero),
      .w_infinite(w_infinite),
      .w_nan(w_nan),
      .product(product),
      .exponent(product_exponent),
      .nan(product_nan),
      .up(product_up),
      .down(product_down)
  );

  logic signed [24:0] sum_mantissa, next_mantissa, b_mantissa;
  logic [6:0] sum_exponent, next_exponent, b_exponent;
  assign b_mantissa = {product, 2'b00} | (unsigned'(hold_mantissa) & {25{join_hold}});
  assign b_exponent = product_exponent | (hold_exponent & {7{join_hold}});
  sum_add adder (
      .clk(clk),
      .a_mantissa(sum_mantissa),
      .a_exponent(sum_exponent),
      .b_mantissa(b_mantissa),
      .b_exponent(b_exponent),
      .next_mantissa(next_mantissa),
      .next_exponent(next_exponent)
  );
  always_ff @(posedge clk) begin
    if (sum_clear) begin
      sum_mantissa <= 25'sd0;
      sum_exponent <= 7'd0;
    end else begin
      sum_mantissa <= next_mantissa;
      sum_exponent <= next_exponent;
    end
    if (hold_load) begin
      hold_mantissa <= next_mantissa;
      hold_exponent <= next_exponent;
    end
  end

  logic seen_nan, seen_up, seen_down;
  always_ff @(posedge clk) begin
    seen_nan <= product_nan || (seen_nan && !flags_take);
    seen_up <= product_up || (seen_up && !flags_take);
    seen_down <= product_down || (seen_down && !flags_take);
    if (flags_take) flags <= {seen_nan || seen_down, seen_nan || seen_up};
  end
endmodule
