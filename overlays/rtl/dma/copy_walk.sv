// SPDX-License-Identifier: Apache-2.0
// Cuts rows of bytes into pieces that lie in one line where they come from and in one where they go.
module copy_walk
  import dma_types::*;
(
    input  logic   clk,
    input  logic   rst,
    input  logic   copy_valid,
    output logic   copy_ready,
    input  copy_t  copy,
    output logic   piece_valid,
    input  logic   piece_ready,
    output piece_t piece,
    output logic   idle
);
  copy_t told;
  logic active, fresh;
  address_t from, to, row_from, row_to;  // backward: behind the bytes that are left
  logic [31:0] left, line_before;
  logic [16:0] rows_left;
  logic [6:0] from_room, to_room, count;
  address_t piece_from, piece_to, next_row_to;
  logic row_ends, all_ends, another_line;

  function automatic logic [6:0] room(input logic [5:0] byte_of_line, input logic backward);
    if (backward && byte_of_line == 6'd0) return 7'd64;
    return backward ? {1'b0, byte_of_line} : 7'd64 - {1'b0, byte_of_line};
  endfunction
  assign from_room = room(from[5:0], told.backward);
  assign to_room = room(to[5:0], told.backward);
  always_comb begin
    count = from_room < to_room ? from_room : to_room;
    if (left < {25'd0, count}) count = left[6:0];
  end
  assign piece_from = told.backward ? from - 38'(count) : from;
  assign piece_to = told.backward ? to - 38'(count) : to;
  assign next_row_to = row_to + 38'(told.to_step);
  assign row_ends = left == 32'(count);
  assign all_ends = row_ends && rows_left == 17'd1;
  assign another_line = row_ends ? next_row_to[37:6] != piece_to[37:6] : count == to_room;

  assign copy_ready = !active;
  assign idle = !active && !piece_valid;
  always_ff @(posedge clk) begin
    if (active && (!piece_valid || piece_ready)) begin
      piece_valid <= 1'b1;
      piece <= '{
          from_bank: told.from_bank,
          from_line: piece_from[37:6],
          from_byte: piece_from[5:0],
          to_bank: told.to_bank,
          to_line: piece_to[37:6],
          to_byte: piece_to[5:0],
          count: count,
          new_line: fresh || piece_from[37:6] != line_before,
          closes: all_ends || another_line,
          sums: told.sums
      };
      fresh <= 1'b0;
      line_before <= piece_from[37:6];
      from <= told.backward ? piece_from : from + 38'(count);
      to <= told.backward ? piece_to : to + 38'(count);
      left <= left - 32'(count);
      active <= !all_ends;
      if (row_ends) begin
        rows_left <= rows_left - 17'd1;
        left <= told.bytes;
        row_from <= row_from + 38'(told.from_step);
        row_to <= next_row_to;
        from <= row_from + 38'(told.from_step);
        to <= next_row_to;
      end
    end else if (piece_ready) piece_valid <= 1'b0;
    if (copy_valid && copy_ready) begin
      told <= copy;
      active <= copy.rows != 17'd0 && copy.bytes != 32'd0;
      fresh <= 1'b1;
      from <= copy.backward ? copy.from + 38'(copy.bytes) : copy.from;
      to <= copy.backward ? copy.to + 38'(copy.bytes) : copy.to;
      row_from <= copy.from;
      row_to <= copy.to;
      left <= copy.bytes;
      rows_left <= copy.rows;
    end
    if (rst) {active, piece_valid} <= 2'b00;
  end
endmodule
