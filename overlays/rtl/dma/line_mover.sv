// SPDX-License-Identifier: Apache-2.0
// Moves pieces: reads each line once, turns it to where it goes, and writes a line when nothing more goes into it.
// Lines may come back in any order; pieces are moved in theirs. With `sums` a piece's bytes are given out instead.
module line_mover
  import router_types::bytes_from;
  import router_types::only;
  import router_types::turn;
  import dma_types::*;
#(
    parameter int DEPTH_BITS = 6
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  piece_valid,
    output logic                  piece_ready,
    input  piece_t                piece,
    output logic                  idle,
    output logic                  sum_valid,
    output logic [511:0]          sum_line,   // zero besides the piece
    // memory
    output logic                  read_valid,
    input  logic                  read_ready,
    output bank_t                 read_bank,
    output logic [31:0]           read_line,
    output logic [DEPTH_BITS-1:0] read_tag,
    input  logic                  line_valid,
    input  logic [DEPTH_BITS-1:0] line_tag,
    input  logic [511:0]          line_data,
    output logic                  write_valid,
    input  logic                  write_ready,
    output bank_t                 write_bank,
    output logic [31:0]           write_line,
    output logic [63:0]           write_bytes,
    output logic [511:0]          write_data
);
  localparam int DEPTH = 1 << DEPTH_BITS;
  typedef logic [DEPTH_BITS:0] count_t;
  typedef struct packed {
    bank_t       bank;
    logic [31:0] line;
    logic [5:0]  place;
    logic [5:0]  by;
    logic [6:0]  count;
    logic        new_line;
    logic        closes;
    logic        sums;
  } note_t;

  // --- asked for -------------------------------------------------------------------------------------
  note_t notes[DEPTH];
  note_t head;
  logic [511:0] lines[DEPTH];
  logic [DEPTH-1:0] came;
  count_t noted, moved, asked, taken;
  logic room, push, pop;
  assign room = noted - moved != count_t'(DEPTH) && asked - taken != count_t'(DEPTH);
  assign read_valid = piece_valid && piece.new_line && room;
  assign read_bank = piece.from_bank;
  assign read_line = piece.from_line;
  assign read_tag = asked[DEPTH_BITS-1:0];
  assign piece_ready = room && (!piece.new_line || read_ready);
  assign push = piece_valid && piece_ready;
  always_ff @(posedge clk) begin
    if (line_valid) begin
      lines[line_tag] <= line_data;
      came[line_tag] <= 1'b1;
    end
    if (push) begin
      notes[noted[DEPTH_BITS-1:0]] <= '{
          bank: piece.to_bank,
          line: piece.to_line,
          place: piece.to_byte,
          by: piece.to_byte - piece.from_byte,
          count: piece.count,
          new_line: piece.new_line,
          closes: piece.closes,
          sums: piece.sums
      };
      noted <= noted + 1'b1;
      if (piece.new_line) begin
        came[asked[DEPTH_BITS-1:0]] <= 1'b0;
        asked <= asked + 1'b1;
      end
    end
    if (pop) begin
      moved <= moved + 1'b1;
      if (head.new_line) taken <= taken + 1'b1;
    end
    if (rst) {noted, moved, asked, taken} <= '0;
  end

  // --- moved -----------------------------------------------------------------------------------------
  note_t now;
  logic [511:0] line, made;
  logic [63:0] bytes, open_bytes;
  logic [511:0] open_data;  // what is there of a line that more goes into
  logic valid, leaves;
  assign head = notes[moved[DEPTH_BITS-1:0]];
  assign pop = noted != moved && (!head.new_line || came[taken[DEPTH_BITS-1:0]]) && (!valid || leaves);
  assign leaves = now.sums || !now.closes || !write_valid || write_ready;
  assign bytes = bytes_from(now.place, now.count);
  assign made = only(turn(line, now.by), bytes);
  assign sum_valid = valid && now.sums;
  assign sum_line = made;
  assign idle = noted == moved && !valid && !write_valid;
  always_ff @(posedge clk) begin
    if (write_ready) write_valid <= 1'b0;
    if (valid && leaves) begin
      valid <= 1'b0;
      if (!now.sums) begin
        open_bytes <= open_bytes | bytes;
        open_data <= open_data | made;
        if (now.closes) begin
          write_valid <= 1'b1;
          write_bank <= now.bank;
          write_line <= now.line;
          write_bytes <= open_bytes | bytes;
          write_data <= open_data | made;
          open_bytes <= '0;
          open_data <= '0;
        end
      end
    end
    if (pop) begin
      valid <= 1'b1;
      now <= head;
      if (head.new_line) line <= lines[taken[DEPTH_BITS-1:0]];
    end
    if (rst) begin
      {valid, write_valid} <= 2'b00;
      open_bytes <= '0;
      open_data <= '0;
    end
  end
endmodule
