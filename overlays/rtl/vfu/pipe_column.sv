// SPDX-License-Identifier: Apache-2.0
// A column of the vector pipes: two products, their sum, and a product with that, one a cycle. What an operation does
// not need multiplies by 1 or adds -0, which changes no bit.
module pipe_column
  import float_types::*;
  import pipe_types::*;
(
    input  logic        clk,
    input  pipe_kind_t  kind,       // held, and so are the next three
    input  logic [31:0] factor,     // of x: a norm's, or the inverse of a scale
    input  logic [31:0] numerator,  // of z, in a residual sum
    input  logic [31:0] plus,       // to gamma
    input  logic        valid,
    input  logic        second,     // of a rotation: the head's second half
    input  logic [31:0] x,
    input  logic [31:0] z,          // of a rotation: the second half's
    input  logic [31:0] a,          // gamma, cosines
    input  logic [31:0] b,          // sines
    input  logic        silu_valid, // and what it is multiplied by
    input  logic [31:0] silu,
    input  logic [31:0] up,
    output logic        result_valid,
    output logic [15:0] half,
    output logic [7:0]  eight,
    output logic        bad         // to be counted
);
  logic left_valid, sum_valid, product_valid, second_4;
  logic [31:0] left, right, left_9, gamma_4, sum, product;
  logic rotates;
  assign rotates = kind == ROTATES_HEADS;
  float_multiply times_x (
      .clk(clk), .valid(valid), .a(rotates && second ? z : x),
      .b(rotates ? a : kind == ADDS ? FLOAT_ONE : factor), .product_valid(left_valid), .product(left)
  );
  // verilator lint_off PINCONNECTEMPTY
  float_multiply times_z (
      .clk(clk), .valid(valid), .a(rotates && second ? x : z), .b(rotates ? b : numerator), .product_valid(),
      .product(right)
  );
  // verilator lint_on PINCONNECTEMPTY
  pipe_delay #(
      .WIDTH(33), .CYCLES(4)
  ) delay_gamma (
      .clk(clk), .word({second, a}), .later({second_4, gamma_4})
  );
  logic [31:0] add_a, add_b;
  always_comb begin
    add_a = kind == NORMS ? plus : left;
    unique case (kind)
      NORMS: add_b = gamma_4;
      QUANTIZES: add_b = FLOAT_NEGATIVE_ZERO;
      ROTATES_HEADS: add_b = {right[31] ^ !second_4, right[30:0]};
      default: add_b = right;
    endcase
  end
  float_add add (
      .clk(clk), .valid(left_valid), .a(add_a), .b(add_b), .sum_valid(sum_valid), .sum(sum)
  );
  pipe_delay #(
      .CYCLES(5)
  ) delay_left (
      .clk(clk), .word(left), .later(left_9)
  );
  float_multiply join_them (
      .clk(clk), .valid(sum_valid || silu_valid), .a(kind == ACTIVATES ? silu : sum),
      .b(kind == ACTIVATES ? up : kind == NORMS ? left_9 : FLOAT_ONE), .product_valid(product_valid),
      .product(product)
  );
  logic [15:0] rounded_half;
  assign rounded_half = float_to_half(product);
  always_ff @(posedge clk) begin
    result_valid <= product_valid;
    if (product_valid) begin
      half <= rounded_half;
      eight <= float_to_eight(product);
      bad <= kind == QUANTIZES ? product[30:0] > 31'h7f800000 : rounded_half[14:10] == 5'd31;
    end
  end
endmodule
