// SPDX-License-Identifier: Apache-2.0
// What becomes of a pass's sums. Scores: segments by the tree (docs/numbers.md, 2.2), one cycle a pair. V: tiles are
// added to their chunk, chunks to the head, and behind its last one the sums go to be divided (3.8). Of integers there
// is nothing to add but the two halves of a score.
module kv_join
  import attention_types::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        integers,
    input  logic [8:0]  head_dim,
    // sums of a pass
    input  logic        holds,        // those of `summed` will come
    input  pass_t       summed,
    input  logic [2:0]  summed_slot,
    input  logic        held,         // they are there
    output logic [1:0]  unread,       // passes
    output logic        unread_integers,  // of V among them
    output logic        busy,
    input  logic [31:0] total,        // of integers
    output logic [4:0]  read_column,
    output logic [2:0]  read_slot,
    output logic [2:0]  read_other,
    input  logic [31:0] value,        // a cycle later
    input  logic [31:0] other,
    input  logic [31:0] one_value,
    // scores
    input  logic        scores_ready, // for a tile
    output logic        raw_valid,
    output logic [31:0] raw,
    output score_t      raw_place,
    // a head's sums of V
    input  logic        results_busy,
    output logic        total_valid,
    output logic [31:0] head_total,
    output logic        sum_valid,
    output logic [31:0] sum
);
  typedef enum logic [2:0] {IDLE, SCORES, SUMS, SETTLE, TOTAL, TOTALLED, COLUMNS, LAST} state_t;
  state_t state;
  pass_t pass, waiting[4];
  logic [2:0] waiting_slot[4];
  logic [1:0] put, get;
  logic [2:0] there;
  logic read_all;        // of a pass
  logic [2:0] slot, side;
  logic [4:0] column;
  logic [1:0] pair, last_pair;
  logic [3:0] groups, rest;
  logic [7:0] number;    // of a column of the head
  logic [1:0] bits;
  assign groups = 4'((head_dim + 9'd31) >> 5);
  assign bits = pass.tiles == 4'd1 && pass.values ? 2'd0 : tiles_bits(groups);
  always_comb begin
    last_pair = bits == 2'd0 ? 2'd3 : bits == 2'd1 ? 2'd1 : 2'd0;
    if (pass.values) last_pair = 2'((groups - 4'd1) >> 1);
    if (integers) last_pair = 2'd0;
  end

  // issue: what is read now
  logic issues, tile_begins, tile_ends;
  assign tile_begins = column == 5'd0 && pair == 2'd0;
  assign tile_ends = column == 5'd31 && pair == last_pair;
  assign issues = (state == SCORES && (!tile_begins || scores_ready)) || state == SUMS || state == COLUMNS;
  always_comb begin
    logic [2:0] first_slot;
    unique case (bits)
      2'd0: first_slot = {pair, 1'b0};
      2'd1: first_slot = {side[0], pair[0], 1'b0};
      2'd2: first_slot = {side[1:0], 1'b0};
      default: first_slot = side;
    endcase
    read_column = column;
    read_slot = integers ? slot : first_slot;
    read_other = first_slot | 3'd1;
    if (state == COLUMNS) begin
      read_column = number[4:0];
      read_slot = {1'b1, number[7:6]};
    end
  end
  // sums that were read may be lost
  assign read_all = integers && pass.values ? state == LAST && rest == 4'd8
      : (state == SCORES || state == SUMS) && issues && tile_ends && {1'b0, side} + 4'd1 == pass.tiles;
  assign busy = state != IDLE || unread != 2'd0;
  score_t place;
  always_comb begin
    place.head = pass.head;
    place.scratch = pass.scratch;
    place.tile = pass.tile + {9'd0, side};
    place.index = column;
    place.first = pass.head_first && side == 3'd0 && column == 5'd0;
    place.last = pass.head_last && {1'b0, side} == pass.tiles - 4'd1 && column == 5'd31;
  end

  // a cycle later: operands
  typedef struct packed {
    logic       scores;
    logic       sums;
    logic       columns;
    logic       out;    // a head's last chunk: columns go to be divided
    logic [1:0] pair;
    logic       ends;   // of a column of scores
    logic [7:0] number; // of the head's columns, of V
    score_t     place;
  } beside_t;
  beside_t now, beside_1, beside_6, beside_11, beside_16;
  logic one_1;
  logic [31:0] base_1, odd_base_1, chunk_1, e_base_1;
  logic [31:0] chunk_even[128], chunk_odd[128], all[256];
  logic [31:0] chunk_e, all_e;
  logic fresh;
  assign fresh = pass.chunk_first && side == 3'd0;
  always_comb begin
    now.scores = issues && state == SCORES;
    now.sums = issues && state == SUMS;
    now.columns = issues && state == COLUMNS;
    now.out = pass.head_last;
    now.pair = pair;
    now.ends = pair == last_pair;
    now.number = state == COLUMNS ? number : {pair, 1'b0, column};
    now.place = place;
  end
  always_ff @(posedge clk) begin
    beside_1 <= now;
    one_1 <= now.sums && column == 5'd0 && pair == 2'd0;
    base_1 <= state == COLUMNS ? (pass.head_first ? 32'd0 : all[number])
        : fresh ? 32'd0 : chunk_even[{pair, column}];
    odd_base_1 <= fresh ? 32'd0 : chunk_odd[{pair, column}];
    chunk_1 <= number[5] ? chunk_odd[{number[7:6], number[4:0]}] : chunk_even[{number[7:6], number[4:0]}];
    e_base_1 <= fresh ? 32'd0 : chunk_e;
    if (rst) {beside_1.scores, beside_1.sums, beside_1.columns, one_1} <= 4'd0;
  end

  // three adders
  logic moves, valid_0, valid_1, valid_2, total_adds;
  logic [31:0] a_0, b_0, a_1, b_1, a_2, b_2, sum_0, sum_1, sum_2, before_0, before_1;
  logic alone;  // a slot a tile: nothing to add
  logic [15:0] under_way;
  assign alone = bits == 2'd3;
  assign moves = issues || under_way != '0;
  always_ff @(posedge clk) under_way <= rst ? '0 : {under_way[14:0], issues};
  assign total_adds = state == TOTAL && !integers && rest == 4'd0;
  always_comb begin
    valid_0 = (beside_1.scores || beside_1.sums || beside_1.columns) && !integers;
    a_0 = beside_1.scores ? value : base_1;
    b_0 = beside_1.scores ? (alone ? 32'd0 : other) : beside_1.columns ? chunk_1 : value;
    valid_1 = (beside_6.scores && beside_6.pair[0]) || (beside_1.sums && !alone && !integers);
    a_1 = beside_1.sums ? odd_base_1 : before_0;
    b_1 = beside_1.sums ? other : sum_0;
    valid_2 = (beside_11.scores && beside_11.pair == 2'd3) || one_1 || total_adds;
    a_2 = total_adds ? (pass.head_first ? 32'd0 : all_e) : one_1 ? e_base_1 : before_1;
    b_2 = total_adds ? chunk_e : one_1 ? one_value : sum_1;
  end
  logic sum_2_valid, sum_1_valid;
  float_add add_0 (
      .clk(clk),
      .valid(valid_0),
      .a(a_0),
      .b(b_0),
      // verilator lint_off PINCONNECTEMPTY
      .sum_valid(),
      // verilator lint_on PINCONNECTEMPTY
      .sum(sum_0)
  );
  float_add add_1 (
      .clk(clk),
      .valid(valid_1),
      .a(a_1),
      .b(b_1),
      .sum_valid(sum_1_valid),
      .sum(sum_1)
  );
  float_add add_2 (
      .clk(clk),
      .valid(valid_2),
      .a(a_2),
      .b(b_2),
      .sum_valid(sum_2_valid),
      .sum(sum_2)
  );
  localparam int BESIDE = $bits(beside_t);
  beside_t late_6, late_11, late_16;
  delay_line #(.WIDTH(BESIDE), .CYCLES(5)) keep_6 (.clk, .moves, .value(beside_1), .late(late_6));
  delay_line #(.WIDTH(BESIDE), .CYCLES(5)) keep_11 (.clk, .moves, .value(late_6), .late(late_11));
  delay_line #(.WIDTH(BESIDE), .CYCLES(5)) keep_16 (.clk, .moves, .value(late_11), .late(late_16));
  // `under_way` says whether there is something; the lines may hold anything from before
  function automatic beside_t checked(input beside_t late, input logic some);
    checked = late;
    checked.scores = late.scores && some;
    checked.sums = late.sums && some;
    checked.columns = late.columns && some;
  endfunction
  assign beside_6 = checked(late_6, under_way[5]);
  assign beside_11 = checked(late_11, under_way[10]);
  assign beside_16 = checked(late_16, under_way[15]);
  always_ff @(posedge clk) begin
    if (beside_6.scores) before_0 <= sum_0;
    if (sum_1_valid) before_1 <= sum_1;
    if (beside_6.sums) begin
      chunk_even[{beside_6.number[7:6], beside_6.number[4:0]}] <= sum_0;
      if (!alone) chunk_odd[{beside_6.number[7:6], beside_6.number[4:0]}] <= sum_1;
    end
    if (beside_6.columns) all[beside_6.number] <= sum_0;
    if (sum_2_valid && state == TOTAL) all_e <= sum_2;
    if (sum_2_valid && (state == SUMS || state == SETTLE)) chunk_e <= sum_2;
  end

  // out
  always_comb begin
    raw_valid = integers ? beside_1.scores
        : bits == 2'd0 ? beside_16.scores && beside_16.ends : bits == 2'd1 ? beside_11.scores && beside_11.ends
        : beside_6.scores;
    raw = integers ? value + other : bits == 2'd0 ? sum_2 : bits == 2'd1 ? sum_1 : sum_0;
    raw_place = integers ? beside_1.place : bits == 2'd0 ? beside_16.place : bits == 2'd1 ? beside_11.place
        : beside_6.place;
    sum_valid = integers ? beside_1.columns : beside_6.columns && beside_6.out;
    sum = integers ? (beside_1.number[5] ? other : value) : sum_0;
    total_valid = state == TOTALLED && pass.head_last && rest == 4'd0 && !results_busy;
    head_total = integers ? total : all_e;
  end

  always_ff @(posedge clk) begin
    if (holds) begin
      waiting[put] <= summed;
      waiting_slot[put] <= summed_slot;
      put <= put + 2'd1;
    end
    there <= there + {2'd0, held} - {2'd0, state == IDLE && there != 3'd0};
    unread <= unread + {1'b0, holds} - {1'b0, read_all};
    if (read_all && pass.values) unread_integers <= 1'b0;
    if (holds && summed.values) unread_integers <= integers;
    unique case (state)
      IDLE: begin
        side <= 3'd0;
        column <= 5'd0;
        pair <= 2'd0;
        number <= 8'd0;
        rest <= 4'd0;
        if (there != 3'd0) begin
          pass <= waiting[get];
          slot <= waiting_slot[get];
          get <= get + 2'd1;
          state <= !waiting[get].values ? SCORES : integers ? TOTALLED : SUMS;
        end
      end
      SCORES, SUMS:
      if (issues) begin
        // scores: pairs of a column after each other; sums: columns
        if (state == SCORES) begin
          pair <= pair == last_pair ? 2'd0 : pair + 2'd1;
          if (pair == last_pair) column <= column + 5'd1;
        end else begin
          column <= column + 5'd1;
          if (column == 5'd31) pair <= pair == last_pair ? 2'd0 : pair + 2'd1;
        end
        if (tile_ends) begin
          side <= side + 3'd1;
          if ({1'b0, side} + 4'd1 == pass.tiles) begin
            state <= state == SUMS && pass.chunk_last ? SETTLE : IDLE;
          end
        end
      end
      SETTLE: begin
        rest <= rest + 4'd1;
        if (rest == 4'd8) begin
          state <= TOTAL;
          rest <= 4'd0;
        end
      end
      TOTAL: begin
        rest <= rest + 4'd1;
        if (rest == 4'd7) begin
          state <= TOTALLED;
          rest <= 4'd0;
        end
      end
      TOTALLED:  // the divisor is ready a few cycles later
      if (rest != 4'd0 || !pass.head_last || !results_busy) begin
        rest <= rest + 4'd1;
        if (rest == 4'd4) begin
          state <= COLUMNS;
          rest <= 4'd0;
        end
      end
      COLUMNS: begin
        number <= number + 8'd1;
        if ({1'b0, number} + 9'd1 == head_dim) state <= LAST;
      end
      default: begin
        rest <= rest + 4'd1;
        if (rest == 4'd8) state <= IDLE;
      end
    endcase
    if (rst) begin
      state <= IDLE;
      {put, get, unread} <= 6'd0;
      there <= 3'd0;
      unread_integers <= 1'b0;
    end
  end
endmodule
