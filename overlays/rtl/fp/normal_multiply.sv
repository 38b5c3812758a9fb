// SPDX-License-Identifier: Apache-2.0
// FP32 a * b, correctly rounded, where neither operand nor product is subnormal, infinite or NaN: four cycles. Zeros keep
// their sign, and subnormal operands count as zeros; what else is not so gives any bits. Stages without a value keep still.
module normal_multiply (
    input  logic        clk,
    input  logic        valid,
    input  logic [31:0] a,
    input  logic [31:0] b,
    output logic        product_valid,
    output logic [31:0] product
);
  logic [3:1] at;
  always_ff @(posedge clk) {product_valid, at} <= {at, valid};
  logic sign_1, sign_2, sign_3, zero_1, zero_2, zero_3;
  logic [23:0] a_1, b_1;
  logic [47:0] product_2;
  logic [25:0] kept_3;  // behind the leading bit: 23 bits and three below
  logic [7:0] exponent_1, exponent_2, exponent_3;
  always_ff @(posedge clk) if (valid) begin
    sign_1 <= a[31] ^ b[31];
    zero_1 <= a[30:23] == 8'd0 || b[30:23] == 8'd0;
    exponent_1 <= a[30:23] + b[30:23] - 8'd127;  // if bit 46 leads
    a_1 <= {1'b1, a[22:0]};
    b_1 <= {1'b1, b[22:0]};
  end
  always_ff @(posedge clk) if (at[1]) begin
    {sign_2, zero_2, exponent_2} <= {sign_1, zero_1, exponent_1};
    product_2 <= a_1 * b_1;
  end
  always_ff @(posedge clk) if (at[2]) begin
    {sign_3, zero_3} <= {sign_2, zero_2};
    exponent_3 <= exponent_2 + {7'd0, product_2[47]};
    kept_3 <= product_2[47] ? {product_2[46:22], product_2[21:0] != 22'd0} : {product_2[45:21], product_2[20:0] != 21'd0};
  end
  always_ff @(posedge clk) if (at[3]) begin
    automatic logic up = kept_3[2] && (kept_3[3] || kept_3[1:0] != 2'd0);
    // a carry moves on into the exponent
    product <= {sign_3, zero_3 ? 31'd0 : {exponent_3, kept_3[25:3]} + {30'd0, up}};
  end
endmodule
