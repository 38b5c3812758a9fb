// SPDX-License-Identifier: Apache-2.0
// A column's sums: eight take turns in one adder, slot by slot, each with its own flags of values that are
// not finite. Empty slots add +0.
module slot_lane (
    input  logic               clk,
    // normalized operands, registered by the sender
    input  logic signed [11:0] x_signed,
    input  logic        [5:0]  x_exponent,
    input  logic               x_negative,
    input  logic               x_zero,
    input  logic               x_infinite,
    input  logic               x_nan,
    input  logic               x_use,       // else the product is +0
    input  logic signed [11:0] w_signed,
    input  logic        [5:0]  w_exponent,
    input  logic               w_negative,
    input  logic               w_zero,
    input  logic               w_infinite,
    input  logic               w_nan,
    input  logic               clear,       // beside the operands: the slot's sum begins at +0
    input  logic               hold,        // keep the sum that comes out next, of this slot
    input  logic        [2:0]  hold_slot,
    input  logic        [2:0]  read_slot,
    output logic        [33:0] read_held,   // flags, exponent, mantissa
    input  logic        [2:0]  read_other,
    output logic        [33:0] read_other_held
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
  logic signed [24:0] sum_mantissa, next_mantissa;
  logic [6:0] sum_exponent, next_exponent;
  logic clear_1;
  logic [7:0][2:0] seen;  // NaN, infinity, -infinity: 0 of the product before, 7 of this slot's last one
  logic [2:0] now;
  logic [33:0] held[8];
  assign read_held = held[read_slot];
  assign read_other_held = held[read_other];
  assign now = {product_nan, product_up, product_down} | (clear_1 ? 3'd0 : seen[7]);
  sum_add adder (
      .clk(clk),
      .a_mantissa(sum_mantissa),
      .a_exponent(sum_exponent),
      .b_mantissa({product, 2'b00}),
      .b_exponent(product_exponent),
      .next_mantissa(next_mantissa),
      .next_exponent(next_exponent)
  );
  always_ff @(posedge clk) begin
    clear_1 <= clear;
    sum_mantissa <= clear ? 25'sd0 : next_mantissa;
    sum_exponent <= clear ? 7'd0 : next_exponent;
    seen <= {seen[6:0], now};
    if (hold)
      held[hold_slot] <= {seen[6][2] || seen[6][0], seen[6][2] || seen[6][1], next_exponent, next_mantissa};
  end
endmodule
