// SPDX-License-Identifier: Apache-2.0
// Reads blocks from a channel's buffer, a line a cycle, and says what each line is for. A sum is a whole column of W8A8, or
// a part of a group of W4A8: what lies in one group and in one segment (docs/numbers.md, 6.2 and 6.3). Within a block zero
// points and scales come first, which lie behind the values in memory: so a block begins when all of it is there, and its x.
// A sum begins when there is room for its result.
// Reset: `rst` ends a pass. Assumes: `start` while not busy; `work` holds while busy and has tiles.
module channel_schedule
  import mpu_types::*;
  import channel_types::*;
#(
    parameter int LINES = 4096  // of the buffer
) (
    input  logic                   clk,
    input  logic                   rst,
    input  logic                   start,  // one cycle: all tiles of a pass
    /* verilator lint_off UNUSEDSIGNAL */
    input  work_t                  work,
    /* verilator lint_on UNUSEDSIGNAL */
    output logic                   busy,
    input  logic [$clog2(LINES):0] level,  // lines that are there
    input  logic                   x_whole,  // x of all blocks, else of the first ones
    output logic                   block_done,
    input  logic                   sum_free,  // one cycle: the oldest sum has been used
    // what is read in this cycle
    output logic [6:0]             offset,  // in the block
    output logic [8:0]             x_address,
    output line_use_t              line_use
);
  typedef enum logic [1:0] {WAIT, ZEROS, SCALES, WEIGHTS} state_t;
  state_t state;
  logic [19:0] tiles_left;
  logic [7:0] block, last_block;
  logic [5:0] line;   // of the block's weights
  logic [6:0] lines;  // the block's
  logic [SUMS_LOG-1:0] sum;
  logic [SUMS_LOG:0] sums;  // under way
  logic sum_open;           // has begun
  logic sum_first;          // of a part: these lines are its first pair
  logic [10:0] units, unit;  // unit: of W4A8
  logic [13:0] border;       // eight times the segment's end, (segment + 1) * units
  logic [15:0] rest;
  logic room, begins, part_end, segment_end, last_pair, group_end, issue, one_here, two_here, x_here, x_next_here;
  logic [5:0] x_blocks;
  logic [1:0] group;

  assign units = 11'((work.k + 16'd31) >> 5);
  assign last_block = 8'((work.k - 16'd1) >> 7);
  assign rest = work.k - {1'b0, block, 7'd0};
  assign lines = work.four_bit ? (rest >= 16'd128 ? 7'd32 : {2'd0, rest[6:5], 3'd0})
      : rest >= 16'd128 ? 7'd64 : {6'(({1'b0, rest[6:0]} + 8'd3) >> 2), 1'b0};
  assign room = sums != (SUMS_LOG+1)'(2 ** SUMS_LOG);
  assign unit = {1'b0, block, line[4:3]};
  assign group = 2'(line[4:3] >> work.group_log);
  // whether unit + 1 begins another group
  assign group_end = work.group_log == 2'd0 || (work.group_log == 2'd1 ? line[3] : line[4:3] == 2'd3);
  assign segment_end = unit + 11'd1 == border[13:3];
  assign part_end = group_end || segment_end;
  assign last_pair = work.four_bit ? part_end && line[2:1] == 2'd3
      : block == last_block && {1'b0, line[5:1]} + 6'd1 == lines[6:1];
  assign begins = state == (work.four_bit ? SCALES : WEIGHTS) && !sum_open;
  assign issue = busy && state != WAIT && (!begins || room);
  assign block_done = issue && state == WEIGHTS && {1'b0, line} + 7'd1 == lines;
  assign one_here = 32'(level) >= 32'(work.block_lines);
  assign two_here = 32'(level) >= {24'd0, work.block_lines, 1'b0};
  assign x_here = x_whole || block < {2'd0, x_blocks};
  assign x_next_here = x_whole || block + 8'd1 < {2'd0, x_blocks};
  assign x_address = work.four_bit ? {block, line[4]} : {block, line[5]};
  assign offset = state == ZEROS ? 7'd32 + {4'd0, scale_lines(work.group_log)}
      : state == SCALES ? {5'b01000, group} : {1'b0, line};

  always_comb begin
    line_use = '0;
    line_use.half = line[0];
    line_use.sum = sum;
    line_use.group = group;
    line_use.x_part = line[4:1];
    line_use.x_keep = {rest > {9'd0, line[5:1], 2'd3}, rest > {9'd0, line[5:1], 2'd2},
                       rest > {9'd0, line[5:1], 2'd1}, 1'b1};
    line_use.last = last_pair;
    line_use.segment_end = segment_end;
    line_use.first = work.four_bit ? sum_first : block == 8'd0 && line[5:1] == 5'd0;
    line_use.take = !issue ? TAKE_NOTHING : state == ZEROS ? TAKE_ZEROS : state == SCALES ? TAKE_SCALES : TAKE_WEIGHTS;
  end

  logic sum_begins, sum_ends, tile_done;
  state_t block_state;  // that a block begins with
  assign sum_begins = issue && begins;
  assign sum_ends = issue && state == WEIGHTS && line[0] && last_pair;
  assign tile_done = block_done && block == last_block;
  assign block_state = work.four_bit ? ZEROS : WEIGHTS;
  always_ff @(posedge clk) begin
    x_blocks <= x_head_blocks(work.k);
    sums <= sums + {{SUMS_LOG{1'b0}}, sum_begins} - {{SUMS_LOG{1'b0}}, sum_free};
    if (sum_begins) sum_open <= 1'b1;
    if (issue && state == SCALES) sum_first <= 1'b1;
    if (issue && state == WEIGHTS && line[0]) sum_first <= 1'b0;
    case (state)
      WAIT: if (busy && one_here && x_here) state <= block_state;
      ZEROS: if (issue) state <= SCALES;
      SCALES: if (issue) state <= WEIGHTS;
      default:
      if (issue) begin
        line <= line + 6'd1;
        if (sum_ends) begin
          sum_open <= 1'b0;
          sum <= sum + 1'b1;
          if (work.four_bit) state <= SCALES;
        end
        if (block_done) begin
          line <= 6'd0;
          block <= tile_done ? 8'd0 : block + 8'd1;
          state <= two_here && x_next_here ? block_state : WAIT;
        end
      end
    endcase
    // on to the next segment, and over empty ones
    if (work.four_bit && busy) begin
      if (issue && state == WEIGHTS && segment_end && line[2:0] == 3'd7) border <= border + {3'd0, units};
      else if (border[13:3] <= unit) border <= border + {3'd0, units};
    end
    if (tile_done) begin
      border <= {3'd0, units};
      tiles_left <= tiles_left - 20'd1;
      if (tiles_left == 20'd1) begin
        busy <= 1'b0;
        state <= WAIT;
      end
    end
    if (start) begin
      busy <= 1'b1;
      state <= WAIT;
      tiles_left <= work.tiles;
      block <= 8'd0;
      line <= 6'd0;
      sum <= '0;
      sum_open <= 1'b0;
      border <= {3'd0, units};
    end
    if (rst) begin
      busy <= 1'b0;
      state <= WAIT;
      sums <= '0;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) if (!rst) begin
    assert (!start || !busy) else $fatal(1, "a pass begins within another");
    assert (!start || work.tiles != 20'd0) else $fatal(1, "a pass without tiles");
    assert (!start || sums == '0) else $fatal(1, "a pass begins before sums of the last one have been used");
    assert (!sum_free || sums != '0) else $fatal(1, "a sum is freed that is not there");
    assert (!busy || !work.four_bit || line[2:0] < 3'd6 || border[13:3] > unit)
    else $fatal(1, "a segment ends before its unit");
  end
`endif
endmodule
