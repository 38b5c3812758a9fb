// SPDX-License-Identifier: Apache-2.0
// Four products of each of two columns by one multiplier each: (high*2^18 + low) * x. Summed while
// packed, which would do for eight; then the low sum's borrow is given back to the high one. Two
// cycles. Words have the widths of a computer, which simulates faster; 27 bits of weights count, the
// operand of a DSP48E2, 8 of x and 37 of the sum.
module integer_pair (
    input  logic clk,
    input  logic enable,
    input  logic enable_2,  // a cycle later
    input  int   weights_0,
    input  int   weights_1,
    input  int   weights_2,
    input  int   weights_3,
    input  int   x_0,
    input  int   x_1,
    input  int   x_2,
    input  int   x_3,
    output int   low_sum,
    output int   high_sum
);
  longint product_0, product_1, product_2, product_3, sum;
  always_ff @(posedge clk) begin
    if (enable) begin
      product_0 <= 64'($signed(weights_0[26:0])) * 64'($signed(x_0[7:0]));
      product_1 <= 64'($signed(weights_1[26:0])) * 64'($signed(x_1[7:0]));
      product_2 <= 64'($signed(weights_2[26:0])) * 64'($signed(x_2[7:0]));
      product_3 <= 64'($signed(weights_3[26:0])) * 64'($signed(x_3[7:0]));
    end
    if (enable_2) sum <= product_0 + product_1 + product_2 + product_3;
  end
  assign low_sum = 32'($signed(sum[17:0]));
  assign high_sum = 32'($signed(sum[35:18])) + {31'd0, sum[17]};
endmodule
