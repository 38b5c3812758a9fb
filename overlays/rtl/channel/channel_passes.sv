// SPDX-License-Identifier: Apache-2.0
// Says which pass a channel's rows make next, 32 cycles of a column each: a part of W4A8 into its segment, an empty segment,
// or the sums of W8A8 as they are. Rows make the same pass. A sum is written LATENCY cycles after its slot and read 32 cycles
// after it, so passes follow each other. A segment's first part is its sum so far, so in that pass the adder is free for a
// step of the tree of docs/numbers.md, 2.2: which one, by the segment's number, says channel_row. Three steps of a tile are
// made beside the next tile's segments 0, 1 and 3; behind the last tile in passes of their own, as if those were empty.
// The last step of a tile writes totals, of which there are two sides: a finisher takes them in order, a column a cycle, and
// a side is free once its reading has begun, as writing stays behind it.
// Reset: `rst` ends what runs. Assumes: `start` when the passes before are over; `work` holds until then.
module channel_passes
  import channel_types::*;
#(
    parameter int SELECT = 2,  // cycles from a slot to its sum
    parameter int LATENCY = SELECT + PRODUCT_CYCLES + 1 + ADD_CYCLES
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         start,  // one cycle: all tiles of a pass over the weights
    /* verilator lint_off UNUSEDSIGNAL */
    input  work_t        work,
    /* verilator lint_on UNUSEDSIGNAL */
    input  logic         part_waiting,  // the oldest sums are there
    input  logic         part_segment_end,
    output logic         part_done,     // one cycle: they are read
    output column_pass_t [LATENCY:0] late,   // the pass, so many cycles later
    output logic         total_here,    // totals that can be taken
    output logic         total_side,    // the oldest
    input  logic         take,          // one cycle: their reading begins
    output logic         over           // all tiles have been taken
);
  /* verilator lint_off UNUSEDSIGNAL */
  logic [13:0] border, begin_border;  // eight times the segment's end and begin
  /* verilator lint_on UNUSEDSIGNAL */
  logic [2:0] segment;
  logic [4:0] slot;
  logic empty, running, part_pass, write_side;
  logic summing;   // tiles have segments to sum
  logic unjoined;  // the tile before has no totals yet
  logic segment_first;  // its first part comes next
  logic [10:0] units;
  logic [19:0] tiles_left, untaken;
  logic [1:0] sides_used, sides_here;
  column_pass_t pass, next, current;
  assign units = 11'((work.k + 16'd31) >> 5);
  assign empty = border[13:3] == begin_border[13:3];

  // the pass that begins now
  logic begins, take_part, ends_segment, side_free;
  assign side_free = sides_used != 2'd2;
  always_comb begin
    next = '0;
    next.side = write_side;
    next.segment = segment;
    if (work.four_bit) begin
      next.first = segment_first;
      next.empty = empty || !summing;
      next.is_total = unjoined && segment == 3'd3;
      next.valid = (summing || unjoined) && (next.empty || part_waiting) && (!next.is_total || side_free);
    end else begin
      next.integers = 1'b1;
      next.is_total = 1'b1;
      next.valid = summing && part_waiting && side_free;
    end
    take_part = !next.empty;
    ends_segment = next.empty || part_segment_end;
  end
  assign begins = next.valid && (!running || slot == 5'd31);
  always_comb begin
    pass = begins ? next : current;
    pass.valid = begins || (running && slot != 5'd31);
    pass.slot = begins ? 5'd0 : slot + 5'd1;
  end
  assign part_done = part_pass && running && slot == 5'd30;  // the last slot is read in this cycle

  logic segment_over, tile_over, total_begins;
  assign total_begins = begins && next.is_total;
  assign segment_over = begins && work.four_bit && ends_segment;
  assign tile_over = work.four_bit ? segment_over && segment == 3'd7 : begins;
  logic [LATENCY:0] begun;  // since totals began
  always_ff @(posedge clk) begin
    slot <= pass.slot;
    running <= pass.valid;
    if (begins) begin
      current <= next;
      part_pass <= take_part;
      segment_first <= ends_segment;
    end
    if (segment_over) begin
      segment <= segment + (!summing && segment == 3'd1 ? 3'd2 : 3'd1);
      begin_border <= segment == 3'd7 ? 14'd0 : border;
      border <= segment == 3'd7 ? {3'd0, units} : border + {3'd0, units};
    end
    if (tile_over) begin
      tiles_left <= tiles_left - 20'd1;
      summing <= tiles_left != 20'd1;
      unjoined <= work.four_bit;
    end
    if (total_begins) begin
      write_side <= !write_side;
      unjoined <= 1'b0;
    end
    begun <= {begun[LATENCY-1:0], total_begins};
    sides_used <= sides_used + {1'b0, total_begins} - {1'b0, take};
    sides_here <= sides_here + {1'b0, begun[LATENCY]} - {1'b0, take};
    if (take) begin
      total_side <= !total_side;
      untaken <= untaken - 20'd1;
    end
    if (start) begin
      tiles_left <= work.tiles;
      summing <= 1'b1;
      untaken <= work.tiles;
      segment <= 3'd0;
      segment_first <= 1'b1;
      begin_border <= 14'd0;
      border <= {3'd0, units};
    end
    if (rst) begin
      running <= 1'b0;
      summing <= 1'b0;
      unjoined <= 1'b0;
      untaken <= 20'd0;
      write_side <= 1'b0;
      total_side <= 1'b0;
      sides_used <= 2'd0;
      sides_here <= 2'd0;
      begun <= '0;
    end
  end
  assign total_here = sides_here != 2'd0;
  assign over = untaken == 20'd0;

  column_pass_t [LATENCY-1:0] delayed;
  always_ff @(posedge clk) begin
    delayed <= {delayed[LATENCY-2:0], pass};
    if (rst) for (int i = 0; i < LATENCY; i++) delayed[i].valid <= 1'b0;
  end
  assign late = {delayed, pass};

`ifndef SYNTHESIS
  if (LATENCY > 30) begin : too_late
    $error("a column's sum is needed 32 cycles after its slot");
  end
  always_ff @(posedge clk) if (!rst) begin
    assert (!take || total_here) else $fatal(1, "totals are taken that are not there");
    assert (!start || (over && !running && !summing && !unjoined)) else $fatal(1, "passes begin within others");
    assert (sides_here <= sides_used && sides_used <= 2'd2) else $fatal(1, "more totals than sides");
  end
`endif
endmodule
