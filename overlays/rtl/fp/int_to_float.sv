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
  always_ff @(posedge clk) begin
    valid_1 <= valid;
    float_valid <= valid_1;
    if (valid) begin
      negative_1 <= value[31];
      magnitude_1 <= value[31] ? -value : value;
    end
    if (valid_1) begin
      automatic logic [4:0] zeros = leading_zeros_32(magnitude_1);
      automatic logic [31:0] shifted = magnitude_1 << zeros;
      automatic logic up = shifted[7] && (shifted[8] || shifted[6:0] != 7'd0);
      if (magnitude_1 == 32'd0) single <= 32'd0;
      else single <= {negative_1, {8'd158 - {3'd0, zeros}, shifted[30:8]} + {30'd0, up}};
    end
  end
endmodule
