// SPDX-License-Identifier: Apache-2.0
// A stream of frames from halves to whole words, the low half first; a half comes each cycle. A frame that ends in
// a low half has zeros above it, without keep. What is on offer stays until it is taken.
module stream_widen #(
    parameter int BYTES = 32  // of what comes in; twice as many go out
) (
    input  logic                clk,
    input  logic                rst,
    input  logic                in_valid,
    output logic                in_ready,
    input  logic [8*BYTES-1:0]  in_data,
    input  logic [BYTES-1:0]    in_keep,
    input  logic                in_last,
    output logic                out_valid,
    input  logic                out_ready,
    output logic [16*BYTES-1:0] out_data,
    output logic [2*BYTES-1:0]  out_keep,
    output logic                out_last
);
  logic has_low, take;
  logic [8*BYTES-1:0] low;
  assign in_ready = !out_valid || out_ready;
  assign take = in_valid && in_ready;
  always_ff @(posedge clk) begin
    if (out_ready) out_valid <= 1'b0;
    if (take) begin
      has_low <= !has_low && !in_last;
      if (!has_low) low <= in_data;
      out_valid <= has_low || in_last;
      out_last <= in_last;
      out_data <= has_low ? {in_data, low} : {(8 * BYTES)'(0), in_data};
      out_keep <= has_low ? {in_keep, BYTES'('1)} : {BYTES'(0), in_keep};
    end
    if (rst) {has_low, out_valid} <= '0;
  end
endmodule
