// SPDX-License-Identifier: Apache-2.0
// One weight of W4A16: FP16((value - zero) * scale), one cycle (docs/numbers.md, 6.4). The product is
// exact before its rounding: 4 bits times 11.
module w4_weight (
    input  logic        clk,
    input  logic [3:0]  value,
    input  logic [3:0]  zero,
    input  logic [15:0] scale,
    output logic [15:0] made
);
  logic signed [4:0] difference;
  logic [3:0] size;
  logic [14:0] product;
  logic [4:0] exponent;  // of the scale, 1 for subnormals
  logic [2:0] right;     // so far past 11 bits
  logic [14:0] kept;
  logic [3:0] lost;      // its highest bit is worth half
  logic up, negative, special;
  logic [15:0] magnitude;
  assign difference = $signed({1'b0, value}) - $signed({1'b0, zero});
  assign size = difference[4] ? 4'(-difference) : difference[3:0];
  assign negative = scale[15] ^ difference[4];
  assign exponent = scale[14:10] == 5'd0 ? 5'd1 : scale[14:10];
  assign product = size * {4'd0, scale[14:10] != 5'd0, scale[9:0]};
  assign right = product[14] ? 3'd4 : product[13] ? 3'd3 : product[12] ? 3'd2 : {2'd0, product[11]};
  assign kept = product >> right;
  assign lost = 4'({product[3:0], 4'd0} >> right);
  assign up = lost[3] && (kept[0] || lost[2:0] != 3'd0);
  // without bit 10 the value is subnormal; a carry moves on into the exponent
  assign magnitude = kept[10]
      ? {1'b0, exponent, kept[9:0]} + {3'd0, right, 10'd0} + {15'd0, up}
      : {6'd0, kept[9:0]};
  assign special = scale[14:10] == 5'd31;
  always_ff @(posedge clk) begin
    if (special && (scale[9:0] != 10'd0 || size == 4'd0)) made <= 16'h7e00;
    else if (special || magnitude >= 16'h7c00) made <= {negative, 15'h7c00};
    else made <= {negative, magnitude[14:0]};
  end
endmodule
