// SPDX-License-Identifier: Apache-2.0
// Products of attention of one block: scores of a query with 32 positions of K (docs/numbers.md, 2), or sums
// of weighted rows of V, position after position (3.8). A turn is eight cycles. Of K a slot is a segment of
// head_dim, of V 32 columns. Then the sums are read, slot by slot.
module kv_sums
  import attention_types::*;
(
    input  logic         clk,
    input  logic         rst,
    input  layout_t      layout,
    // memory
    input  logic         block_valid,
    input  logic         q_valid,
    input  logic [8:0]   line_where,
    input  logic [511:0] line_data,
    input  logic [5:0]   q_begin,     // of the head's q in its first line
    // weights e of a tile
    input  logic         weight_valid,
    input  logic [2:0]   weight_beat,
    input  logic [3:0][15:0] weights,
    // work, one cycle each; held until no longer busy
    input  logic         score,       // K, and read all segments
    input  logic         weigh,       // V
    input  logic         read_sums,   // of V
    input  logic [4:0]   row,         // first of V
    input  logic [4:0]   position,    // in the tile, of the first
    input  logic [5:0]   count,       // positions
    input  logic         first,       // sums begin at +0
    output logic         busy,
    output logic         sum_valid,
    output logic [2:0]   sum_slot,
    output logic [2:0]   sum_beat,
    output logic [3:0][31:0] sums,
    output logic [31:0]  sum_e
);
  typedef enum logic [2:0] {IDLE, ALIGN, TURNS, SETTLE, HOLD, READ} state_t;
  state_t state;
  logic [2:0] slot;  // runs on
  logic values;      // V
  logic integers, half_size;
  logic reads_after;
  logic [5:0] turn, turns;
  logic [3:0] settled, groups, slots;
  logic [2:0] reading, beat;
  logic [8:0] units;
  assign integers = layout.kind == KV_INT8;
  assign half_size = layout.kind != KV_FP16;
  assign units = (layout.head_dim + 9'd31) >> 5;
  assign groups = units[3:0];
  assign turns = values ? count : layout.head_dim < 9'd32 ? layout.head_dim[5:0] : 6'd32;
  assign slots = values ? groups : integers ? 4'd1 : 4'd8;
  assign busy = state != IDLE;

  // what this slot multiplies
  logic [3:0] unit, unit_end;
  logic [8:0] element;  // of q
  logic use_now, one_now, clear_now;
  logic [13:0] value;   // of the block, the first of 32
  assign unit = 4'(({4'd0, slot} * {3'd0, groups}) >> 3);
  assign unit_end = 4'((({4'd0, slot} + 7'd1) * {3'd0, groups}) >> 3);
  assign element = {unit[2:0], 5'd0} + {3'd0, turn};
  always_comb begin
    if (values) begin
      value = {9'd0, row + turn[4:0]} * {5'd0, layout.head_dim} + {6'd0, slot, 5'd0};
      use_now = state == TURNS && {1'b0, slot} < groups;
    end else begin
      value = {element, 5'd0};
      use_now = state == TURNS && unit != unit_end && element < layout.head_dim;
    end
    one_now = state == TURNS && values && slot == 3'd0;
    clear_now = state == TURNS && turn == 6'd0 && (values ? first : !integers || slot == 3'd0);
  end

  // operands, three cycles later
  logic [511:0] w;
  kv_block block (
      .clk(clk),
      .layout(layout),
      .line_valid(block_valid),
      .line_where(line_where),
      .line_data(line_data),
      .values(values),
      .address(half_size ? value : value << 1),
      .row(row + turn[4:0]),
      .w(w)
  );
  logic [511:0] q[16];
  logic [31:0][15:0] e;
  logic [511:0] q_1;
  logic [9:0] q_byte;
  logic [5:0] q_place_1;
  logic [15:0] e_1, x_2, x_3, q_value;
  logic [4:0] at;
  assign at = position + turn[4:0];
  assign q_byte = {4'd0, q_begin} + (integers ? {1'b0, element} : {element, 1'b0});
  assign q_value = integers ? {8'd0, q_1[{q_place_1, 3'd0}+:8]} : q_1[{q_place_1[5:1], 4'd0}+:16];
  logic use_1, use_2, use_3, one_1, one_2, one_3, clear_1, clear_2, clear_3;
  logic [2:0] slot_1, slot_2, slot_3;
  always_ff @(posedge clk) begin
    if (q_valid) q[line_where[3:0]] <= line_data;
    if (weight_valid) e[{weight_beat, 2'd0}+:4] <= weights;
    q_1 <= q[q_byte[9:6]];
    q_place_1 <= q_byte[5:0];
    e_1 <= e[at];
    x_2 <= values ? e_1 : q_value;
    x_3 <= x_2;
    {use_1, use_2, use_3} <= {use_now, use_1, use_2};
    {one_1, one_2, one_3} <= {one_now, one_1, one_2};
    {clear_1, clear_2, clear_3} <= {clear_now, clear_1, clear_2};
    slot_1 <= values ? slot : 3'd0;
    slot_2 <= slot_1;
    slot_3 <= slot_2;
  end
  kv_lanes lanes (
      .clk(clk),
      .integers(integers),
      .w(w),
      .x(x_3),
      .use_product(use_3),
      .use_one(one_3),
      .clear(clear_3),
      .integer_slot(slot_3),
      .hold(state == HOLD && slot == reading + 3'd5),
      .read_slot(reading),
      .beat(beat),
      .values(sums),
      .one_value(sum_e)
  );

  always_ff @(posedge clk) begin
    slot <= slot + 3'd1;
    sum_valid <= state == READ;
    sum_slot <= reading;
    sum_beat <= beat;
    unique case (state)
      ALIGN: if (slot == 3'd7) state <= TURNS;
      TURNS:
      if (slot == 3'd7) begin
        turn <= turn + 6'd1;
        if (turn + 6'd1 == turns) state <= reads_after ? SETTLE : IDLE;
      end
      SETTLE: begin  // the last products are in their sums
        settled <= settled + 4'd1;
        if (settled == 4'd15) state <= HOLD;
      end
      HOLD: if (slot == reading + 3'd5) state <= READ;
      READ: begin
        beat <= beat + 3'd1;
        if (beat == 3'd7) begin
          reading <= reading + 3'd1;
          state <= {1'b0, reading} + 4'd1 == slots ? IDLE : HOLD;
        end
      end
      default: ;
    endcase
    if (score || weigh || read_sums) begin
      state <= read_sums ? SETTLE : ALIGN;
      values <= !score;
      reads_after <= score;
      turn <= 6'd0;
      settled <= 4'd0;
      reading <= 3'd0;
      beat <= 3'd0;
    end
    if (rst) begin
      state <= IDLE;
      slot <= 3'd0;
    end
  end
endmodule
