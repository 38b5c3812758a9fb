// SPDX-License-Identifier: Apache-2.0
// A step of exp's polynomial, p * r + C with a rounding each, as float_multiply and float_add make them: nine cycles. C is
// positive, p too, |p * r| at most C / 2: so the sum has C's exponent or the one below, and nothing cancels. No operand is
// infinite or NaN; what is not so gives any bits. A subnormal r changes no sum and counts as zero. Stages without a value
// keep still.
module horner_step #(
    parameter logic [31:0] C = 32'h3f800000
) (
    input  logic        clk,
    input  logic        valid,
    input  logic [31:0] p,
    input  logic [31:0] r,
    output logic        sum_valid,
    output logic [31:0] sum
);
  localparam logic [8:0] EXPONENT = {1'b0, C[30:23]};
  logic [8:1] at;
  always_ff @(posedge clk) begin
    at <= {at[7:1], valid};
    sum_valid <= at[8];
  end

  // 1 to 4: the product, its leading bit 47 or 46, rounded; how far C's exponent is above its own
  logic minus_1, minus_2, minus_3, minus_4, gone_1, gone_2, gone_3, gone_4;
  logic [23:0] p_1, r_1, product_4;
  logic [47:0] product_2;
  logic [26:0] kept_3;  // 24 bits and three below
  logic [8:0] apart_1, apart_2, apart_3, apart_4;
  always_ff @(posedge clk) if (valid) begin
    minus_1 <= r[31];
    gone_1 <= r[30:23] == 8'd0;
    apart_1 <= EXPONENT + 9'd127 - {1'b0, p[30:23]} - {1'b0, r[30:23]};  // if bit 46 leads
    p_1 <= {1'b1, p[22:0]};
    r_1 <= {1'b1, r[22:0]};
  end
  always_ff @(posedge clk) if (at[1]) begin
    {minus_2, gone_2, apart_2} <= {minus_1, gone_1, apart_1};
    product_2 <= p_1 * r_1;
  end
  always_ff @(posedge clk) if (at[2]) begin
    {minus_3, gone_3} <= {minus_2, gone_2};
    apart_3 <= apart_2 - {8'd0, product_2[47]};
    kept_3 <= product_2[47] ? {product_2[47:22], product_2[21:0] != 22'd0} : {product_2[46:21], product_2[20:0] != 21'd0};
  end
  always_ff @(posedge clk) if (at[3]) begin
    automatic logic up = kept_3[2] && (kept_3[3] || kept_3[1:0] != 2'd0);
    automatic logic [24:0] rounded = {1'b0, kept_3[26:3]} + {24'd0, up};
    {minus_4, gone_4} <= {minus_3, gone_3};
    apart_4 <= apart_3 - {8'd0, rounded[24]};
    product_4 <= {rounded[24] || rounded[23], rounded[22:0]};
  end

  // 5 and 6: shifted to C's place, with two bits below and a sticky one
  logic minus_5, minus_6, gone_5;
  logic [4:0] right_5;
  logic [23:0] product_5;
  logic [26:0] lesser_6;
  always_ff @(posedge clk) if (at[4]) begin
    {minus_5, product_5} <= {minus_4, product_4};
    gone_5 <= gone_4 || apart_4[8:5] != 4'd0;
    right_5 <= apart_4[4:0];
  end
  always_ff @(posedge clk) if (at[5]) begin
    automatic logic [25:0] shifted = {product_5, 2'd0} >> right_5;
    automatic logic [23:0] lost;
    for (int i = 0; i < 24; i++) lost[i] = product_5[i] && (gone_5 || right_5 > 5'(i + 2));
    minus_6 <= minus_5;
    lesser_6 <= {shifted & {26{!gone_5}}, lost != 24'd0};
  end

  // 7 to 9: added, one place up at most, rounded
  logic [26:0] sum_7;
  logic [25:0] sum_8;  // behind the leading bit: 23 bits and three below
  logic whole_8;
  always_ff @(posedge clk) begin
    if (at[6]) sum_7 <= minus_6 ? {1'b1, C[22:0], 3'd0} - lesser_6 : {1'b1, C[22:0], 3'd0} + lesser_6;
    if (at[7]) {whole_8, sum_8} <= {sum_7[26], sum_7[26] ? sum_7[25:0] : {sum_7[24:0], 1'b0}};
    if (at[8]) begin
      automatic logic up = sum_8[2] && (sum_8[3] || sum_8[1:0] != 2'd0);
      sum <= {1'b0, {whole_8 ? C[30:23] : C[30:23] - 8'd1, sum_8[25:3]} + {30'd0, up}};
    end
  end
endmodule
