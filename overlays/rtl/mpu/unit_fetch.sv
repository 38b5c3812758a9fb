// SPDX-License-Identifier: Apache-2.0
// Asks memory for lines in the order in which the lanes need them: for each stripe of columns, round by
// round, one unit of 32 columns of each segment, at last the bias. The rows of x go first, where the command
// has been started; of one that was only announced the stream buffer is filled. A round
// fills one side of the stream buffer and starts when that side is free. No unit's lines cross into
// another block. One run of lines is found while the one before it is read. Units of 4-bit blocks come
// in three runs, for w4_unpack: values, scales of the group, zero points of the block.
module unit_fetch
  import mpu_types::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        start,    // one cycle: the rows' x and all stripes
    input  command_t    command,
    input  logic [31:0] x_line,   // of the first of these rows
    input  logic        read_x,   // x may be read: the command has been started
    input  logic [3:0]  rows,     // how many of them
    input  logic [31:0] stripes,
    input  logic [2:0]  stripes_log,  // of a tile of 32 columns, as a shift
    // table of blocks
    input  logic        blocks_ready,
    output logic        blocks_next,
    output logic [7:0]  block,
    input  logic [5:0]  block_bank,
    input  logic [31:0] block_line,
    // memory
    output logic        read_valid,
    input  logic        read_ready,
    output logic [5:0]  read_bank,
    output logic [31:0] read_line,
    output logic [15:0] read_tag,
    input  logic        x_valid,       // a line of x is here
    input  logic        stored_valid,  // a line of the stream buffer is written, on this side
    input  logic        stored_side,
    // units for w4_unpack
    output logic        unit_valid,
    output logic [3:0]  unit_where,
    output logic [1:0]  unit_group,
    input  logic        unit_free,
    // the lanes' side
    input  logic        round_free,   // one cycle: the older side has been read
    output logic [1:0]  round_ready,  // this side is complete
    output logic        x_ready
);
  typedef struct packed {
    line_kind_t  kind;
    logic [5:0]  bank;
    logic [31:0] line;
    logic [10:0] count;
    logic [3:0]  row;    // of x
    logic [9:0]  where;  // as in the tag
  } run_t;
  typedef enum logic [3:0] {IDLE, TABLE, SIDE, LOOK, FOUND, SCALES, ZEROS, BIAS, ROUND} state_t;

  state_t state;
  logic [10:0] units, unit, unit_end, rounds, round;
  logic [2:0] segment;
  logic [31:0] stripe, row_line;
  logic [3:0] row;
  logic side, free_side, room;
  logic [1:0] taken;     // sides that are being filled or read
  logic [1:0] finished;  // sides whose runs have all been found
  logic [1:0][10:0] waiting;  // lines found, not yet here
  logic [15:0] x_waiting;
  logic last_round, last_stripe;
  logic [15:0] rest;

  assign units = 11'((command.k + 16'd31) >> 5);
  assign rounds = (units + 11'd7) >> 3;
  assign unit = segment_start({1'b0, segment}, units) + round;
  assign unit_end = segment_start({1'b0, segment} + 4'd1, units);
  assign block = 8'(unit >> 2);
  assign rest = command.k - {unit, 5'd0};
  assign last_round = round + 11'd1 == rounds;
  assign last_stripe = stripe + 32'd1 == stripes;
  assign x_ready = read_x && row == rows && x_waiting == 16'd0;
  for (genvar s = 0; s < 2; s++) begin : ready
    assign round_ready[s] = finished[s] && waiting[s] == 11'd0;
  end

  // the run that was found, and the one that is being read
  run_t found, run;
  logic found_valid, take, push, sent;
  assign read_valid = run.count != 11'd0;
  assign read_bank = run.bank;
  assign read_line = run.line;
  assign read_tag = {run.kind, run.row, run.where};
  assign sent = read_valid && read_ready;
  assign take = found_valid && (run.count == 11'd0 || (sent && run.count == 11'd1));
  logic finds;  // a run, in this state
  logic asks_x, push_x, room_for_run;  // rows of x go first
  assign asks_x = read_x && row != rows;
  always_comb begin
    unique case (state)
      SCALES, ZEROS, BIAS: finds = 1'b1;
      FOUND: finds = !command.four_bit || unit_free;
      default: finds = 1'b0;
    endcase
  end
  assign room_for_run = !found_valid || take;
  assign push_x = asks_x && room_for_run;
  assign push = finds && !asks_x && room_for_run;
  assign unit_valid = push && state == FOUND && command.four_bit;
  assign unit_where = {side, segment};
  assign unit_group = 2'(unit[1:0] >> command.group_log);

  run_t made;
  always_comb begin
    made = '{kind: LINE_X, bank: command.x_bank, line: row_line, count: units, row: row, where: 10'd0};
    if (!asks_x && state == FOUND) begin
      made.kind = LINE_WEIGHTS;
      made.bank = block_bank;
      made.line = block_line + {25'd0, unit[1:0], 5'd0};
      made.count = rest > 16'd32 ? 11'd32 : rest[10:0];
      made.where = {1'b0, side, segment, 5'd0};
      if (command.four_bit) begin
        made.kind = LINE_4_BIT;
        made.line = block_line + {27'd0, unit[1:0], 3'd0};
        made.count = 11'd8;
        made.where = {5'd0, room, 4'd0};
      end
    end
    if (!asks_x && (state == SCALES || state == ZEROS)) begin
      made.kind = LINE_4_BIT;
      made.bank = block_bank;
      made.line = block_line + VALUE_LINES +
          (state == SCALES ? {30'd0, unit_group} : {29'd0, scale_lines(command.group_log)});
      made.count = 11'd1;
      made.where = {5'd0, room, state == SCALES ? 4'd8 : 4'd9};
    end
    if (!asks_x && state == BIAS) begin
      made.kind = LINE_BIAS;
      made.bank = command.bias_bank;
      made.line = command.bias_line + (stripe >> stripes_log);
      made.count = 11'd1;
      made.where = {1'b0, side, 6'd0, stripe[1:0]};
    end
  end

  logic [10:0] lines;  // of the stream buffer, that this run makes
  always_comb begin
    lines = 11'd0;
    if (push && (state == FOUND || state == BIAS)) lines = made.count;
    if (push && state == FOUND && command.four_bit) lines = 11'd32;
  end

  always_ff @(posedge clk) begin
    if (sent) begin
      run.count <= run.count - 11'd1;
      run.line <= run.line + 32'd1;
      run.where <= run.where + 10'd1;
    end
    if (take) run <= found;
    if (push || push_x) found <= made;
    found_valid <= push || push_x || (found_valid && !take);
    for (int s = 0; s < 2; s++) begin
      waiting[s] <= waiting[s] + (side == s[0] ? lines : 11'd0) -
                    {10'd0, stored_valid && stored_side == s[0]};
    end
    x_waiting <= x_waiting + (push_x ? {5'd0, units} : 16'd0) -
                 {15'd0, x_valid};
    if (rst) begin
      run.count <= 11'd0;
      found_valid <= 1'b0;
      waiting <= '0;
      x_waiting <= 16'd0;
    end
  end

  always_ff @(posedge clk) begin
    blocks_next <= 1'b0;
    if (push_x) begin
      row <= row + 4'd1;
      row_line <= row_line + command.x_stride;
    end
    if (round_free) begin
      taken[free_side] <= 1'b0;
      finished[free_side] <= 1'b0;
      free_side <= !free_side;
    end
    unique case (state)
      TABLE: if (blocks_ready && !blocks_next) state <= SIDE;
      SIDE:
      if (!taken[side]) begin
        taken[side] <= 1'b1;
        state <= LOOK;
      end
      LOOK:  // the table answers in the next cycle
      if (unit < unit_end) state <= FOUND;
      else begin
        segment <= segment + 3'd1;
        if (segment == 3'd7) state <= last_round && command.has_bias ? BIAS : ROUND;
      end
      FOUND:
      if (push && command.four_bit) state <= SCALES;
      else if (push) begin
        segment <= segment + 3'd1;
        state <= segment != 3'd7 ? LOOK : last_round && command.has_bias ? BIAS : ROUND;
      end
      SCALES: if (push) state <= ZEROS;
      ZEROS:
      if (push) begin
        room <= !room;
        segment <= segment + 3'd1;
        state <= segment != 3'd7 ? LOOK : last_round && command.has_bias ? BIAS : ROUND;
      end
      BIAS: if (push) state <= ROUND;
      ROUND: begin
        finished[side] <= 1'b1;
        side <= !side;
        round <= last_round ? 11'd0 : round + 11'd1;
        state <= SIDE;
        if (last_round) begin
          stripe <= stripe + 32'd1;
          blocks_next <= 1'b1;
          state <= last_stripe ? IDLE : TABLE;
        end
      end
      default: ;
    endcase
    if (start) begin
      state <= TABLE;
      row <= 4'd0;
      row_line <= x_line;
      round <= 11'd0;
      stripe <= 32'd0;
      segment <= 3'd0;
      side <= 1'b0;
      free_side <= 1'b0;
      room <= 1'b0;
      taken <= 2'b00;
      finished <= 2'b00;
    end
    if (rst) begin
      state <= IDLE;
      blocks_next <= 1'b0;
      taken <= 2'b00;
      finished <= 2'b00;
    end
  end
endmodule
