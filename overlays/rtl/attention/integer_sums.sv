// SPDX-License-Identifier: Apache-2.0
// Two columns' sums of INT8 products, eight of each: two products a DSP48E2, (high*2^18 + low)*x.
module integer_sums (
    input  logic               clk,
    input  logic               on,    // not: everything keeps still
    input  logic signed [7:0]  low,
    input  logic signed [7:0]  high,
    input  logic signed [7:0]  x,
    // a cycle later
    input  logic               use_product,
    input  logic               clear,
    input  logic        [2:0]  slot,
    input  logic        [2:0]  read_slot,
    output logic        [31:0] read_low,
    output logic        [31:0] read_high
);
  logic signed [26:0] both;
  logic signed [34:0] product;
  assign both = 27'(high) * 27'sd262144 + 27'(low);
  logic signed [17:0] low_product, high_product;
  logic signed [31:0] low_sum[8], high_sum[8];
  assign low_product = product[17:0];
  assign high_product = 18'($signed(product[34:18])) + {17'd0, product[17]};
  assign read_low = low_sum[read_slot];
  assign read_high = high_sum[read_slot];
  always_ff @(posedge clk) begin
    if (on) product <= both * x;
    if (use_product) begin
      low_sum[slot] <= (clear ? 32'sd0 : low_sum[slot]) + 32'(low_product);
      high_sum[slot] <= (clear ? 32'sd0 : high_sum[slot]) + 32'(high_product);
    end
  end
endmodule
