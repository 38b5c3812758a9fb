// SPDX-License-Identifier: Apache-2.0
// The FP32 adder of sums of FP16 products, eight cycles from operands to sum (docs/numbers.md, 2 and
// 3.3). A sum is mantissa * 2^(exponent - 72): 25 bits in two's complement, 2^23 <= |mantissa| <= 2^24;
// zero has exponent 0. Such sums are multiples of 2^-48 far below FP32's largest value: they are never
// subnormal, never overflow and never -0. Infinity and NaN travel beside it, as flags.
//
// Operand b is a product, whose |mantissa| may be as small as 2^22, or a sum. The larger exponent
// stays; the other mantissa is shifted right, with three bits and a sticky one below the unit. That is
// exact enough: four places or more apart, at most two leading bits cancel. A multiplier shifts right.
module sum_add (
    input  logic               clk,
    input  logic signed [24:0] a_mantissa,
    input  logic        [6:0]  a_exponent,
    input  logic signed [24:0] b_mantissa,
    input  logic        [6:0]  b_exponent,
    output logic signed [24:0] next_mantissa,  // what a register after it takes: the eighth stage
    output logic        [6:0]  next_exponent
);
  // 1: which stays, and how far apart
  logic [7:0] apart;
  logic b_stays;
  logic signed [24:0] stay_1, stay_2, stay_3;
  logic signed [25:0] move_1, move_2;  // in halves
  logic [6:0] exponent_1, exponent_2, exponent_3, exponent_4, exponent_5, exponent_6, exponent_7;
  logic [6:0] distance;
  logic [4:0] right_1;
  assign apart = {1'b0, a_exponent} - {1'b0, b_exponent};
  assign b_stays = apart[7];
  assign distance = b_stays ? ~apart[6:0] : apart[6:0];  // of b_stays one less: its shift is wired
  always_ff @(posedge clk) begin
    stay_1 <= b_stays ? b_mantissa : a_mantissa;
    move_1 <= b_stays ? {a_mantissa[24], a_mantissa} : {b_mantissa, 1'b0};
    exponent_1 <= b_stays ? b_exponent : a_exponent;
    right_1 <= distance[6:5] != 2'd0 ? 5'd31 : distance[4:0];
  end

  // 2, 3: shift right by up to 15: times 2^15 .. 2^0
  logic [15:0] factor_2;
  logic far_2, far_3;
  logic signed [41:0] moved_3;
  always_ff @(posedge clk) begin
    stay_2 <= stay_1;
    move_2 <= move_1;
    exponent_2 <= exponent_1;
    far_2 <= right_1[4];
    factor_2 <= 16'h8000 >> right_1[3:0];
    stay_3 <= stay_2;
    exponent_3 <= exponent_2;
    far_3 <= far_2;
    moved_3 <= move_2 * $signed({1'b0, factor_2});
  end

  // 4: by 16 more, and add
  logic signed [29:0] sum_4, sum_5, sum_6, sum_7;
  logic signed [27:0] moved;
  logic sticky;
  assign moved = far_3 ? {{16{moved_3[41]}}, moved_3[40:29]} : moved_3[40:13];
  assign sticky = moved_3[12:0] != 13'd0 || (far_3 && moved_3[28:13] != 16'd0);
  always_ff @(posedge clk) begin
    sum_4[29:1] <= {stay_3[24], stay_3, 3'b000} + {moved[27], moved};
    sum_4[0] <= sticky;
    exponent_4 <= exponent_3;
  end

  // 5: count the leading copies of the sign
  logic [28:0] differs;
  logic [4:0] copies, left_5;
  logic zero_5, zero_6, zero_7;
  logic [2:0] left_6;
  logic left_7;
  assign differs = sum_4[28:0] ^ {29{sum_4[29]}};
  leading_zeros_29 leading (
      .value(differs),
      .zeros(copies)
  );
  always_ff @(posedge clk) begin
    sum_5 <= sum_4;
    left_5 <= copies;
    zero_5 <= differs == 29'd0;
    exponent_5 <= exponent_4;
  end

  // 6, 7, 8: shift left by 8, 2 and 1
  logic signed [29:0] sum;
  always_ff @(posedge clk) begin
    sum_6 <= sum_5 <<< {left_5[4:3], 3'b000};
    left_6 <= left_5[2:0];
    zero_6 <= zero_5;
    exponent_6 <= exponent_5 + 7'd1 - {2'd0, left_5};
    sum_7 <= sum_6 <<< {left_6[2:1], 1'b0};
    left_7 <= left_6[0];
    zero_7 <= zero_6;
    exponent_7 <= exponent_6;
  end
  assign sum = left_7 ? {sum_7[28:0], 1'b0} : sum_7;

  // 8: round to nearest, ties to even; only a positive mantissa can outgrow 25 bits
  logic up, outgrown;
  logic signed [24:0] rounded;
  assign up = sum[4] && (sum[5] || sum[3:0] != 4'd0);
  assign rounded = sum[29:5] + {24'd0, up};
  assign outgrown = !sum[29] && rounded[24];
  assign next_mantissa = {rounded[24] && !outgrown, rounded[23] || outgrown, rounded[22:0]};
  assign next_exponent = zero_7 ? 7'd0 : exponent_7 + {6'd0, outgrown};
endmodule
