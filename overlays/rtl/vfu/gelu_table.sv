// SPDX-License-Identifier: Apache-2.0
// Slopes and shifts of the chords of docs/numbers.md, 4.2, both tables: a memory that answers a cycle later.
module gelu_table
  import vfu_program::*;
(
    input  logic        clk,
    input  logic [10:0] place,  // table and chord
    input  logic        shift,
    output logic [31:0] word
);
  logic [31:0] slope, offset;
  logic shift_1;
  always_ff @(posedge clk) begin
    slope <= GELU_SLOPES[place];
    offset <= GELU_SHIFTS[place];
    shift_1 <= shift;
  end
  assign word = shift_1 ? offset : slope;
endmodule
