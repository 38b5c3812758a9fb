// SPDX-License-Identifier: Apache-2.0
// A sum of sum_add, with its flags, as FP32 and rounded to FP16 (docs/numbers.md, 1.2 and 3.3): one
// register deep. flags: 0 finite, 1 infinity, 2 -infinity, 3 NaN.
module sum_to_float (
    input  logic               clk,
    input  logic signed [24:0] mantissa,
    input  logic        [6:0]  exponent,
    input  logic        [1:0]  flags,
    output logic        [31:0] single,
    output logic        [15:0] half
);
  logic negative, zero;
  logic [24:0] magnitude;
  logic [23:0] significand;  // bit 23 set unless zero
  logic [7:0] biased;        // of FP32
  assign negative = mantissa[24];
  assign magnitude = negative ? -mantissa : mantissa;
  assign zero = magnitude == 25'd0;
  assign significand = magnitude[24] ? 24'h800000 : magnitude[23:0];
  assign biased = {1'b0, exponent} + 8'd78 + {7'd0, magnitude[24]};

  // FP16: normal values keep 11 bits, subnormal ones fewer; biased - 112 is FP16's exponent
  logic tiny;
  logic [4:0] right;
  logic [36:0] shifted;  // 11 kept bits and one more, then what is lost
  logic [10:0] kept;
  logic up;
  logic [14:0] finite_half;
  logic [4:0] above;  // FP16's exponent
  logic [7:0] below;  // how far under its smallest normal one
  assign above = 5'(biased - 8'd112);
  assign tiny = biased < 8'd113;
  assign below = 8'd113 - biased;
  assign right = !tiny ? 5'd0 : below > 8'd13 ? 5'd13 : below[4:0];
  assign shifted = {significand, 13'd0} >> right;
  assign kept = shifted[36:26];
  assign up = shifted[25] && (shifted[26] || shifted[24:0] != 25'd0);
  // a significand that rounds up to the next power of two carries into the exponent, as it should
  assign finite_half = tiny ? {4'd0, kept} + {14'd0, up}
                            : {above, kept[9:0]} + {14'd0, up};
  logic over;
  assign over = biased > 8'd142 || (!tiny && finite_half >= 15'h7c00);

  always_ff @(posedge clk) begin
    if (flags == 2'd3) begin
      single <= 32'h7fc00000;
      half <= 16'h7e00;
    end else if (flags != 2'd0) begin
      single <= {flags[1], 31'h7f800000};
      half <= {flags[1], 15'h7c00};
    end else if (zero) begin
      single <= 32'd0;
      half <= 16'd0;
    end else begin
      single <= {negative, biased, significand[22:0]};
      half <= {negative, over ? 15'h7c00 : finite_half};
    end
  end
endmodule
