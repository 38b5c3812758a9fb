// One FP16 value, normalized: value = +-significand * 2^(exponent - 35). Subnormals are shifted up, so
// that bit 10 is set unless the value is zero; a zero has exponent 0, the smallest subnormal 1.
// Infinity and NaN keep a significand that nobody reads: their flags decide.
module fp16_unpack (
    input  logic [15:0] value,
    output logic        negative,
    output logic [10:0] significand,
    output logic [5:0]  exponent,
    output logic        zero,
    output logic        infinite,
    output logic        nan
);
  logic subnormal;
  logic [9:0] fraction;
  logic [3:0] zeros;  // leading ones of the fraction

  assign fraction = value[9:0];
  assign subnormal = value[14:10] == 5'd0;

  always_comb begin
    casez (fraction)
      10'b1?????????: zeros = 4'd0;
      10'b01????????: zeros = 4'd1;
      10'b001???????: zeros = 4'd2;
      10'b0001??????: zeros = 4'd3;
      10'b00001?????: zeros = 4'd4;
      10'b000001????: zeros = 4'd5;
      10'b0000001???: zeros = 4'd6;
      10'b00000001??: zeros = 4'd7;
      10'b000000001?: zeros = 4'd8;
      default:        zeros = 4'd9;
    endcase
  end

  assign negative = value[15];
  assign zero = value[14:0] == 15'd0;
  assign infinite = value[14:10] == 5'd31 && fraction == 10'd0;
  assign nan = value[14:10] == 5'd31 && fraction != 10'd0;
  assign significand = subnormal ? {fraction, 1'b0} << zeros : {1'b1, fraction};
  assign exponent = zero ? 6'd0 : subnormal ? 6'd10 - {2'd0, zeros} : {1'b0, value[14:10]} + 6'd10;
endmodule
