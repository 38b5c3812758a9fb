// SPDX-License-Identifier: Apache-2.0
// A stream of frames from wide words to halves of them, the low one first; without a gap. A word that is not its
// frame's last is full; a last one has its bytes at the low end. What is on offer stays until it is taken.
module stream_narrow #(
    parameter int BYTES = 32  // of what comes out; twice as many come in
) (
    input  logic               clk,
    input  logic               rst,
    input  logic               in_valid,
    output logic               in_ready,
    input  logic [16*BYTES-1:0] in_data,
    input  logic [2*BYTES-1:0] in_keep,
    input  logic               in_last,
    output logic               out_valid,
    input  logic               out_ready,
    output logic [8*BYTES-1:0] out_data,
    output logic [BYTES-1:0]   out_keep,
    output logic               out_last
);
  logic full, high, last, ends;
  logic [1:0][8*BYTES-1:0] data;
  logic [1:0][BYTES-1:0] keep;
  assign out_valid = full;
  assign out_data = data[high];
  assign out_keep = keep[high];
  // a last word of one half has no other
  assign ends = high || (last && keep[1] == '0);
  assign out_last = last && ends;
  assign in_ready = !full || (out_ready && ends);
  always_ff @(posedge clk) begin
    if (full && out_ready) begin
      high <= !ends;
      full <= !ends;
    end
    if (in_valid && in_ready) begin
      full <= 1'b1;
      {last, keep, data} <= {in_last, in_keep, in_data};
    end
    if (rst) {full, high} <= '0;
  end
endmodule
