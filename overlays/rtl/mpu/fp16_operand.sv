// SPDX-License-Identifier: Apache-2.0
// An FP16 value as the lanes take it, two cycles later: signed_significand * 2^(exponent - 35).
// Subnormals are normalized: the significand has 11 bits unless the value is zero; a zero has exponent
// 0, the smallest subnormal 1. A multiplier shifts and negates. Infinity and NaN keep a significand
// that nobody reads: their flags decide.
module fp16_operand (
    input  logic               clk,
    input  logic        [15:0] value,
    output logic signed [11:0] signed_significand,
    output logic        [5:0]  exponent,
    output logic               negative,
    output logic               zero,
    output logic               infinite,
    output logic               nan
);
  logic subnormal, ones;
  logic [9:0] fraction;
  logic [11:0] reached;  // bit j: shifted left by j the leading bit is at least at bit 10
  logic signed [11:0] factor;
  logic [3:0] place;  // of a subnormal's leading bit, from 1 on
  assign fraction = value[9:0];
  assign subnormal = value[14:10] == 5'd0;
  assign ones = value[14:10] == 5'd31;
  assign reached[0] = !subnormal;
  assign reached[11] = 1'b1;
  for (genvar j = 1; j < 11; j++) begin : reach
    assign reached[j] = !subnormal || fraction[9:10-j] != '0;
  end
  always_comb begin
    place = 4'd0;
    for (int i = 0; i < 10; i++) if (fraction[i]) place = 4'(i + 1);
  end

  logic signed [11:0] significand_1, factor_1;
  logic [5:0] exponent_1;
  logic negative_1, zero_1, infinite_1, nan_1;
  // 2^j, or its negative: the bits from j on
  assign factor = reached & ({12{value[15]}} | ~{reached[10:0], 1'b0});
  always_ff @(posedge clk) begin
    significand_1 <= {1'b0, !subnormal, fraction};
    factor_1 <= factor;
    exponent_1 <= subnormal ? {2'b00, place} : {1'b0, value[14:10]} + 6'd10;
    negative_1 <= value[15];
    zero_1 <= value[14:0] == 15'd0;
    infinite_1 <= ones && fraction == 10'd0;
    nan_1 <= ones && fraction != 10'd0;
    signed_significand <= 12'(significand_1 * factor_1);
    exponent <= exponent_1;
    negative <= negative_1;
    zero <= zero_1;
    infinite <= infinite_1;
    nan <= nan_1;
  end
endmodule
