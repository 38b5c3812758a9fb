// SPDX-License-Identifier: Apache-2.0
// Reads blocks from the stream buffer, a line a cycle, and says what each line is for. A sum is a whole
// column of W8A8, or a part of a group of W4A8: what lies in one group and in one segment
// (docs/numbers.md, 6.2 and 6.3). A sum begins when there is room for its result.
module integer_schedule
  import mpu_types::*;
(
    input  logic                      clk,
    input  logic                      rst,
    input  logic                      start,  // one cycle: all tiles
    input  command_t                  command,
    input  logic [31:0]               tiles,
    output logic                      busy,
    input  logic [2**BLOCKS_LOG-1:0]  slot_ready,
    output logic                      slot_free,
    input  logic                      sum_free,  // one cycle: the oldest sum has been used
    // addresses: data is there one cycle later, and so is `use_next`
    output logic [BLOCKS_LOG+5:0]     stream_address,
    output logic [8:0]                x_address,
    output line_use_t                 use_next
);
  typedef enum logic [2:0] {IDLE, WAIT, ZEROS, SCALES, WEIGHTS} state_t;
  state_t state;
  logic [31:0] tile;
  logic [7:0] block, last_block;
  logic [BLOCKS_LOG-1:0] slot;
  logic [5:0] line;   // of the block's weights
  logic [6:0] lines;  // the block's
  logic [SUMS_LOG-1:0] sum;
  logic [SUMS_LOG:0] sums;  // under way
  logic sum_open;           // has begun
  logic sum_first;          // of a part: these lines are its first pair
  logic [10:0] units, unit;  // unit: of W4A8
  logic [3:0] segment;
  logic [15:0] rest;
  logic room, begins, block_done, part_end, segment_end, last_pair, group_end, issue;
  logic [1:0] group;
  line_use_t now;

  assign units = 11'((command.k + 16'd31) >> 5);
  assign last_block = 8'((command.k - 16'd1) >> 7);
  assign rest = command.k - {1'b0, block, 7'd0};
  assign lines = command.four_bit ? (rest >= 16'd128 ? 7'd32 : {2'd0, rest[6:5], 3'd0})
      : rest >= 16'd128 ? 7'd64 : {6'(({1'b0, rest[6:0]} + 8'd3) >> 2), 1'b0};
  assign room = sums != (SUMS_LOG+1)'(2 ** SUMS_LOG);
  assign unit = {1'b0, block, line[4:3]};
  assign group = 2'(line[4:3] >> command.group_log);
  // whether unit + 1 begins another group
  assign group_end = command.group_log == 2'd0 || (command.group_log == 2'd1 ? line[3] : line[4:3] == 2'd3);
  assign segment_end = unit + 11'd1 == segment_start(segment + 4'd1, units);
  assign part_end = group_end || segment_end;
  assign last_pair = command.four_bit ? part_end && line[2:1] == 2'd3
      : block == last_block && {1'b0, line[5:1]} + 6'd1 == lines[6:1];
  assign begins = state == (command.four_bit ? SCALES : WEIGHTS) && !sum_open;
  assign issue = (state == ZEROS || state == SCALES || state == WEIGHTS) && (!begins || room);
  assign block_done = issue && state == WEIGHTS && {1'b0, line} + 7'd1 == lines;
  assign slot_free = block_done;
  assign busy = state != IDLE;
  assign x_address = command.four_bit ? {block, line[4]} : {block, line[5]};
  assign stream_address = {slot, state == ZEROS ? 6'd32 + {3'd0, scale_lines(command.group_log)}
      : state == SCALES ? {4'b1000, group} : line};

  always_comb begin
    now = '0;
    now.half = line[0];
    now.sum = sum;
    now.group = group;
    now.x_part = line[4:1];
    now.x_keep = {rest > {9'd0, line[5:1], 2'd3}, rest > {9'd0, line[5:1], 2'd2},
                  rest > {9'd0, line[5:1], 2'd1}, 1'b1};
    now.last = last_pair;
    now.segment_end = segment_end;
    now.first = command.four_bit ? sum_first : block == 8'd0 && line[5:1] == 5'd0;
    if (issue) begin
      now.take = state == ZEROS ? TAKE_ZEROS : state == SCALES ? TAKE_SCALES : TAKE_WEIGHTS;
    end
  end

  logic sum_begins, sum_ends;
  assign sum_begins = issue && begins;
  assign sum_ends = issue && state == WEIGHTS && line[0] && last_pair;
  always_ff @(posedge clk) begin
    use_next <= now;
    sums <= sums + {{SUMS_LOG{1'b0}}, sum_begins} - {{SUMS_LOG{1'b0}}, sum_free};
    if (sum_begins) sum_open <= 1'b1;
    if (issue && state == SCALES) sum_first <= 1'b1;
    if (issue && state == WEIGHTS && line[0]) sum_first <= 1'b0;
    unique case (state)
      WAIT:
      if (tile == tiles) state <= IDLE;
      else if (slot_ready[slot]) state <= command.four_bit ? ZEROS : WEIGHTS;
      ZEROS: state <= SCALES;
      SCALES: if (issue) state <= WEIGHTS;
      WEIGHTS:
      if (issue) begin
        line <= line + 6'd1;
        if (sum_ends) begin
          sum_open <= 1'b0;
          sum <= sum + 1'b1;
          if (command.four_bit) state <= SCALES;
        end
        if (command.four_bit && segment_end && line[2:0] == 3'd7) begin
          segment <= segment + 4'd1;
        end
        if (block_done) begin
          line <= 6'd0;
          slot <= slot + 1'b1;
          block <= block + 8'd1;
          state <= WAIT;
          if (slot_ready[slot+1'b1]) state <= command.four_bit ? ZEROS : WEIGHTS;
          if (block == last_block) begin
            block <= 8'd0;
            tile <= tile + 32'd1;
            segment <= 4'd0;
            if (tile + 32'd1 == tiles) state <= WAIT;
          end
        end
      end
      default: ;
    endcase
    // over empty segments
    if (command.four_bit && state != IDLE && segment != 4'd7 && !block_done) begin
      if (segment_start(segment + 4'd1, units) == segment_start(segment, units)) segment <= segment + 4'd1;
    end
    if (start) begin
      state <= WAIT;
      tile <= 32'd0;
      block <= 8'd0;
      slot <= '0;
      line <= 6'd0;
      sum <= '0;
      sums <= '0;
      sum_open <= 1'b0;
      segment <= 4'd0;
    end
    if (rst) begin
      state <= IDLE;
      sums <= '0;
      use_next.take <= TAKE_NOTHING;
    end
  end
endmodule
