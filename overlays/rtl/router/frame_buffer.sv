// SPDX-License-Identifier: Apache-2.0
// Whole frames, first in, first out. A frame that is being written counts from its commit on: without one it was
// never there. Lines of the frame at the head can be read in any order.
module frame_buffer
  import router_types::*;
#(
    parameter int NOTE_BITS = 1
) (
    input  logic                 clk,
    input  logic                 rst,
    output logic [2:0]           free,         // frames; one that is being written is not yet gone
    input  logic                 write_valid,
    input  logic [6:0]           write_line,   // of the frame
    input  logic [511:0]         write_data,
    input  logic                 commit,       // behind the frame's last line
    input  logic [NOTE_BITS-1:0] write_note,
    output logic                 head_valid,
    output logic [NOTE_BITS-1:0] head_note,
    input  logic                 read_enable,
    input  logic [6:0]           read_line,
    output logic [511:0]         read_data,    // from the next cycle on, until another is read
    input  logic                 pop
);
  localparam logic [8:0] LAST = 9'(FRAME_LINES * (SLOTS - 1));
  logic [511:0] cells[FRAME_LINES*SLOTS];
  logic [NOTE_BITS-1:0] notes[SLOTS];
  logic [2:0] used, write_slot, read_slot;
  logic [8:0] write_base, read_base;

  assign free = 3'(SLOTS) - used;
  assign head_valid = used != 3'd0;
  assign head_note = notes[read_slot];
  always_ff @(posedge clk) begin
    if (write_valid) cells[write_base+9'(write_line)] <= write_data;
    if (read_enable) read_data <= cells[read_base+9'(read_line)];
    if (commit) begin
      notes[write_slot] <= write_note;
      write_slot <= write_base == LAST ? 3'd0 : write_slot + 3'd1;
      write_base <= write_base == LAST ? 9'd0 : write_base + 9'(FRAME_LINES);
    end
    if (pop) begin
      read_slot <= read_base == LAST ? 3'd0 : read_slot + 3'd1;
      read_base <= read_base == LAST ? 9'd0 : read_base + 9'(FRAME_LINES);
    end
    used <= used + 3'(commit) - 3'(pop);
    if (rst) begin
      {used, write_slot, read_slot} <= '0;
      {write_base, read_base} <= '0;
    end
  end
endmodule
