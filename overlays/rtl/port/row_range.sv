// SPDX-License-Identifier: Apache-2.0
// Whether rows of an operand begin at whole elements and, in the on-chip buffer, end within it. Where they lie in other
// banks the memory port knows.
module row_range
  import abi_types::*;
(
    input  logic        clk,
    input  logic [7:0]  bank,
    input  logic [31:0] offset,
    input  logic [31:0] stride,
    input  logic [5:0]  more,          // rows behind the first
    input  logic [31:0] bytes,         // of a row
    input  logic [1:0]  element,       // log2 of an element's bytes
    input  logic [31:0] onchip_bytes,
    output logic        fits           // a cycle later
);
  logic [39:0] reach;
  logic placed, onchip;
  assign fits = placed && (!onchip || reach <= 40'(onchip_bytes));
  always_ff @(posedge clk) begin
    reach <= 40'(offset) + 40'(stride) * 40'(more) + 40'(bytes);
    onchip <= bank == 8'(LORA_BANK_ONCHIP);
    placed <= bank <= 8'(LORA_BANK_ONCHIP) && ((offset | stride) & ~(32'hffff_ffff << element)) == 32'd0;
  end
endmodule
