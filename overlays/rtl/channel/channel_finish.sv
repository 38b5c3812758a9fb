// SPDX-License-Identifier: Apache-2.0
// A finisher, shared by LINKS channels: takes a tile's totals, a column of all rows a cycle, through integer_round (scale of
// the column, of the row, bias, rounding) and makes lines of y of them. It begins a tile when its scales and bias are there
// and its queue of lines has room, so nothing behind it can hold it up. Lines gather in shift registers, without a mux;
// row r follows r cycles behind row 0, so rows' lines are complete one after another. Where a pass has one row, the second
// row's pipe takes a second tile beside it, of another channel, if one is there.
// Reset: `rst` for 32 cycles at least, while integer_round runs empty; data begins with any bits.
// Assumes: `fields` and `row_lines` hold while a pass runs; a channel answers `take` by 32 totals, a cycle each.
module channel_finish
  import float_types::*;
  import channel_types::*;
#(
    parameter int LINKS = 4,
    parameter int ROWS = 2
) (
    input  logic                             clk,
    input  logic                             rst,
    input  logic         [4:0]               first,      // channel of link 0
    input  pass_fields_t                     fields,
    input  logic         [ROWS-1:0][31:0]    row_lines,  // of y, by row
    input  read_rsp_t                        feed,
    input  tile_t        [LINKS-1:0]         tiles,
    input  logic         [LINKS-1:0]         channel_bad,
    output logic         [LINKS-1:0]         take,
    input  logic         [LINKS-1:0]         total_valid,
    input  logic         [LINKS-1:0][ROWS-1:0][31:0] total,
    output logic         [LINKS-1:0]         params_taken,  // one cycle: scales and bias of a tile have been used
    output fault_t                           params_bad,    // of those of a tile
    output logic                             quiet,         // no tile or line is here
    output result_line_t                     line,          // one cycle
    input  logic                             room           // for one line; it was seen to be taken
);
  localparam bit PAIRS = LINKS > 1 && ROWS > 1;
  localparam int OTHER = ROWS > 1 ? 1 : 0;  // row of the second pipe
  localparam int LOG = LINKS > 1 ? $clog2(LINKS) : 1;
  localparam int QUEUE_LOG = 5;               // of lines
  localparam int GAP = 5;   // cycles until `room` says what a line has taken
  localparam int MOST = 2 * ROWS;             // lines of a tile
  localparam int DRAIN = ROUND_CYCLES + ROWS + 6;  // cycles from the last total to the last line in the queue
  typedef logic [LOG-1:0] link_t;
  if (LINKS < 1 || LINKS > 16 || 2 ** $clog2(LINKS) != LINKS) begin : wrong_links
    $error("LINKS: a power of two up to 16");
  end

  // --- crossing: what comes from channels ----------------------------------------------------------
  tile_t [LINKS-1:0] tiles_1;
  logic [LINKS-1:0] bad_1, total_valid_1;
  logic [LINKS-1:0][ROWS-1:0][31:0] total_1;
  always_ff @(posedge clk) begin
    tiles_1 <= tiles;
    bad_1 <= channel_bad;
    total_valid_1 <= total_valid;
    total_1 <= total;
    if (rst) begin
      total_valid_1 <= '0;
      for (int i = 0; i < LINKS; i++) tiles_1[i].valid <= 1'b0;
    end
  end

  // --- scales and bias ---------------------------------------------------------------------------
  // by link, side, and for scales the half of the tile
  logic [511:0] scale_lines[4*2**LOG], bias_lines[2*2**LOG];
  logic [31:0] row_scale[ROWS];
  logic [1:0] there[2*2**LOG];
  logic [2*2**LOG-1:0] complete;
  fault_t [2*2**LOG-1:0] failed;
  logic [4:0] from_first;
  /* verilator lint_off UNUSEDSIGNAL */
  params_tag_t at;
  /* verilator lint_on UNUSEDSIGNAL */
  link_t at_link;
  logic param_here;
  assign at = feed.tag.params;
  assign from_first = at.channel - first;
  assign at_link = from_first[LOG-1:0];
  assign param_here = feed.valid && !at.is_x && 32'(from_first) < LINKS;

  typedef enum logic [1:0] {PICK, STREAM, REST} state_t;
  state_t state;
  // `second`: of row 1's pipe; the same tile where no second one is beside it
  link_t link, second, last;
  logic [2**LOG-1:0] use_side, can, others;
  logic picks, side, second_side, drop_in, second_drop_in, one_row, pair, pairs;
  link_t picked, picked_second;
  logic [19:0] tile_in, second_tile_in;
  logic [5:0] left_in, second_left_in;  // columns
  logic [QUEUE_LOG:0] queued;
  always_comb begin
    can = '0;
    for (int i = 0; i < LINKS; i++) can[i] = tiles_1[i].valid && complete[{i[LOG-1:0], use_side[i]}];
    picked = last;
    for (int i = LINKS; i >= 1; i--) begin
      automatic link_t next = link_t'((int'(last) + i) & (LINKS - 1));
      if (can[next]) picked = next;
    end
    others = can;
    others[picked] = 1'b0;
    pairs = PAIRS && one_row && others != '0;
    picked_second = picked;
    for (int i = LINKS; i >= 1; i--) begin
      automatic link_t next = link_t'((int'(last) + i) & (LINKS - 1));
      if (pairs && others[next]) picked_second = next;
    end
  end
  assign one_row = fields.rows == 3'd1;
  assign picks = state == PICK && can != '0 && queued <= (QUEUE_LOG + 1)'(2 ** QUEUE_LOG - 2 * MOST);

  always_ff @(posedge clk) begin
    if (feed.valid && feed.tag.x.is_x && feed.tag.x.is_scale) begin
      for (int r = 0; r < ROWS; r++) if (feed.tag.x.row == r[1:0]) row_scale[r] <= feed.data[256+:32];
    end
    if (param_here) begin
      if (at.which[1]) bias_lines[{at_link, at.side}] <= feed.data;
      else scale_lines[{at_link, at.side, at.which[0]}] <= feed.data;
      there[{at_link, at.side}] <= there[{at_link, at.side}] + 2'd1;
      complete[{at_link, at.side}] <= there[{at_link, at.side}] + 2'd1 == at.count;
      failed[{at_link, at.side}] <= failed[{at_link, at.side}] | feed.fault;
    end
    if (params_taken != '0) begin  // of `link`
      there[{link, side}] <= 2'd0;
      complete[{link, side}] <= 1'b0;
      failed[{link, side}] <= '0;
      there[{second, second_side}] <= 2'd0;
      complete[{second, second_side}] <= 1'b0;
      failed[{second, second_side}] <= '0;
    end
    if (rst) begin
      for (int i = 0; i < 2 * 2 ** LOG; i++) there[i] <= 2'd0;
      complete <= '0;
      failed <= '0;
    end
  end

  // --- which tile ----------------------------------------------------------------------------------
  logic stream_valid;
  logic [4:0] column_1;
  logic [ROWS-1:0][31:0] sums_1;
  logic [5:0] draining;
  logic [24:0] columns, second_columns;  // from the tile's first on
  assign columns = fields.n - {tile_in, 5'd0};
  assign second_columns = fields.n - {second_tile_in, 5'd0};
  always_ff @(posedge clk) begin
    take <= '0;
    params_taken <= '0;
    stream_valid <= total_valid_1[link] && state == STREAM;
    sums_1 <= total_1[link];
    if (PAIRS && one_row) sums_1[OTHER] <= total_1[second][0];
    if (stream_valid) column_1 <= column_1 + 5'd1;
    left_in <= columns > 25'd32 ? 6'd32 : columns[5:0];
    second_left_in <= second_columns > 25'd32 ? 6'd32 : second_columns[5:0];
    if (draining != 6'd0) draining <= draining - 6'd1;
    case (state)
      PICK:
      if (picks) begin
        state <= STREAM;
        link <= picked;
        second <= picked_second;
        last <= picked_second;
        pair <= pairs;
        side <= use_side[picked];
        second_side <= use_side[picked_second];
        tile_in <= tiles_1[picked].number;
        second_tile_in <= tiles_1[picked_second].number;
        drop_in <= bad_1[picked] || failed[{picked, use_side[picked]}] != '0;
        second_drop_in <= bad_1[picked_second] || failed[{picked_second, use_side[picked_second]}] != '0;
        params_bad <= params_bad | failed[{picked, use_side[picked]}] | failed[{picked_second, use_side[picked_second]}];
        take[picked] <= 1'b1;
        take[picked_second] <= 1'b1;
        draining <= 6'(DRAIN);
      end
      STREAM: begin
        draining <= 6'(DRAIN);
        if (stream_valid && column_1 == 5'd30) begin
          params_taken[second] <= 1'b1;
          params_taken[link] <= 1'b1;  // all selected a cycle behind
          state <= REST;
        end
      end
      default: begin
        use_side[link] <= !side;
        use_side[second] <= !second_side;
        state <= PICK;
      end
    endcase
    if (rst) begin
      take <= '0;
      params_taken <= '0;
      stream_valid <= 1'b0;
      column_1 <= 5'd0;
      draining <= 6'd0;
      state <= PICK;
      use_side <= '0;
      last <= '0;
      link <= '0;
      second <= '0;
      params_bad <= '0;
    end
  end

  // --- a column's scale and bias, two registers each; of both tiles ---------------------------------
  localparam int TILES = PAIRS ? 2 : 1;
  localparam int BIAS_DELAY = 8;  // so that it meets its product
  logic [2:0] slot_2;
  logic [TILES-1:0][31:0] scale, bias_single;
  always_ff @(posedge clk) slot_2 <= column_1[2:0];
  for (genvar t = 0; t < TILES; t++) begin : params
    logic [511:0] scale_line, bias_line;
    logic [127:0] scale_quarter, bias_quarter;
    logic [BIAS_DELAY-1:0][15:0] bias;
    assign scale_line = scale_lines[{t == 0 ? {link, side} : {second, second_side}, column_1[4]}];
    assign bias_line = bias_lines[t==0?{link, side} : {second, second_side}];
    always_ff @(posedge clk) begin
      scale_quarter <= scale_line[128*column_1[3:2]+:128];
      scale[t] <= scale_quarter[32*slot_2[1:0]+:32];
      bias_quarter <= bias_line[128*column_1[4:3]+:128];
      bias <= {bias[BIAS_DELAY-2:0], bias_quarter[16*slot_2+:16]};
      bias_single[t] <= fields.has_bias ? half_to_float(bias[BIAS_DELAY-1]) : FLOAT_NEGATIVE_ZERO;
    end
  end

  // --- values, and lines of them -------------------------------------------------------------------
  logic [ROWS-1:0] raw_valid;
  logic raw_first;  // column 0 of row 0 comes
  logic [4:0] raw_column;
  logic [19:0] tile_out, second_tile_out;
  logic [5:0] left_out, second_left_out;
  logic drop_out, second_drop_out, pair_out;
  logic [ROWS-1:0] complete_line;
  logic [ROWS-1:0][511:0] line_of;
  logic [ROWS-1:0][5:0] count_of;
  logic [ROWS-1:0] half_of;
  assign raw_first = raw_valid[0] && raw_column == 5'd0;
  always_ff @(posedge clk) begin
    if (raw_valid[0]) raw_column <= raw_column + 5'd1;
    if (raw_first) begin
      tile_out <= tile_in;
      left_out <= left_in;
      drop_out <= drop_in || bad_1[link];
      second_tile_out <= second_tile_in;
      second_left_out <= second_left_in;
      second_drop_out <= second_drop_in || bad_1[second];
      pair_out <= pair;
    end
    if (rst) raw_column <= 5'd0;
  end
  for (genvar row = 0; row < ROWS; row++) begin : rows
    localparam bit SECOND = PAIRS && row == 1;
    logic [31:0] raw_single;
    logic [15:0] raw_half;
    integer_round round (
        .clk(clk),
        .valid(stream_valid),
        .is_single(fields.four_bit),
        .sum($signed(sums_1[row])),
        .total(sums_1[row]),
        .scale(scale[SECOND]),
        .row_scale(!fields.row_scales ? FLOAT_ONE : SECOND && one_row ? row_scale[0] : row_scale[row]),
        .bias(bias_single[SECOND]),
        .value_valid(raw_valid[row]),
        .single(raw_single),
        .half(raw_half)
    );
    logic [row:0] valid_by;
    logic [row:0][31:0] value_by;
    logic valid, line_begin, line_end, nonfinite, is_real;
    logic [31:0] value;
    logic [15:0] hold;
    logic [4:0] column;
    if (row == 0) begin : at_once
      always_ff @(posedge clk) begin
        valid_by <= raw_valid[row];
        value_by <= fields.y_single ? raw_single : {16'd0, raw_half};
        if (rst) valid_by <= '0;
      end
    end else begin : behind
      always_ff @(posedge clk) begin
        valid_by <= {valid_by[row-1:0], raw_valid[row]};
        value_by <= {value_by[row-1:0], fields.y_single ? raw_single : {16'd0, raw_half}};
        if (rst) valid_by <= '0;
      end
    end
    assign valid = valid_by[row];
    assign value = value_by[row];
    assign line_begin = fields.y_single ? column[3:0] == 4'd0 : column == 5'd0;
    assign line_end = fields.y_single ? column[3:0] == 4'd15 : column == 5'd31;
    assign is_real = {1'b0, column} < (SECOND ? second_left_out : left_out);
    assign nonfinite = is_real && (fields.y_single ? value[30:23] == 8'hff : value[14:10] == 5'h1f);
    always_ff @(posedge clk) begin
      complete_line[row] <= valid && line_end;
      if (valid) begin
        column <= column + 5'd1;
        half_of[row] <= column[4];
        count_of[row] <= (line_begin ? 6'd0 : count_of[row]) + {5'd0, nonfinite};
        hold <= value[15:0];
        if (fields.y_single || column[0])
          line_of[row] <= {fields.y_single ? value : {value[15:0], hold}, line_of[row][511:32]};
      end
      if (rst) begin
        column <= 5'd0;
        complete_line[row] <= 1'b0;
      end
    end
  end

  // --- the queue of lines --------------------------------------------------------------------------
  typedef struct packed {
    logic [1:0]   row;
    logic         half;
    logic [5:0]   cells;  // pairs of bytes that there are
    logic [5:0]   nonfinite;
    logic [19:0]  tile;
    logic [511:0] data;
  } entry_t;
  entry_t entries[2**QUEUE_LOG], put, got;
  logic [QUEUE_LOG-1:0] put_at, get_at;
  logic push, pop, room_1, of_second, counts;
  logic [2:0] resting;
  logic [5:0] left, rest;
  assign of_second = PAIRS && complete_line[OTHER];
  always_comb begin
    put = '0;
    counts = 1'b0;
    for (int r = 0; r < ROWS; r++)
      if (complete_line[r]) begin
        if (PAIRS && one_row && r == 1) counts |= pair_out;
        else begin
          counts |= 3'(r) < fields.rows;
          put.row |= r[1:0];
        end
        put.half |= fields.y_single && half_of[r];
        put.nonfinite |= count_of[r];
        put.data |= line_of[r];
      end
    put.tile = of_second ? second_tile_out : tile_out;
    left = of_second ? second_left_out : left_out;
    rest = put.half ? (left > 6'd16 ? left - 6'd16 : 6'd0) : left;
    put.cells = !fields.y_single ? left : rest > 6'd16 ? 6'd32 : {rest[4:0], 1'b0};
    push = counts && put.cells != 6'd0 && !(of_second ? second_drop_out : drop_out);
  end
  assign got = entries[get_at];
  assign pop = queued != '0 && room_1 && resting == 3'd0;
  assign quiet = state == PICK && draining == 6'd0 && queued == '0 && resting == 3'd0;
  always_ff @(posedge clk) begin
    if (push) begin
      entries[put_at] <= put;
      put_at <= put_at + 1'b1;
    end
    queued <= queued + (QUEUE_LOG + 1)'(push) - (QUEUE_LOG + 1)'(pop);
    room_1 <= room;
    resting <= pop ? 3'(GAP) : resting == 3'd0 ? 3'd0 : resting - 3'd1;
    line.valid <= pop;
    if (pop) begin
      get_at <= get_at + 1'b1;
      line.line <= row_lines[got.row[$clog2(ROWS > 1 ? ROWS : 2)-1:0]] +
          (fields.y_single ? {11'd0, got.tile, got.half} : {12'd0, got.tile});
      for (int i = 0; i < 32; i++) line.bytes[2*i+:2] <= {2{6'(i) < got.cells}};
      line.nonfinite <= got.nonfinite;
      line.row <= fields.first_row + {5'd0, got.row};
      line.data <= got.data;
    end
    if (rst) begin
      put_at <= '0;
      get_at <= '0;
      queued <= '0;
      line.valid <= 1'b0;
      room_1 <= 1'b0;
      resting <= 3'd0;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) begin
    if (!rst) begin
      assert ($onehot0(complete_line)) else $fatal(1, "lines of two rows in one cycle");
      assert (!push || queued != (QUEUE_LOG + 1)'(2 ** QUEUE_LOG)) else $fatal(1, "the queue of lines overflows");
      assert (!param_here || there[{at_link, at.side}] < at.count)
      else $fatal(1, "scales of a tile come before those there have been used");
      assert (raw_valid == '0 || &raw_valid) else $fatal(1, "rows' values come in different cycles");
      assert (!raw_first || state != PICK || draining != 6'd0) else $fatal(1, "a value without a tile");
    end
  end
`endif
endmodule
