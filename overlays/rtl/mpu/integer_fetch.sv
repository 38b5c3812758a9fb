// SPDX-License-Identifier: Apache-2.0
// Asks memory for what the integer array reads: for each column tile its scales and its bias, and its blocks
// one after another. The rows of x go first, where the command has been started; of one that was only
// announced the buffers are filled. Blocks go round the slots of the stream buffer, tiles'
// scales round two sides. One run of lines is found while the one before it is read.
module integer_fetch
  import mpu_types::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        start,   // one cycle: the rows' x and all tiles
    input  command_t    command,
    input  logic [31:0] x_line,  // of the first of these rows
    input  logic        read_x,  // x may be read: the command has been started
    input  logic [3:0]  rows,    // how many of them
    input  logic [31:0] tiles,
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
    input  logic        line_valid,
    input  logic [15:0] line_tag,
    // the array's side
    input  logic                      slot_free,    // one cycle: the oldest block has been read
    output logic [2**BLOCKS_LOG-1:0]  slot_ready,
    input  logic                      params_free,  // one cycle: the older side has been used
    output logic [1:0]                params_ready,
    output logic                      x_ready
);
  localparam int SLOTS = 2 ** BLOCKS_LOG;
  typedef struct packed {
    line_kind_t  kind;
    logic [5:0]  bank;
    logic [31:0] line;
    logic [10:0] count;
    logic [3:0]  row;    // of x
    logic [9:0]  where;  // block: slot and index; x: index; else side and index
  } run_t;
  typedef enum logic [2:0] {IDLE, TABLE, SCALES, BIAS, LOOK, FOUND} state_t;

  state_t state;
  logic [7:0] last_block;
  logic [31:0] tile, row_line, columns, scale_lines_all;
  logic [3:0] row;
  logic [BLOCKS_LOG-1:0] slot, free_slot;
  logic side, free_side, last_tile;
  logic [SLOTS-1:0] taken, complete;
  logic [1:0] side_taken, side_complete;
  logic [6:0] waiting[SLOTS];
  logic [1:0] side_waiting[2];
  logic [15:0] x_waiting, rest;
  logic [6:0] block_count;
  logic [10:0] x_lines;

  assign last_block = 8'((command.k - 16'd1) >> 7);
  assign last_tile = tile + 32'd1 == tiles;
  assign columns = command.n - {tile[26:0], 5'd0};
  assign scale_lines_all = (command.n + 32'd15) >> 4;
  assign rest = command.k - {1'b0, block, 7'd0};
  assign block_count = command.four_bit ? 7'(lines_of_block(command))
      : rest >= 16'd128 ? 7'd64 : {6'(({1'b0, rest[6:0]} + 8'd3) >> 2), 1'b0};
  assign x_lines = 11'((command.k + 16'd63) >> 6) + {10'd0, command.row_scales};
  assign x_ready = read_x && row == rows && x_waiting == 16'd0;
  for (genvar s = 0; s < SLOTS; s++) begin : slots
    assign slot_ready[s] = complete[s] && waiting[s] == 7'd0;
  end
  for (genvar s = 0; s < 2; s++) begin : sides
    assign params_ready[s] = side_complete[s] && side_waiting[s] == 2'd0;
  end

  run_t found, run, made;
  logic found_valid, take, push, sent, finds;
  logic asks_x, push_x, room_for_run;  // rows of x go first
  assign asks_x = read_x && row != rows;
  line_kind_t arrived;
  assign arrived = line_kind_t'(line_tag[15:14]);
  assign read_valid = run.count != 11'd0;
  assign read_bank = run.bank;
  assign read_line = run.line;
  assign read_tag = {run.kind, run.row, run.where};
  assign sent = read_valid && read_ready;
  assign take = found_valid && (run.count == 11'd0 || (sent && run.count == 11'd1));
  always_comb begin
    unique case (state)
      BIAS, FOUND: finds = 1'b1;
      SCALES: finds = !side_taken[side];
      default: finds = 1'b0;
    endcase
  end
  assign room_for_run = !found_valid || take;
  assign push_x = asks_x && room_for_run;
  assign push = finds && !asks_x && room_for_run;

  always_comb begin
    made = '{kind: LINE_X, bank: command.x_bank, line: row_line, count: x_lines, row: row, where: 10'd0};
    if (!asks_x) unique case (state)
      FOUND: begin
        made.kind = LINE_WEIGHTS;
        made.bank = block_bank;
        made.line = block_line;
        made.count = {4'd0, block_count};
        made.where = {2'd0, slot, 6'd0};
      end
      SCALES: begin
        made.kind = LINE_BIAS;
        made.bank = command.bias_bank;
        made.line = command.bias_line + {tile[30:0], 1'b0};
        made.count = columns > 32'd16 ? 11'd2 : 11'd1;
        made.where = {7'd0, side, 2'd0};
      end
      BIAS: begin
        made.kind = LINE_BIAS;
        made.bank = command.bias_bank;
        made.line = command.bias_line + scale_lines_all + tile;
        made.count = 11'd1;
        made.where = {7'd0, side, 2'd2};
      end
      default: ;
    endcase
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
    // none of its lines is under way when a slot is filled anew
    if (line_valid && arrived == LINE_WEIGHTS)
      waiting[line_tag[6+:BLOCKS_LOG]] <= waiting[line_tag[6+:BLOCKS_LOG]] - 7'd1;
    if (push && state == FOUND) waiting[slot] <= block_count;
    for (int s = 0; s < 2; s++) begin
      side_waiting[s] <= side_waiting[s] +
          (push && (state == SCALES || state == BIAS) && side == s[0] ? made.count[1:0] : 2'd0) -
          {1'b0, line_valid && arrived == LINE_BIAS && line_tag[2] == s[0]};
    end
    x_waiting <= x_waiting + (push_x ? {5'd0, x_lines} : 16'd0) -
                 {15'd0, line_valid && arrived == LINE_X};
    if (rst) begin
      run.count <= 11'd0;
      found_valid <= 1'b0;
      for (int s = 0; s < SLOTS; s++) waiting[s] <= 7'd0;
      for (int s = 0; s < 2; s++) side_waiting[s] <= 2'd0;
      x_waiting <= 16'd0;
    end
  end

  always_ff @(posedge clk) begin
    blocks_next <= 1'b0;
    if (push_x) begin
      row <= row + 4'd1;
      row_line <= row_line + command.x_stride;
    end
    if (slot_free) begin
      taken[free_slot] <= 1'b0;
      complete[free_slot] <= 1'b0;
      free_slot <= free_slot + 1'b1;
    end
    if (params_free) begin
      side_taken[free_side] <= 1'b0;
      side_complete[free_side] <= 1'b0;
      free_side <= !free_side;
    end
    unique case (state)
      TABLE: if (blocks_ready && !blocks_next) state <= SCALES;
      SCALES:
      if (push) begin
        side_taken[side] <= 1'b1;
        state <= command.has_bias ? BIAS : LOOK;
        if (!command.has_bias) begin
          side_complete[side] <= 1'b1;
          side <= !side;
        end
      end
      BIAS:
      if (push) begin
        side_complete[side] <= 1'b1;
        side <= !side;
        state <= LOOK;
      end
      LOOK:  // the table answers in the next cycle
      if (!taken[slot]) state <= FOUND;
      FOUND:
      if (push) begin
        taken[slot] <= 1'b1;
        complete[slot] <= 1'b1;
        slot <= slot + 1'b1;
        block <= block + 8'd1;
        state <= LOOK;
        if (block == last_block) begin
          block <= 8'd0;
          tile <= tile + 32'd1;
          blocks_next <= 1'b1;
          state <= last_tile ? IDLE : TABLE;
        end
      end
      default: ;
    endcase
    if (start) begin
      state <= TABLE;
      row <= 4'd0;
      row_line <= x_line;
      tile <= 32'd0;
      block <= 8'd0;
      slot <= '0;
      free_slot <= '0;
      side <= 1'b0;
      free_side <= 1'b0;
      taken <= '0;
      complete <= '0;
      side_taken <= 2'b00;
      side_complete <= 2'b00;
    end
    if (rst) begin
      state <= IDLE;
      blocks_next <= 1'b0;
      taken <= '0;
      complete <= '0;
      side_taken <= 2'b00;
      side_complete <= 2'b00;
    end
  end
endmodule
