// SPDX-License-Identifier: Apache-2.0
// W4A8 behind the exact sums (docs/numbers.md, 6.3): each part's FP32(sum)*FP32(scale) is added to its
// segment, and segments are joined by the tree as they end. A pass is eight cycles of four columns; the
// adder answers within a pass, so passes follow each other. One row; the passes are those of all rows.
module w4_segments
  import mpu_types::*;
(
    input  logic         clk,
    input  pass_t        pass,
    input  logic [127:0] part_sums,    // of these four columns, INT32
    input  logic [63:0]  part_scales,  // FP16
    // totals: written, and read by column
    input  logic         total_side,
    input  logic [5:0]   read_where,   // side, column
    output logic [31:0]  total
);
  // three cycles for the product, then six from operands to the stored sum
  pass_t pass_1, pass_2, pass_3, pass_4, pass_5, pass_6, pass_7, pass_8;
  always_ff @(posedge clk) begin
    pass_1 <= pass;
    pass_2 <= pass_1;
    pass_3 <= pass_2;
    pass_4 <= pass_3;
    pass_5 <= pass_4;
    pass_6 <= pass_5;
    pass_7 <= pass_6;
    pass_8 <= pass_7;
  end
  logic [31:0] chosen[4];
  for (genvar lane = 0; lane < 4; lane++) begin : lanes
    logic [31:0] product, a, b, sum, now_a, now_b;
    logic sum_valid;
    logic [31:0] kept[32];     // which, columns: see pass_t
    logic [31:0] totals[16];
    group_product multiplier (
        .clk(clk),
        .valid(pass.valid),
        .sum(part_sums[32*lane+:32]),
        .scale(part_scales[16*lane+:16]),
        .product(product)
    );
    assign now_a = kept[{pass_3.a, pass_3.slot}];
    assign now_b = kept[{SUM_NOW, pass_3.slot}];
    assign a = pass_3.first ? 32'd0 : now_a;
    assign b = pass_3.empty ? 32'd0 : pass_3.join_sums ? now_b : product;
    float_add adder (
        .clk(clk),
        .valid(pass_3.valid),
        .a(a),
        .b(b),
        .sum_valid(sum_valid),
        .sum(sum)
    );
    always_ff @(posedge clk) begin
      if (sum_valid && !pass_8.is_total) kept[{pass_8.to, pass_8.slot}] <= sum;
      if (sum_valid && pass_8.is_total) totals[{total_side, pass_8.slot}] <= sum;
    end
    assign chosen[lane] = totals[{read_where[5], read_where[4:2]}];
  end
  assign total = chosen[read_where[1:0]];
endmodule
