// An FP16 value as the lanes take it: normalized, its significand in two's complement, registered.
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
  logic sign, is_zero, is_infinite, is_nan;
  logic [10:0] significand;
  logic [5:0] found_exponent;
  fp16_unpack unpack (
      .value(value),
      .negative(sign),
      .significand(significand),
      .exponent(found_exponent),
      .zero(is_zero),
      .infinite(is_infinite),
      .nan(is_nan)
  );
  always_ff @(posedge clk) begin
    signed_significand <= sign ? -{1'b0, significand} : {1'b0, significand};
    exponent <= found_exponent;
    negative <= sign;
    zero <= is_zero;
    infinite <= is_infinite;
    nan <= is_nan;
  end
endmodule
