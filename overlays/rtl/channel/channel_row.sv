// SPDX-License-Identifier: Apache-2.0
// A row's sums behind the exact products, one column a cycle (docs/numbers.md, 6.3): FP32(sum)*FP32(scale) is added to its
// segment, segments are joined by the tree; sums of W8A8 go to the totals as they are. What the passes of channel_passes say.
// Selecting a column's sum takes two registers, 4:1 each. No reset: passes are valid or not; memories begin with any bits.
module channel_row
  import mpu_types::*;
  import channel_types::*;
#(
    parameter int LATENCY = 11
) (
    input  logic                     clk,
    input  logic                     rst,        // for assertions alone
    input  logic                     sum_valid,
    input  logic [SUMS_LOG:0]        sum_where,  // sum, then half
    input  logic [511:0]             sums,       // of half a tile
    input  logic [SUMS_LOG-1:0]      oldest,
    input  column_pass_t [LATENCY:0] late,
    input  logic [15:0]              scale,      // of the column two cycles before
    input  logic [5:0]               read_at,    // side, column
    output logic [31:0]              total
);
  localparam int SELECT = 2, OPERANDS = SELECT + PRODUCT_CYCLES;
  logic [511:0] kept_sums[2 ** (SUMS_LOG + 1)], half;
  logic [127:0] quarter;
  logic [31:0] part, product;
  assign half = kept_sums[{oldest, late[0].slot[4]}];
  always_ff @(posedge clk) begin
    if (sum_valid) kept_sums[sum_where] <= sums;
    if (late[0].valid) quarter <= half[128*late[0].slot[3:2]+:128];
    if (late[1].valid) part <= quarter[32*late[1].slot[1:0]+:32];
  end
  group_product multiplier (
      .clk(clk),
      .valid(late[SELECT].valid && !late[SELECT].integers),
      .sum($signed(part)),
      .scale(scale),
      .product(product)
  );

  // sums of the segment that is being summed, and those that wait for as many more
  logic [31:0] now[32], waiting[128], totals[64], a, b, sum;
  logic sum_made;
  /* verilator lint_off UNUSEDSIGNAL */
  column_pass_t at, done, copied;
  /* verilator lint_on UNUSEDSIGNAL */
  assign at = late[OPERANDS];
  assign done = late[LATENCY];
  assign copied = late[SELECT];
  always_ff @(posedge clk) if (at.valid) begin
    a <= at.first ? 32'd0 : at.join_sums ? waiting[{at.a, at.slot}] : now[at.slot];
    b <= at.empty ? 32'd0 : at.join_sums ? now[at.slot] : product;
  end
  float_add adder (
      .clk(clk),
      .valid(late[OPERANDS+1].valid && !late[OPERANDS+1].integers),
      .a(a),
      .b(b),
      .sum_valid(sum_made),
      .sum(sum)
  );
  always_ff @(posedge clk) begin
    if (sum_made && !done.is_total && done.to == SUM_NOW) now[done.slot] <= sum;
    if (sum_made && !done.is_total && done.to != SUM_NOW) waiting[{done.to, done.slot}] <= sum;
    if (copied.valid && copied.integers) totals[{copied.side, copied.slot}] <= part;
    else if (sum_made && done.is_total) totals[{done.side, done.slot}] <= sum;
  end
  assign total = totals[read_at];

`ifndef SYNTHESIS
  if (LATENCY != OPERANDS + 1 + ADD_CYCLES) begin : wrong_latency
    $error("LATENCY: of select, product, operands and sum");
  end
  always_ff @(posedge clk) if (!rst) begin
    assert (!done.valid || done.integers || sum_made) else $fatal(1, "float_add takes other than ADD_CYCLES");
  end
`endif
endmodule
