// SPDX-License-Identifier: Apache-2.0
// Lines of memory in the order in which they were asked for, though they may come in any; a note goes with each.
module line_reads #(
    parameter int DEPTH_BITS = 3,
    parameter int NOTE_BITS = 1
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  ask_valid,
    output logic                  ask_ready,
    input  logic [20:0]           ask_line,
    input  logic [NOTE_BITS-1:0]  ask_note,
    // memory
    output logic                  read_valid,
    input  logic                  read_ready,
    output logic [20:0]           read_line,
    output logic [DEPTH_BITS-1:0] read_tag,
    input  logic                  line_valid,
    input  logic [DEPTH_BITS-1:0] line_tag,
    input  logic [511:0]          line_data,
    // in order
    output logic                  out_valid,
    input  logic                  out_ready,
    output logic [511:0]          out_data,
    output logic [NOTE_BITS-1:0]  out_note
);
  localparam int DEPTH = 1 << DEPTH_BITS;
  logic [511:0] lines[DEPTH];
  logic [NOTE_BITS-1:0] notes[DEPTH];
  logic [DEPTH-1:0] came;
  logic [DEPTH_BITS:0] asked, taken;
  logic full;
  assign full = asked - taken == (DEPTH_BITS + 1)'(DEPTH);
  assign read_valid = ask_valid && !full;
  assign ask_ready = read_ready && !full;
  assign read_line = ask_line;
  assign read_tag = asked[DEPTH_BITS-1:0];
  assign out_valid = came[taken[DEPTH_BITS-1:0]] && asked != taken;
  assign out_data = lines[taken[DEPTH_BITS-1:0]];
  assign out_note = notes[taken[DEPTH_BITS-1:0]];

  always_ff @(posedge clk) begin
    if (line_valid) begin
      lines[line_tag] <= line_data;
      came[line_tag] <= 1'b1;
    end
    if (read_valid && read_ready) begin
      notes[asked[DEPTH_BITS-1:0]] <= ask_note;
      came[asked[DEPTH_BITS-1:0]] <= 1'b0;
      asked <= asked + 1'b1;
    end
    if (out_valid && out_ready) taken <= taken + 1'b1;
    if (rst) {asked, taken} <= '0;
  end
endmodule
