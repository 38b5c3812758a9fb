// SPDX-License-Identifier: Apache-2.0
// The FP32 sum of squares of FP16 values, one after the other (docs/numbers.md, 2.1), each sum rounded: a value a cycle.
// Squares are multiples of 2^-48 below 2^32, so no sum is subnormal or too large, and nothing cancels: the sum is 24 bits and
// an exponent, which only rises. A square is placed by that exponent before it is added. Where the sum carries, what is
// being placed moves a place down; where a square is larger than the sum's 24 bits, it waits and the sum moves, a place a cycle.
module square_sum
  import float_types::*;
(
    input  logic        clk,
    input  logic        clear,   // the sum becomes +0; no value is on its way
    input  logic        valid,
    output logic        ready,
    input  logic [15:0] half,
    input  logic        last,    // no value is left
    output logic        settled, // behind the last one: `sum` is it
    output logic [30:0] sum
);
  localparam logic [7:0] LEAST = 8'd102;  // FP32's exponent field of 2^-25, whose last place is 2^-48

  // The sum: its 24 bits, of which the first is set unless `exponent` is LEAST; what a move has left below them.
  logic [23:0] bits;
  logic [7:0] exponent;
  logic below_half, below_rest, infinite, nan;

  // 1: the square, 22 bits whose last place is 2^(place - 48); `above`: how far 25 bits are to be moved down to the sum's
  // places, three more than its own, which are below zero where the square is too large
  logic valid_1, carry, waits, empty;
  logic [10:0] significand;
  logic [4:0] field, scale;
  logic [21:0] square_1;
  logic signed [8:0] above, above_1, above_next;
  assign field = half[14:10];
  assign significand = field == 5'd31 ? 11'd0 : {field != 5'd0, half[9:0]};
  assign scale = field == 5'd0 || field == 5'd31 ? 5'd0 : field - 5'd1;
  assign above = $signed({1'b0, exponent}) - 9'(LEAST - 8'd3) - $signed({3'd0, scale, 1'b0});
  assign above_next = $signed({1'b0, exponent}) - 9'(LEAST - 8'd4) - $signed({3'd0, scale, 1'b0});
  assign waits = valid_1 && (above_1 < 9'sd0 || (above_1 == 9'sd0 && square_1[21]));
  assign ready = !waits;
  assign empty = bits == 24'd0;

  // 2: placed, with what is below the sum's last place
  logic valid_2, half_2, rest_2;
  logic [23:0] placed_2;
  logic [24:0] wide, moved;
  logic first_below, rest_below;
  always_comb begin
    wide = {square_1, 3'd0};
    {moved, first_below} = above_1[7:5] != 3'd0 ? 26'd0 : {wide, 1'b0} >> above_1[4:0];
    rest_below = 1'b0;
    for (int i = 0; i < 25; i++) rest_below |= wide[i] && above_1 > 9'(i + 1);
  end

  // 3: both sums that rounding may make, without a carry and behind one
  logic half_below, rest, carries, up, up_behind;
  logic [1:0] low;
  logic [24:0] whole, rounded, behind;
  assign half_below = half_2 || below_half;
  assign rest = rest_2 || below_rest;
  assign low = bits[1:0] + placed_2[1:0];
  assign up = half_below && (rest || low[0]);
  assign up_behind = low[0] && (half_below || rest || low[1]);
  assign whole = {1'b0, bits} + {1'b0, placed_2};
  assign rounded = {1'b0, bits} + {1'b0, placed_2} + 25'(up);
  assign behind = {1'b0, bits} + {1'b0, placed_2} + 25'(up_behind);
  assign carries = whole[24];
  assign carry = valid_2 && (carries || rounded[24]);

  // of a sum without its first bit, when it is the last one
  logic normal;
  assign normal = bits[23] || empty;
  assign settled = last && !valid_1 && !valid_2 && normal;
  assign sum = nan ? FLOAT_NAN[30:0] : infinite ? 31'h7f800000 : empty ? 31'd0 : {exponent, bits[22:0]};

  always_ff @(posedge clk) begin
    if (ready) begin
      valid_1 <= valid;
      square_1 <= {11'd0, significand} * {11'd0, significand};
      above_1 <= carry ? above_next : above;
      if (valid && field == 5'd31) begin
        if (half[9:0] == 10'd0) infinite <= 1'b1;
        else nan <= 1'b1;
      end
    end else above_1 <= above_1 + 9'(carry);

    valid_2 <= valid_1 && !waits;
    placed_2 <= carry ? moved[24:1] : moved[23:0];
    half_2 <= carry ? moved[0] : first_below;
    rest_2 <= carry ? first_below || rest_below : rest_below;

    if (valid_2) begin
      bits <= carries ? behind[24:1] : rounded[24] ? rounded[24:1] : rounded[23:0];
      exponent <= exponent + 8'(carry);
      {below_half, below_rest} <= 2'b00;
    end else if (waits && empty) begin  // a first square is placed at once
      exponent <= exponent - 8'(above_1) + 8'(square_1[21]);
      above_1 <= 9'(square_1[21]);
      {below_half, below_rest} <= {1'b0, below_half || below_rest};
    end else if (waits) begin
      bits <= bits >> 1;
      {below_half, below_rest} <= {bits[0], below_half || below_rest};
      exponent <= exponent + 8'd1;
      above_1 <= above_1 + 9'd1;
    end else if (last && !valid_1 && !normal) begin
      bits <= bits << 1;
      exponent <= exponent - 8'd1;
    end
    if (clear) begin
      {valid_1, valid_2, below_half, below_rest, infinite, nan} <= '0;
      bits <= '0;
      exponent <= LEAST;
    end
  end
endmodule
