// SPDX-License-Identifier: Apache-2.0
// A row's sums behind the exact products, one column a cycle (docs/numbers.md, 6.3): FP32(sum)*FP32(scale) is added to its
// segment, segments are joined by the tree; sums of W8A8 go to the totals as they are. What the passes of channel_passes say.
//
// A segment begins with its first product, which needs no adder: it is never -0. So in that pass the adder joins:
//
//   first part of  joins                                  into
//   0, 4           S6+S7 of the tile before, S2+S3        right
//   2, 6           S0+S1, S4+S5                           left: pair
//   1              pair + right of the tile before        right
//   5              pair + right                           left: half
//   3              half + right of the tile before        totals
//
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

  // sums of segments, by their number, and the tree's: left of a step (pair, half) and right of it
  logic [31:0] even[32], odd[32], left[64], right[32], totals[64], a, b, sum, product_1;
  logic sum_made, to_left, to_right, even_begins, even_goes_on, odd_begins, odd_goes_on;
  /* verilator lint_off UNUSEDSIGNAL */
  column_pass_t at, at_1, done, copied;
  /* verilator lint_on UNUSEDSIGNAL */
  assign at = late[OPERANDS];
  assign at_1 = late[OPERANDS+1];
  assign done = late[LATENCY];
  assign copied = late[SELECT];
  always_ff @(posedge clk) if (at.valid) begin
    a <= !at.segment[0] ? even[at.slot] : at.first ? left[{at.segment[1], at.slot}] : odd[at.slot];
    b <= !at.first ? product : at.segment[0] ? right[at.slot] : odd[at.slot];
    product_1 <= at.empty ? 32'd0 : product;
  end
  float_add adder (
      .clk(clk),
      .valid(at_1.valid && !at_1.integers),
      .a(a),
      .b(b),
      .sum_valid(sum_made),
      .sum(sum)
  );
  assign even_begins = at_1.valid && at_1.first && !at_1.segment[0];
  assign odd_begins = at_1.valid && at_1.first && at_1.segment[0];
  assign even_goes_on = sum_made && !done.first && !done.segment[0];
  assign odd_goes_on = sum_made && !done.first && done.segment[0];
  assign to_left = sum_made && done.first && (done.segment[1:0] == 2'd2 || done.segment == 3'd5);
  assign to_right = sum_made && done.first && (done.segment[1:0] == 2'd0 || done.segment == 3'd1);
  always_ff @(posedge clk) begin
    if (even_begins || even_goes_on) even[even_begins ? at_1.slot : done.slot] <= even_begins ? product_1 : sum;
    if (odd_begins || odd_goes_on) odd[odd_begins ? at_1.slot : done.slot] <= odd_begins ? product_1 : sum;
    if (to_left) left[{done.segment[0], done.slot}] <= sum;
    if (to_right) right[done.slot] <= sum;
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
    assert (!(even_begins && even_goes_on) && !(odd_begins && odd_goes_on))
    else $fatal(1, "two sums of segments are written at once");
  end
`endif
endmodule
