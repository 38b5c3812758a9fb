// SPDX-License-Identifier: Apache-2.0
// FP32 a / b, correctly rounded, subnormals kept: one a cycle, 30 cycles later. Stages without a value keep still.
module float_quotient
  import float_types::*;
(
    input  logic        clk,
    input  logic        valid,
    input  logic [31:0] a,
    input  logic [31:0] b,
    output logic        quotient_valid,
    output logic [31:0] quotient
);
  localparam int BITS = 27;  // 24, one more where the quotient is below 1, and two below
  // normalized operands: significand with bit 23 set, exponent of its value in 1..2
  function automatic logic [33:0] normal(input logic [31:0] of);
    logic [4:0] zeros;
    if (of[30:23] != 8'd0) return {{2'd0, of[30:23]} - 10'd127, 1'b1, of[22:0]};
    zeros = leading_zeros_32({of[22:0], 9'd0});
    return {10'd0 - 10'd127 - {5'd0, zeros}, 24'({of[22:0], 1'b0} << zeros)};
  endfunction

  // what travels beside the bits
  typedef struct packed {
    logic               sign;
    logic               special;  // the result is one of the next three
    logic               nan;
    logic               infinite;  // else zero
    logic signed [10:0] exponent;  // of a quotient whose leading bit is worth 1
  } beside_t;
  logic valids[BITS+1];
  beside_t beside[BITS+1];
  logic [24:0] remainder[BITS+1];
  logic [23:0] divisor[BITS+1];
  logic [BITS-1:0] bits[BITS+1];
  always_ff @(posedge clk) begin
    valids[0] <= valid;
    if (valid) begin
      automatic logic [33:0] a_normal = normal(a), b_normal = normal(b);
      automatic logic a_nan = a[30:0] > 31'h7f800000, b_nan = b[30:0] > 31'h7f800000;
      automatic logic a_infinite = a[30:0] == 31'h7f800000, b_infinite = b[30:0] == 31'h7f800000;
      automatic logic a_zero = a[30:0] == 31'd0, b_zero = b[30:0] == 31'd0;
      remainder[0] <= {1'b0, a_normal[23:0]};
      divisor[0] <= b_normal[23:0];
      bits[0] <= '0;
      beside[0].sign <= a[31] ^ b[31];
      beside[0].special <= a_nan || b_nan || a_infinite || b_infinite || a_zero || b_zero;
      beside[0].nan <= a_nan || b_nan || (a_infinite && b_infinite) || (a_zero && b_zero);
      beside[0].infinite <= a_infinite || b_zero;
      beside[0].exponent <= 11'($signed(a_normal[33:24])) - 11'($signed(b_normal[33:24]));
    end
  end
  for (genvar i = 0; i < BITS; i++) begin : steps
    logic [25:0] trial;
    assign trial = {1'b0, remainder[i]} - {2'd0, divisor[i]};
    always_ff @(posedge clk) begin
      valids[i+1] <= valids[i];
      if (valids[i]) begin
        beside[i+1] <= beside[i];
        divisor[i+1] <= divisor[i];
        bits[i+1] <= {bits[i][BITS-2:0], !trial[25]};
        remainder[i+1] <= trial[25] ? {remainder[i][23:0], 1'b0} : {trial[23:0], 1'b0};
      end
    end
  end

  // how far right, then round
  logic valid_1, sticky_1;
  beside_t beside_1;
  logic [9:0] field_1;
  logic [52:0] shifted_1;
  always_ff @(posedge clk) begin
    valid_1 <= valids[BITS];
    if (valids[BITS]) begin
      automatic logic [BITS-1:0] all = bits[BITS];
      automatic logic [BITS-1:0] whole = all[BITS-1] ? all : {all[BITS-2:0], 1'b0};
      automatic logic signed [10:0] exponent = beside[BITS].exponent - (all[BITS-1] ? 11'sd0 : 11'sd1);
      automatic logic signed [10:0] lack = -11'sd126 - exponent;  // below the smallest normal
      beside_1 <= beside[BITS];
      sticky_1 <= remainder[BITS] != 25'd0;
      shifted_1 <= {whole, 26'd0} >> (lack <= 11'sd0 ? 5'd0 : lack > 11'sd26 ? 5'd26 : lack[4:0]);
      field_1 <= lack <= 11'sd0 ? 10'(exponent + 11'sd127) : 10'd0;
    end
    quotient_valid <= valid_1;
    if (valid_1) begin
      automatic logic up = shifted_1[28] && (shifted_1[29] || sticky_1 || shifted_1[27:0] != 28'd0);
      automatic logic [32:0] rounded = {field_1, shifted_1[51:29]} + {32'd0, up};
      if (beside_1.special) quotient <= beside_1.nan ? FLOAT_NAN : {beside_1.sign, beside_1.infinite ? 31'h7f800000 : 31'd0};
      else if (rounded[32:23] >= 10'd255) quotient <= {beside_1.sign, 31'h7f800000};
      else quotient <= {beside_1.sign, rounded[30:0]};
    end
  end
endmodule
