// SPDX-License-Identifier: Apache-2.0
// Asks for what a factor's sums need, round by round as fp16_schedule takes it: of each segment one unit of 32
// columns (ranks of B). Of A these are a line of x and the values of eight ranks: 16 bytes a column, from any
// column on. Of B they are the lines of the unit's ranks; x is h then, and lies elsewhere. Ranks or columns that
// the factor does not hold are not asked for.
module factor_fetch
  import mpu_types::segment_start;
  import adapter_types::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        start,        // one cycle
    input  logic        down,         // A, else B
    input  logic [15:0] k,            // what is cut into segments: columns of x, ranks of the adapter
    input  logic [15:0] first,        // of k, that the factor holds
    input  logic [15:0] range_end,
    input  logic [31:0] base,         // where k = 0 would lie in the slot: of A in 16 bytes, of B in lines
    input  logic [15:0] stripe_step,  // A: the next eight ranks lie so far behind
    input  logic [30:0] x_line,
    input  logic [7:0]  stripes,
    input  logic        whole,        // all of k fits one round, and all stripes are in its lines
    output logic        run_valid,
    input  logic        run_ready,
    output run_t        run,
    input  logic        line_valid,   // of x, or values
    input  logic        line_side,
    input  logic        round_free,   // one cycle: the older side has been read
    output logic [1:0]  round_ready   // this side is complete
);
  typedef enum logic [2:0] {IDLE, SIDE, LOOK, ASK_X, ASK_VALUES, ROUND} state_t;
  state_t state;
  logic [10:0] units, unit, unit_end, rounds, round;
  logic [2:0] segment;
  logic [7:0] stripe;
  logic [31:0] stripe_base, q_low, q_last;
  logic [15:0] low, high, unit_low, unit_high;
  logic side, free_side, push;
  logic [1:0] taken, finished;
  logic [1:0][8:0] waiting;
  logic [6:0] phased;  // of A: columns of the unit's first line that come before it, and those before `low`

  assign units = 11'((k + 16'd31) >> 5);
  assign rounds = (units + 11'd7) >> 3;
  assign unit = segment_start({1'b0, segment}, units) + round;
  assign unit_end = segment_start({1'b0, segment} + 4'd1, units);
  assign unit_low = {unit, 5'd0};
  assign unit_high = unit_low + 16'd32;
  assign low = unit_low > first ? unit_low : first;
  assign high = unit_high < range_end ? unit_high : range_end;
  assign q_low = stripe_base + {16'd0, low};
  assign q_last = stripe_base + {16'd0, high} - 32'd1;
  assign phased = {5'd0, stripe_base[1:0]} + {2'd0, low[4:0]};

  assign run_valid = state == ASK_X || state == ASK_VALUES;
  always_comb begin
    run = '{in_slot: 1'b1, line: q_low[30:0], count: 6'(high - low), kind: LINE_VALUES,
            where: {side, segment, low[4:0]}};
    if (down) begin
      run.line = {1'b0, q_low[31:2]};
      run.count = 6'(q_last[31:2] - q_low[31:2]) + 6'd1;
      run.where = {side, segment, phased[6:2]};
    end
    if (state == ASK_X) begin
      run = '{in_slot: 1'b0, line: x_line + {20'd0, unit}, count: 6'd1, kind: LINE_OF_X,
              where: {side, segment, 5'd0}};
    end
  end
  assign push = run_valid && run_ready;
  for (genvar s = 0; s < 2; s++) begin : ready
    assign round_ready[s] = whole ? finished[0] && waiting[0] == 9'd0 : finished[s] && waiting[s] == 9'd0;
  end

  always_ff @(posedge clk) begin
    for (int s = 0; s < 2; s++) begin
      waiting[s] <= waiting[s] + (push && side == s[0] ? {3'd0, run.count} : 9'd0) -
                    {8'd0, line_valid && line_side == s[0]};
    end
    if (round_free && !whole) begin
      taken[free_side] <= 1'b0;
      finished[free_side] <= 1'b0;
      free_side <= !free_side;
    end
    unique case (state)
      SIDE:
      if (!taken[side]) begin
        taken[side] <= 1'b1;
        state <= LOOK;
      end
      LOOK:
      if (unit < unit_end && low < high) state <= down ? ASK_X : ASK_VALUES;
      else begin
        segment <= segment + 3'd1;
        if (segment == 3'd7) state <= ROUND;
      end
      ASK_X: if (push) state <= ASK_VALUES;
      ASK_VALUES:
      if (push) begin
        segment <= segment + 3'd1;
        state <= segment == 3'd7 ? ROUND : LOOK;
      end
      ROUND: begin
        finished[side] <= 1'b1;
        side <= !side;
        round <= round + 11'd1;
        state <= whole ? IDLE : SIDE;
        if (round + 11'd1 == rounds) begin
          round <= 11'd0;
          stripe <= stripe + 8'd1;
          stripe_base <= stripe_base + {16'd0, stripe_step};
          if (stripe + 8'd1 == stripes) state <= IDLE;
        end
      end
      default: ;
    endcase
    if (start) begin
      state <= SIDE;
      segment <= 3'd0;
      round <= 11'd0;
      stripe <= 8'd0;
      stripe_base <= base;
      side <= 1'b0;
      free_side <= 1'b0;
      taken <= 2'b00;
      finished <= 2'b00;
    end
    if (rst) begin
      state <= IDLE;
      taken <= 2'b00;
      finished <= 2'b00;
      waiting <= '0;
    end
  end
endmodule
