// SPDX-License-Identifier: Apache-2.0
// FP16(value * scale) of INT8 and FP16, one cycle (docs/numbers.md, 6.7). The product is exact before its
// rounding: 8 bits times 11.
module kv_weight (
    input  logic               clk,
    input  logic signed [7:0]  value,
    input  logic        [15:0] scale,
    output logic        [15:0] made
);
  logic [7:0] size;
  logic [18:0] product;
  logic [4:0] exponent;  // of the scale, 1 for subnormals
  logic [3:0] right;     // so far past 11 bits
  logic [18:0] kept;
  logic [7:0] lost;      // its highest bit is worth half
  logic up, negative, special;
  logic [15:0] magnitude;
  assign size = value[7] ? -value : value;
  assign negative = scale[15] ^ value[7];
  assign exponent = scale[14:10] == 5'd0 ? 5'd1 : scale[14:10];
  assign product = size * {8'd0, scale[14:10] != 5'd0, scale[9:0]};
  always_comb begin
    right = 4'd0;
    for (int i = 11; i < 19; i++) if (product[i]) right = 4'(i - 10);
  end
  assign kept = product >> right;
  assign lost = 8'({product[7:0], 8'd0} >> right);
  assign up = lost[7] && (kept[0] || lost[6:0] != 7'd0);
  // without bit 10 the value is subnormal; a carry moves on into the exponent
  assign magnitude = kept[10]
      ? {1'b0, exponent, kept[9:0]} + {2'd0, right, 10'd0} + {15'd0, up}
      : {6'd0, kept[9:0]};
  assign special = scale[14:10] == 5'd31;
  always_ff @(posedge clk) begin
    if (special && (scale[9:0] != 10'd0 || value == 8'sd0)) made <= 16'h7e00;
    else if (special || magnitude >= 16'h7c00) made <= {negative, 15'h7c00};
    else made <= {negative, magnitude[14:0]};
  end
endmodule
