// SPDX-License-Identifier: Apache-2.0
// FP32 of a signed integer of 32 bits, to nearest, ties to even: two cycles.
module int_to_float
  import float_types::*;
(
    input  logic               clk,
    input  logic               valid,
    input  logic signed [31:0] value,
    output logic               float_valid,
    output logic        [31:0] single
);
  logic valid_1, negative_1;
  logic [31:0] magnitude_1;
  logic [4:0] zeros_1;  // before the magnitude's leading bit; one more of a negative power of two
  always_ff @(posedge clk) begin
    valid_1 <= valid;
    float_valid <= valid_1;
    if (valid) begin
      negative_1 <= value[31];
      magnitude_1 <= value[31] ? -value : value;
      zeros_1 <= leading_zeros_32(unsigned'(value) ^ {32{value[31]}});
    end
    if (valid_1) begin
      automatic logic [32:0] shifted = {1'b0, magnitude_1} << zeros_1;
      automatic logic [6:0] below;  // what is lost, without waiting for the shift
      automatic logic up;
      automatic logic [31:0] rounded;  // and a bit below
      for (int i = 0; i < 7; i++) below[i] = magnitude_1[i] && zeros_1 < 5'(7 - i);
      up = shifted[7] && (shifted[8] || below != 7'd0);
      rounded = {8'd157 - {3'd0, zeros_1}, 23'd0, 1'b1} + {6'd0, shifted[32:8], up};  // `up` carries in
      if (magnitude_1 == 32'd0) single <= 32'd0;
      else single <= {negative_1, rounded[31:1]};
    end
  end
endmodule
