// SPDX-License-Identifier: Apache-2.0
// Where a stream stops in the middle of a frame, one more word ends it.
module stream_end (
    input  logic clk,
    input  logic rst,       // of where the stream goes: it begins with a frame
    input  logic stop,      // of where it comes from: it gives nothing meanwhile
    input  logic in_valid,
    output logic in_ready,
    input  logic in_last,
    output logic out_valid,
    input  logic out_ready,
    output logic out_last,
    output logic ends       // this is that word
);
  logic begun;
  assign in_ready = out_ready && !ends;
  assign out_valid = in_valid || ends;
  assign out_last = in_last || ends;
  always_ff @(posedge clk) begin
    if (out_valid && out_ready) begun <= !out_last;
    if (ends) ends <= !out_ready;
    else ends <= stop && begun;
    if (rst) {begun, ends} <= 2'b00;
  end
endmodule
