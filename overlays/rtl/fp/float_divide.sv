// SPDX-License-Identifier: Apache-2.0
// FP32 a / b, or the square root of a, correctly rounded, subnormals kept; a bit a cycle, one at a time.
module float_divide
  import float_types::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        start,  // one cycle, while not busy
    input  logic        is_root,
    input  logic [31:0] a,
    input  logic [31:0] b,
    output logic        busy,
    output logic [31:0] result  // when it is no longer busy
);
  localparam int BITS = 27;  // 24, one more where the quotient is below 1, and two below
  typedef enum logic [1:0] {IDLE, RUN, ROUND} state_t;
  state_t state;

  // normalized operands: significand with bit 23 set, exponent of its value in 1..2
  function automatic logic [33:0] normal(input logic [31:0] value);
    logic [4:0] zeros;
    if (value[30:23] != 8'd0) return {{2'd0, value[30:23]} - 10'd127, 1'b1, value[22:0]};
    zeros = leading_zeros_32({value[22:0], 9'd0});
    return {10'd0 - 10'd127 - {5'd0, zeros}, 24'({value[22:0], 1'b0} << zeros)};
  endfunction
  logic signed [9:0] a_exponent, b_exponent;
  logic [23:0] a_significand, b_significand;
  assign {a_exponent, a_significand} = normal(a);
  assign {b_exponent, b_significand} = normal(b);
  logic a_nan, b_nan, a_infinite, b_infinite, a_zero, b_zero;
  assign a_nan = a[30:0] > 31'h7f800000;
  assign b_nan = b[30:0] > 31'h7f800000;
  assign a_infinite = a[30:0] == 31'h7f800000;
  assign b_infinite = b[30:0] == 31'h7f800000;
  assign a_zero = a[30:0] == 31'd0;
  assign b_zero = b[30:0] == 31'd0;

  logic root, sign, special;
  logic [31:0] special_result;
  logic signed [10:0] exponent;  // of a quotient whose leading bit is worth 1
  logic [5:0] count;
  logic [26:0] quotient;
  logic [29:0] remainder, divisor, trial;
  logic [53:0] rest;  // of the radicand
  assign busy = state != IDLE;
  assign trial = root ? {remainder[27:0], rest[53:52]} - {1'b0, quotient, 2'b01}
      : remainder - divisor;

  // rounding
  logic [26:0] normalized;
  logic signed [10:0] true_exponent, lack;
  logic sticky, up;
  logic [52:0] shifted;
  logic [32:0] rounded;
  always_comb begin
    normalized = quotient[26] ? quotient : {quotient[25:0], 1'b0};
    true_exponent = quotient[26] ? exponent : exponent - 11'sd1;
    lack = -11'sd126 - true_exponent;  // how far below the smallest normal
    shifted = {normalized, 26'd0} >> (lack <= 11'sd0 ? 5'd0 : lack > 11'sd26 ? 5'd26 : lack[4:0]);
    sticky = remainder != 30'd0 || shifted[27:0] != 28'd0;
    up = shifted[28] && (shifted[29] || sticky);
    rounded = {lack <= 11'sd0 ? 10'(true_exponent + 11'sd127) : 10'd0, shifted[51:29]} + {32'd0, up};
  end

  always_ff @(posedge clk) begin
    unique case (state)
      IDLE:
      if (start) begin
        state <= RUN;
        root <= is_root;
        count <= 6'(BITS);
        quotient <= 27'd0;
        sign <= is_root ? a[31] : a[31] ^ b[31];
        if (is_root) begin
          // the radicand: an even exponent, two bits before the point
          exponent <= 11'(a_exponent) >>> 1;
          remainder <= 30'd0;
          rest <= a_exponent[0] ? {a_significand, 30'd0} : {1'b0, a_significand, 29'd0};
          special <= a_nan || a_infinite || a_zero || a[31];
          special_result <= a_nan || (a[31] && !a_zero) ? FLOAT_NAN : a;
        end else begin
          exponent <= 11'(a_exponent) - 11'(b_exponent);
          remainder <= {6'd0, a_significand};
          divisor <= {6'd0, b_significand};
          special <= a_nan || b_nan || a_infinite || b_infinite || a_zero || b_zero;
          special_result <= a_nan || b_nan || (a_infinite && b_infinite) || (a_zero && b_zero) ? FLOAT_NAN
              : {a[31] ^ b[31], a_infinite || b_zero ? 31'h7f800000 : 31'd0};
        end
      end
      RUN: begin
        count <= count - 6'd1;
        quotient <= {quotient[25:0], !trial[29]};
        if (root) begin
          remainder <= trial[29] ? {remainder[27:0], rest[53:52]} : trial;
          rest <= {rest[51:0], 2'd0};
        end else begin
          remainder <= trial[29] ? {remainder[28:0], 1'b0} : {trial[28:0], 1'b0};
        end
        if (count == 6'd1) state <= ROUND;
      end
      ROUND: begin
        state <= IDLE;
        if (special) result <= special_result;
        else if (rounded[32:23] >= 10'd255) result <= {sign, 31'h7f800000};
        else result <= {sign, rounded[30:0]};
      end
      default: state <= IDLE;
    endcase
    if (rst) state <= IDLE;
  end
endmodule
