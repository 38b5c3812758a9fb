// SPDX-License-Identifier: Apache-2.0
// Cuts a part of a block into pieces that lie in one line of the frame and in one line of memory. A part is bytes
// of rows, one row after another.
module part_walk
  import router_types::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        start,       // one cycle
    input  logic [12:0] part_bytes,  // more than none
    input  size_t       row_start,   // address of the row's bytes of this block
    input  size_t       stride,
    input  size_t       width,       // bytes of a row of the block
    input  logic [4:0]  row,
    input  size_t       at_byte,
    input  logic [28:0] behind_start,  // of the part's first row: bytes behind an address, and the address
    input  size_t       slack,         // bytes of the stride behind a row
    output logic        piece_valid,
    input  logic        piece_ready,
    output logic [6:0]  frame_line,
    output logic [5:0]  frame_byte,
    output logic [20:0] memory_line,
    output logic [5:0]  memory_byte,
    output logic [6:0]  count,
    output logic        ends_line,   // of the frame
    output logic        ends_part,
    output logic        starts_run,  // of bytes of one row
    output logic        ends_run,
    output behind_t     behind,      // bytes of all rows behind memory's line, and 64
    // behind the part
    output logic [4:0]  next_row,
    output size_t       next_byte
);
  size_t start_of_row, left_of_row, address;
  logic [12:0] place, left;  // of the frame
  logic [6:0] to_line, to_frame_line, step;
  logic active, row_ends, part_ends, new_run;
  logic [28:0] behind_row;

  // the smallest of four
  assign to_line = 7'd64 - {1'b0, address[5:0]};
  assign to_frame_line = 7'd64 - {1'b0, place[5:0]};
  always_comb begin
    step = to_line < to_frame_line ? to_line : to_frame_line;
    if (left_of_row < size_t'(step)) step = 7'(left_of_row);
    if (left < 13'(step)) step = 7'(left);
  end
  assign row_ends = left_of_row == size_t'(step);
  assign part_ends = left == 13'(step);

  always_ff @(posedge clk) begin
    if (active && (!piece_valid || piece_ready)) begin
      piece_valid <= 1'b1;
      frame_line <= place[12:6];
      frame_byte <= place[5:0];
      memory_line <= 21'(address >> 6);
      memory_byte <= address[5:0];
      count <= step;
      ends_line <= step == to_frame_line;
      ends_part <= part_ends;
      starts_run <= new_run;
      ends_run <= row_ends || part_ends;
      behind <= behind_t'(behind_row - {2'd0, address[26:6], 6'd0});
      new_run <= row_ends;
      active <= !part_ends;
      place <= place + 13'(step);
      left <= left - 13'(step);
      address <= row_ends ? start_of_row + stride : address + size_t'(step);
      left_of_row <= row_ends ? width : left_of_row - size_t'(step);
      next_byte <= row_ends ? '0 : next_byte + size_t'(step);
      if (row_ends) begin
        start_of_row <= start_of_row + stride;
        behind_row <= behind_row + 29'(slack);
        next_row <= next_row + 5'd1;
      end
    end else if (piece_ready) piece_valid <= 1'b0;
    if (start) begin
      active <= 1'b1;
      new_run <= 1'b1;
      behind_row <= behind_start;
      place <= 13'(HEADER_BYTES);
      left <= part_bytes;
      start_of_row <= row_start;
      address <= row_start + at_byte;
      left_of_row <= width - at_byte;
      next_row <= row;
      next_byte <= at_byte;
    end
    if (rst) {active, piece_valid} <= 2'b00;
  end
endmodule
