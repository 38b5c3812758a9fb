// SPDX-License-Identifier: Apache-2.0
// FP32 a / b, correctly rounded, a new one each cycle, 15 cycles: two bits of the quotient a stage. For operands that are
// no subnormals and quotients that are neither subnormal nor beyond FP32, or zero, infinite or NaN by their operands.
module normal_quotient
  import float_types::*;
(
    input  logic        clk,
    input  logic        valid,
    input  logic [31:0] a,
    input  logic [31:0] b,
    output logic        quotient_valid,
    output logic [31:0] quotient
);
  localparam int STAGES = 13;  // 26 bits: 24, one more where the quotient is below 1, and one below
  logic [STAGES:0] here;
  logic [STAGES:0][2:0] special;  // NaN, infinite, zero
  logic [STAGES:0] sign;
  logic [STAGES:0][8:0] exponent;
  logic [STAGES:0][23:0] divisor;
  logic [STAGES:0][24:0] remainder;
  logic [STAGES:0][25:0] bits;

  logic a_nan, b_nan, a_infinite, b_infinite, a_zero, b_zero;
  assign a_nan = a[30:23] == 8'd255 && a[22:0] != 23'd0;
  assign b_nan = b[30:23] == 8'd255 && b[22:0] != 23'd0;
  assign a_infinite = a[30:23] == 8'd255;
  assign b_infinite = b[30:23] == 8'd255;
  assign a_zero = a[30:23] == 8'd0;
  assign b_zero = b[30:23] == 8'd0;
  always_ff @(posedge clk) begin
    here[0] <= valid;
    if (valid) begin
      special[0] <= {a_nan || b_nan || (a_infinite && b_infinite) || (a_zero && b_zero), a_infinite || b_zero,
                     a_zero || b_infinite};
      sign[0] <= a[31] ^ b[31];
      exponent[0] <= {1'b0, a[30:23]} - {1'b0, b[30:23]} + 9'd127;
      divisor[0] <= {1'b1, b[22:0]};
      remainder[0] <= {2'b01, a[22:0]};
      bits[0] <= 26'd0;
    end
  end
  for (genvar stage = 0; stage < STAGES; stage++) begin : stages
    always_ff @(posedge clk) begin
      here[stage+1] <= here[stage];
      if (here[stage]) begin
        automatic logic [25:0] first = {1'b0, remainder[stage]} - {2'b00, divisor[stage]};
        automatic logic [24:0] kept = first[25] ? {remainder[stage][23:0], 1'b0} : {first[23:0], 1'b0};
        automatic logic [25:0] second = {1'b0, kept} - {2'b00, divisor[stage]};
        special[stage+1] <= special[stage];
        sign[stage+1] <= sign[stage];
        exponent[stage+1] <= exponent[stage];
        divisor[stage+1] <= divisor[stage];
        remainder[stage+1] <= second[25] ? {kept[23:0], 1'b0} : {second[23:0], 1'b0};
        bits[stage+1] <= {bits[stage][23:0], !first[25], !second[25]};
      end
    end
  end
  always_ff @(posedge clk) begin
    quotient_valid <= here[STAGES];
    if (here[STAGES]) begin
      automatic logic whole = bits[STAGES][25];  // at least 1
      automatic logic [24:0] normal = whole ? bits[STAGES][25:1] : bits[STAGES][24:0];
      automatic logic below = remainder[STAGES] != 25'd0 || (whole && bits[STAGES][0]);
      automatic logic up = normal[0] && (normal[1] || below);
      automatic logic [7:0] biased = exponent[STAGES][7:0] - {7'd0, !whole};
      if (special[STAGES][2]) quotient <= FLOAT_NAN;
      else if (special[STAGES][1]) quotient <= {sign[STAGES], 31'h7f800000};
      else if (special[STAGES][0]) quotient <= {sign[STAGES], 31'd0};
      else quotient <= {sign[STAGES], {biased, normal[23:1]} + {30'd0, up}};
    end
  end
endmodule
