// SPDX-License-Identifier: Apache-2.0
// Leading zeros of 29 bits, 0..28; what it gives for zero means nothing.
module leading_zeros_29 (
    input  logic [28:0] value,
    output logic [4:0]  zeros
);
  logic [31:0] whole;
  logic [15:0] half;
  logic [7:0] quarter;
  logic [3:0] eighth;
  logic none_16, none_8, none_4, none_2;
  assign whole = {value, 3'b111};
  assign none_16 = whole[31:16] == 16'd0;
  assign half = none_16 ? whole[15:0] : whole[31:16];
  assign none_8 = half[15:8] == 8'd0;
  assign quarter = none_8 ? half[7:0] : half[15:8];
  assign none_4 = quarter[7:4] == 4'd0;
  assign eighth = none_4 ? quarter[3:0] : quarter[7:4];
  assign none_2 = eighth[3:2] == 2'd0;
  assign zeros = {none_16, none_8, none_4, none_2, none_2 ? !eighth[1] : !eighth[3]};
endmodule
