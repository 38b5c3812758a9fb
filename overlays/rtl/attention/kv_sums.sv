// SPDX-License-Identifier: Apache-2.0
// Products of attention, pass by pass: scores of a query with positions of K (docs/numbers.md, 2), or sums of weighted
// rows of V, position after position (3.8). FP16: a turn is eight cycles, a slot each; slots are tiles side by
// side, and of each the segments of K or 32 columns of V. Integers: 64 products of a line each cycle.
module kv_sums
  import attention_types::*;
(
    input  logic         clk,
    input  logic         rst,
    input  layout_t      layout,
    // memory
    input  logic         block_valid,
    input  logic         scale_valid,
    input  logic         q_valid,
    input  logic [9:0]   line_where,
    input  logic [1:0]   line_pass,
    input  logic [511:0] line_data,
    input  logic [1:0][5:0] q_begin,  // of a head's q in its first line, by the head's lowest bit
    // weights
    output logic [8:0]   weight_place,
    input  logic [15:0]  weight,      // a cycle later
    input  logic         there,
    input  logic [17:0]  made,
    // a pass, held until taken
    input  logic         pass_valid,  // and its lines are there
    input  pass_t        pass,
    input  logic [9:0]   pass_base,   // line of the buffer
    input  logic [1:0]   pass_number,
    output logic         taken,
    output logic         ends,        // one cycle: its lines are not read again
    output pass_t        current,     // from the cycle after `taken` on
    // its sums
    input  logic [1:0]   unread,      // passes whose sums are not read yet
    input  logic         unread_integers,  // of V among them
    output logic         holds,       // one cycle: the last products of `current` are under way
    output logic         held,        // one cycle: they are there
    output logic [2:0]   sums_slot,   // of `current`, of integers
    output logic [31:0]  total,       // of integers: E
    input  logic [4:0]   read_column,
    input  logic [2:0]   read_slot,
    input  logic [2:0]   read_other,
    output logic [31:0]  value,       // a cycle later
    output logic [31:0]  other,
    output logic [31:0]  one_value
);
  logic integers, heads, runs, go, last_step, free, can_take;
  logic [2:0] slot;  // FP16: runs on
  logic [1:0] chunk, chunks;
  logic [7:0] turn, turns;
  logic [3:0] groups;
  logic [9:0] base;
  logic [1:0] number;
  logic [1:0] turnabout;  // slot of integers of K
  assign integers = layout.kind == KV_INT8;
  assign heads = layout.kind == KV_INT8_HEADS;
  assign groups = 4'((layout.head_dim + 9'd31) >> 5);
  assign chunks = integers ? 2'((layout.head_dim - 9'd1) >> 6) : 2'd0;  // less one
  function automatic logic [7:0] turns_of(input logic values, input logic [5:0] in_tile);  // less one
    if (values) return {2'd0, in_tile} - 8'd1;
    if (integers) return 8'(layout.head_dim >> 1) - 8'd1;
    return (layout.head_dim < 9'd32 ? layout.head_dim[7:0] : 8'd32) - 8'd1;
  endfunction

  logic [7:0] pass_turns;
  assign pass_turns = turns_of(pass.values, pass.count);

  // weights of all its positions are made
  logic [17:0] last_position;
  assign last_position = {1'b0, pass.tile, 5'd0} + {9'd0, pass.tiles - 4'd1, 5'd0} + {13'd0, pass.row}
      + {12'd0, pass.count} - 18'd1;
  assign can_take = pass_valid && (!pass.values || (there && made > last_position
      && !(runs && current.values && current.head_last) && !(integers && pass.clear && unread_integers)));

  // steps
  logic turn_ends, is_last;
  assign turn_ends = integers ? chunk == (current.values ? chunks : 2'd0) : slot == 3'd7;
  assign is_last = turn == turns;
  assign last_step = runs && go && turn_ends && is_last;
  assign free = !runs || last_step;
  assign taken = free && can_take && (integers || slot == 3'd7);
  assign ends = last_step;
  assign holds = last_step && current.reads;
  logic blocked_next;  // sums would be lost
  logic [7:0] next_turn;
  assign next_turn = taken ? 8'd0 : go && turn_ends ? turn + 8'd1 : turn;
  assign blocked_next = (taken ? pass.reads : current.reads) && next_turn == (taken ? pass_turns : turns) 
      && {1'b0, unread} + {2'd0, holds} >= (integers ? 3'd3 : 3'd1);
  always_ff @(posedge clk) begin
    slot <= slot + 3'd1;
    if (integers || slot == 3'd7) go <= !blocked_next;
    if (runs && go) begin
      chunk <= turn_ends ? 2'd0 : chunk + 2'd1;
      if (turn_ends) turn <= turn + 8'd1;
    end
    if (last_step) runs <= 1'b0;
    if (taken) begin
      runs <= 1'b1;
      current <= pass;
      base <= pass_base;
      number <= pass_number;
      turns <= pass_turns;
      turn <= 8'd0;
      chunk <= 2'd0;
      if (!pass.values) turnabout <= turnabout + 2'd1;
    end
    if (rst) begin
      runs <= 1'b0;
      slot <= 3'd0;
    end
  end

  // what this slot multiplies
  logic [1:0] bits;      // of the tiles side by side
  logic [2:0] side, part, inner;
  logic [3:0] unit, unit_end;
  logic [8:0] element;   // of q
  logic [13:0] of_block; // bytes from the block's begin on
  logic [15:0] address;
  logic use_now, one_now, clear_now;
  assign bits = integers || (current.tiles == 4'd1 && current.values) ? 2'd0 : tiles_bits(groups);
  always_comb begin
    inner = slot;
    side = 3'd0;
    unique case (bits)
      2'd0: ;
      2'd1: {side, inner} = {2'd0, slot[2], 1'b0, slot[1:0]};
      2'd2: {side, inner} = {1'b0, slot[2:1], 2'd0, slot[0]};
      default: {side, inner} = {slot, 3'd0};
    endcase
  end
  assign unit = 4'((({4'd0, inner} * {3'd0, groups}) << bits) >> 3);
  assign unit_end = 4'(((({4'd0, inner} + 7'd1) * {3'd0, groups}) << bits) >> 3);
  assign part = integers ? {1'b0, chunk} : inner;
  assign element = integers ? {turn, 1'b0} : {unit[2:0], 5'd0} + {1'b0, turn};
  always_comb begin
    logic [13:0] row_begin;
    row_begin = {9'd0, current.path ? 5'd0 : current.row + turn[4:0]} * {5'd0, layout.head_dim}
        + (integers ? {6'd0, part[1:0], 6'd0} : {6'd0, part, 5'd0});
    if (current.values) of_block = row_begin << (layout.kind == KV_FP16);
    else of_block = integers ? {turn, 6'd0} : {element, 5'd0} << (layout.kind == KV_FP16);
    use_now = runs && go && (integers || ({1'b0, side} < current.tiles && (current.values ? {1'b0, inner} < groups
        : unit != unit_end && element < layout.head_dim)));
    one_now = runs && go && current.values && part == 3'd0;
    clear_now = runs && go && turn == 8'd0 && (!current.values || current.clear);
  end
  assign address = {base, 6'd0} + ({13'd0, side} * {7'd0, value_lines(layout)} << 6) + {2'd0, of_block}
      + (current.path ? {10'd0, current.begins} : 16'd0);
  assign weight_place = {current.tile[3:0], current.row} + {1'b0, side, 5'd0} + {1'b0, turn};

  // operands, three cycles later
  logic [511:0] w;
  kv_block blocks (
      .clk(clk),
      .heads(heads),
      .line_valid(block_valid),
      .line_where(line_where),
      .scale_valid(scale_valid),
      .scale_where({line_pass, line_where[2:0]}),
      .line_data(line_data),
      .values(current.values),
      .address(address),
      .scale_read({number, side}),
      .row(current.block_row + turn[4:0]),
      .w(w)
  );
  logic [511:0] q[32], q_1, q_high_1;
  logic [9:0] q_byte, q_high;
  logic [5:0] q_place_1, q_high_place_1;
  logic [15:0] x_2, x_3, q_value;
  logic [7:0] high_2, high_3;
  logic values_1, use_1, use_2, use_3, one_1, one_2, one_3, clear_1, clear_2, clear_3;
  logic [2:0] slot_1, slot_2, slot_3;
  assign q_byte = {4'd0, q_begin[current.head]} + (integers ? {1'b0, element} : {element, 1'b0});
  assign q_high = q_byte + 10'd1;
  assign q_value = integers ? {8'd0, q_1[{q_place_1, 3'd0}+:8]} : q_1[{q_place_1[5:1], 4'd0}+:16];
  always_ff @(posedge clk) begin
    if (q_valid) q[line_where[4:0]] <= line_data;
    q_1 <= q[{current.head, q_byte[9:6]}];
    q_high_1 <= q[{current.head, q_high[9:6]}];
    q_place_1 <= q_byte[5:0];
    q_high_place_1 <= q_high[5:0];
    values_1 <= current.values;
    x_2 <= values_1 ? weight : q_value;
    x_3 <= x_2;
    high_2 <= values_1 ? weight[7:0] : q_high_1[{q_high_place_1, 3'd0}+:8];
    high_3 <= high_2;
    {use_1, use_2, use_3} <= {use_now, use_1, use_2};
    {one_1, one_2, one_3} <= {one_now, one_1, one_2};
    {clear_1, clear_2, clear_3} <= {clear_now, clear_1, clear_2};
    slot_1 <= current.values ? {1'b1, chunk} : {1'b0, turnabout};
    slot_2 <= slot_1;
    slot_3 <= slot_2;
    if (one_3 && integers) total <= (clear_3 ? 32'd0 : total) + {24'd0, x_3[7:0]};
  end

  // thirteen cycles later a slot's last sum comes out; integers' are there after five
  logic [14:1] held_at;
  logic [13:1] hold_at;
  always_ff @(posedge clk) begin
    held_at <= rst ? '0 : {held_at[13:1], holds};
    hold_at <= rst ? '0 : {hold_at[12:1], runs && go && is_last && current.reads};
  end
  assign sums_slot = {1'b0, turnabout};
  assign held = integers ? held_at[5] : held_at[14];
  kv_lanes lanes (
      .clk(clk),
      .integers(integers),
      .w(w),
      .x(x_3),
      .x_high(high_3),
      .use_product(use_3),
      .use_one(one_3),
      .clear(clear_3),
      .integer_slot(slot_3),
      .hold(hold_at[13] && !integers),
      .hold_slot(slot + 3'd3),
      .read_column(read_column),
      .read_slot(read_slot),
      .read_other(read_other),
      .value(value),
      .other(other),
      .one_value(one_value)
  );
endmodule
