// SPDX-License-Identifier: Apache-2.0
// Says what the lanes do in each cycle. A turn is eight cycles, a slot a segment. A stripe of columns
// takes 32 turns a round, or k where k is less, then three turns for the tree and one for the bias; its results
// leave while the next stripe runs. Where data is late a turn adds nothing: +0 changes no sum.
//
// A sum comes out of the adder in the slot in which it went in:
//   tree, turn 1: slots 1 3 5 7 add what slots 0 2 4 6 gave, held for two slots
//   tree, turn 2: slots 3 7 add what slots 1 5 gave
//   tree, turn 3: slot 7 adds what slot 3 gave;  bias: slot 7
module fp16_schedule
  import mpu_types::*;
#(
    parameter int LANES = 32
) (
    input  logic        clk,
    input  logic        rst,
    input  logic        start,  // one cycle: all stripes; idle before
    input  command_t    command,
    input  logic [31:0] stripes,
    output logic        busy,
    input  logic [1:0]  round_ready,
    output logic        round_free,
    input  logic        store_free,  // the stripe before has been stored
    // addresses: data is at the lanes one cycle later
    output logic [9:0]  stream_address,  // of the stream buffer: 512 and up: a bias
    output logic [9:0]  x_unit,
    output logic [4:0]  stripe_now,
    output logic [4:0]  stripe_part,     // one cycle later
    output logic [4:0]  x_column,        // one cycle later
    output logic        x_is_one,        // one cycle later
    // controls of fp16_lanes, each at its time
    output logic        use_product,
    output logic        join_hold,
    output logic        hold_load,
    output logic        sum_clear,
    output logic        flags_take,
    output logic        result_valid,  // the lanes hold results: of this column now
    output logic [4:0]  result_column
);
  typedef enum logic [2:0] {IDLE, REST, SUM, TREE_1, TREE_2, TREE_3, BIAS} turn_t;
  typedef struct packed {  // what fits the product, four cycles after its addresses
    logic join_hold;
    logic hold_load;
    logic sum_clear;
    logic flags_take;
    logic result;
  } control_t;

  turn_t turn, following;
  logic first;  // turn of a stripe
  logic [2:0] slot;
  logic [4:0] column, last_column;
  logic [10:0] units, rounds, round, unit, unit_end;
  logic side;
  logic [31:0] stripe;
  logic summed;   // all rounds of the stripe are done
  logic leaving;  // the stripe before has results that have not left
  logic last_slot, round_done, all_done, have_result;
  control_t control, control_1, control_2, control_3, control_4;
  logic in_range, use_now;

  assign units = 11'((command.k + 16'd31) >> 5);
  assign rounds = (units + 11'd7) >> 3;
  assign unit = segment_start({1'b0, slot}, units) + round;
  assign unit_end = segment_start({1'b0, slot} + 4'd1, units);
  assign last_slot = slot == 3'd7;
  assign last_column = units == 11'd1 ? 5'(command.k - 16'd1) : 5'd31;
  assign round_done = turn == SUM && column == last_column && last_slot;
  assign in_range = unit < unit_end && {unit, column} < command.k;
  assign use_now = turn == SUM ? in_range : turn == BIAS && last_slot && command.has_bias;
  assign stream_address = turn == BIAS ? {8'h80, stripe[1:0]} : {1'b0, side, slot, column};
  assign x_unit = unit[9:0];
  assign stripe_now = stripe[4:0];
  assign round_free = round_done;
  assign busy = turn != IDLE;

  // the turn after this one
  logic next_summed, next_side;
  assign next_summed = summed || (round_done && round + 11'd1 == rounds);
  assign next_side = side ^ round_done;
  assign all_done = stripe == stripes;
  always_comb begin
    unique case (turn)
      TREE_1: following = TREE_2;
      TREE_2: following = TREE_3;
      TREE_3: following = BIAS;
      default: begin
        following = REST;
        if (turn == SUM && column != last_column) following = SUM;
        else if (turn == REST && all_done) following = IDLE;
        else if (turn == BIAS && stripe + 32'd1 == stripes) following = REST;
        else if (turn != BIAS && next_summed) following = store_free && !leaving ? TREE_1 : REST;
        else if (round_ready[next_side]) following = SUM;
      end
    endcase
  end

  always_comb begin
    control = '0;
    control.sum_clear = turn == IDLE || (turn == BIAS && last_slot) || (first && !last_slot);
    control.flags_take = first && slot == 3'd0 && turn != IDLE;
    unique case (turn)
      TREE_1: begin
        control.join_hold = slot[0];
        control.hold_load = slot[0] && !last_slot;
      end
      TREE_2: begin
        control.join_hold = slot[1:0] == 2'd3;
        control.hold_load = slot[1:0] == 2'd0;
      end
      TREE_3: begin
        control.join_hold = last_slot;
        control.hold_load = slot == 3'd2;
      end
      default: control.hold_load = last_slot && following == TREE_1;
    endcase
    if (first && slot == 3'd6 && have_result) begin
      control.hold_load = 1'b1;
      control.result = 1'b1;
    end
  end

  always_ff @(posedge clk) begin
    slot <= slot + 3'd1;
    if (last_slot) begin
      turn <= following;
      first <= turn == BIAS;
      if (turn == SUM) column <= column == last_column ? 5'd0 : column + 5'd1;
      if (round_done) begin
        side <= !side;
        round <= round + 11'd1;
      end
      summed <= next_summed;
      if (turn == BIAS) begin
        summed <= 1'b0;
        round <= 11'd0;
        stripe <= stripe + 32'd1;
        have_result <= 1'b1;
        leaving <= 1'b1;
      end
    end
    if (turn == IDLE) begin
      slot <= 3'd0;
      turn <= start ? REST : IDLE;
      first <= 1'b1;
      column <= 5'd0;
      round <= 11'd0;
      side <= 1'b0;
      stripe <= 32'd0;
      summed <= 1'b0;
      have_result <= 1'b0;
    end
    if (result_valid && result_column == 5'(LANES - 1)) leaving <= 1'b0;
    if (rst) begin
      turn <= IDLE;
      leaving <= 1'b0;
    end
  end

  // towards the lanes
  always_ff @(posedge clk) begin
    use_product <= use_now;
    x_column <= column;
    stripe_part <= stripe[4:0];
    x_is_one <= turn == BIAS;
    control_1 <= control;
    control_2 <= control_1;
    control_3 <= control_2;
    control_4 <= control_3;
    if (control_4.result) begin
      result_valid <= 1'b1;
      result_column <= 5'd0;
    end else begin
      if (result_column == 5'(LANES - 1)) result_valid <= 1'b0;
      result_column <= result_column + 5'd1;
    end
    if (rst) begin
      control_1 <= '{sum_clear: 1'b1, default: 1'b0};
      control_2 <= '{sum_clear: 1'b1, default: 1'b0};
      control_3 <= '{sum_clear: 1'b1, default: 1'b0};
      control_4 <= '{sum_clear: 1'b1, default: 1'b0};
      result_valid <= 1'b0;
    end
  end
  assign join_hold = control_4.join_hold;
  assign hold_load = control_4.hold_load;
  assign sum_clear = control_4.sum_clear;
  assign flags_take = control_4.flags_take;
endmodule
