// SPDX-License-Identifier: Apache-2.0
// Which query heads of a command are a unit's own: KV heads go to units round-robin, with all query heads that share them,
// so units that begin together read different blocks.
module head_walk (
    input  logic        clk,
    input  logic        begins,     // the first head, of_start among those of its KV head
    input  logic [15:0] of_start,
    input  logic [15:0] group,
    input  logic [2:0]  unit,
    input  logic [2:0]  last_unit,  // 0, 1, 3 or 7
    input  logic        moves,      // to the next head
    output logic        own,
    output logic        ends_group
);
  logic [15:0] of_group;
  logic [2:0] turn;
  assign own = (turn & last_unit) == unit;
  assign ends_group = of_group + 16'd1 == group;
  always_ff @(posedge clk) begin
    if (moves) begin
      of_group <= ends_group ? 16'd0 : of_group + 16'd1;
      turn <= turn + {2'd0, ends_group};
    end
    if (begins) {of_group, turn} <= {of_start, 3'd0};
  end
endmodule
