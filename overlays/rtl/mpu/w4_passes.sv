// SPDX-License-Identifier: Apache-2.0
// Says which pass w4_segments makes next: a part into its segment, an empty segment, or a step of the
// tree of docs/numbers.md, 2.2, as soon as both its sums are there.
module w4_passes
  import mpu_types::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        start,  // one cycle: of all tiles
    input  command_t    command,
    input  logic        part_waiting,     // the oldest part's sums are there
    input  logic        part_segment_end,
    output logic        part_done,        // one cycle: its sums have been read
    input  logic        total_free,       // the side that the next totals go to
    output logic        total_made,       // one cycle: totals of a tile are there
    output pass_t       pass
);
  logic [3:0] segment;
  logic [2:0] slot;
  logic [1:0] level;   // of the tree: joins this segment's end has made
  logic active, joining, empty, running;
  logic segment_first;  // its first part comes next
  logic [10:0] units;
  pass_t next;
  assign units = 11'((command.k + 16'd31) >> 5);
  assign empty = segment_start(segment, units) == segment_start(segment + 4'd1, units);

  // the pass that begins now
  logic begins, take_part, ends_segment;
  always_comb begin
    next = '0;
    take_part = 1'b0;
    ends_segment = 1'b0;
    if (joining) begin
      next.join_sums = 1'b1;
      next.a = level == 2'd0 ? SUM_ONE : level == 2'd1 ? SUM_TWO : SUM_FOUR;
      next.valid = level != 2'd2 || total_free;
      next.is_total = level == 2'd2;
    end else if (empty) begin
      next.empty = 1'b1;
      next.first = 1'b1;
      next.valid = 1'b1;
      ends_segment = 1'b1;
    end else if (part_waiting) begin
      next.first = segment_first;
      next.valid = 1'b1;
      take_part = 1'b1;
      ends_segment = part_segment_end;
    end
    // what the tree waits for is kept; else it goes on with the sum
    next.to = SUM_NOW;
    if (joining) begin
      if (level == 2'd0 && !segment[1]) next.to = SUM_TWO;
      if (level == 2'd1 && !segment[2]) next.to = SUM_FOUR;
    end else if (ends_segment && !segment[0]) next.to = SUM_ONE;
    if (!active || segment == 4'd8) next.valid = 1'b0;
  end
  pass_t current;
  logic part_pass;
  assign begins = next.valid && (!running || slot == 3'd7);
  always_comb begin
    pass = begins ? next : current;
    pass.valid = begins || (running && slot != 3'd7);
    pass.slot = begins ? 3'd0 : slot + 3'd1;
  end
  assign part_done = part_pass && running && slot == 3'd6;  // the last slot is read in this cycle
  always_ff @(posedge clk) begin
    slot <= pass.slot;
    running <= pass.valid;
    total_made <= 1'b0;
    if (begins) begin
      current <= next;
      part_pass <= take_part;
      if (joining) begin
        level <= level + 2'd1;
        if (level == 2'd0) joining <= segment[1];
        if (level == 2'd1) joining <= segment[2];
        if (level == 2'd2) joining <= 1'b0;
        if (level == 2'd2 || (level == 2'd1 && !segment[2]) || (level == 2'd0 && !segment[1])) begin
          segment <= segment == 4'd7 ? 4'd0 : segment + 4'd1;
          segment_first <= 1'b1;
        end
        total_made <= level == 2'd2;
      end else begin
        segment_first <= 1'b0;
        if (ends_segment) begin
          level <= 2'd0;
          joining <= segment[0];
          if (!segment[0]) begin
            segment <= segment + 4'd1;
            segment_first <= 1'b1;
          end
        end
      end
    end
    if (start) begin
      active <= command.four_bit;
      segment <= 4'd0;
      segment_first <= 1'b1;
      joining <= 1'b0;
      running <= 1'b0;
    end
    if (rst) begin
      active <= 1'b0;
      running <= 1'b0;
      total_made <= 1'b0;
    end
  end
endmodule
