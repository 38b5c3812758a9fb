// SPDX-License-Identifier: Apache-2.0
// The six steps of exp's polynomial, each of operands of its own, and a product.
module steps_bench
  import pipe_types::*;
(
    input  logic             clk,
    input  logic             valid,
    input  logic [5:0][31:0] p,
    input  logic [31:0]      r,
    input  logic [31:0]      a,
    input  logic [31:0]      b,
    output logic [5:0]       sum_valid,
    output logic [5:0][31:0] sum,
    output logic             product_valid,
    output logic [31:0]      product
);
  for (genvar i = 0; i < 6; i++) begin : steps
    horner_step #(
        .C(EXP_C[i+1])
    ) step (
        .clk(clk), .valid(valid), .p(p[i]), .r(r), .sum_valid(sum_valid[i]), .sum(sum[i])
    );
  end
  normal_multiply multiply (
      .clk(clk), .valid(valid), .a(a), .b(b), .product_valid(product_valid), .product(product)
  );
endmodule
