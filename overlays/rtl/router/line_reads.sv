// SPDX-License-Identifier: Apache-2.0
// Lines of memory in the order in which they were asked for, though they may come in any; a note goes with each. A line that
// is asked for twice in turn is read once.
module line_reads #(
    parameter int DEPTH_BITS = 3,
    parameter int NOTE_BITS = 1
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  fresh,      // one cycle: what was read before may be other bytes now
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
  // Lines have places until a note behind theirs is taken; so the last one is there when it is asked for again.
  localparam int DEPTH = 1 << DEPTH_BITS;  // of lines; notes: twice as many
  typedef logic [DEPTH_BITS:0] place_t;
  typedef struct packed {
    place_t               place;  // of its line
    logic [NOTE_BITS-1:0] note;
  } entry_t;
  logic [511:0] lines[DEPTH];
  entry_t entries[2*DEPTH], head;
  logic [DEPTH-1:0] came;
  logic [DEPTH_BITS+1:0] asked, taken;  // notes
  place_t lines_asked, oldest, place;
  logic [20:0] last_line;
  logic known, again, asks, full, lines_full;
  assign full = asked - taken == (DEPTH_BITS + 2)'(2 * DEPTH);
  assign lines_full = lines_asked - oldest == (DEPTH_BITS + 1)'(DEPTH);
  assign again = known && ask_line == last_line;
  assign read_valid = ask_valid && !full && !again && !lines_full;
  assign ask_ready = !full && (again || (read_ready && !lines_full));
  assign asks = ask_valid && ask_ready;
  assign place = again ? lines_asked - 1'b1 : lines_asked;
  assign read_line = ask_line;
  assign read_tag = lines_asked[DEPTH_BITS-1:0];
  assign head = entries[taken[DEPTH_BITS:0]];
  assign out_valid = came[head.place[DEPTH_BITS-1:0]] && asked != taken;
  assign out_data = lines[head.place[DEPTH_BITS-1:0]];
  assign out_note = head.note;

  always_ff @(posedge clk) begin
    if (line_valid) begin
      lines[line_tag] <= line_data;
      came[line_tag] <= 1'b1;
    end
    if (asks) begin
      entries[asked[DEPTH_BITS:0]] <= '{place: place, note: ask_note};
      asked <= asked + 1'b1;
      if (!again) begin
        came[lines_asked[DEPTH_BITS-1:0]] <= 1'b0;
        lines_asked <= lines_asked + 1'b1;
      end
      known <= 1'b1;
      last_line <= ask_line;
    end
    if (out_valid && out_ready) begin
      taken <= taken + 1'b1;
      oldest <= head.place;
    end
    if (fresh) known <= 1'b0;
    if (rst) begin
      {asked, taken, lines_asked, oldest} <= '0;
      known <= 1'b0;
    end
  end
endmodule
