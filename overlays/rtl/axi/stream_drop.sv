// SPDX-License-Identifier: Apache-2.0
// Where a stream is stopped in the middle of a frame, the rest of that frame is taken and dropped.
module stream_drop (
    input  logic clk,
    input  logic rst,      // of where the stream comes from: it begins with a frame
    input  logic stop,     // of where it goes
    input  logic in_valid,
    output logic in_ready,
    input  logic in_last,
    output logic out_valid,
    input  logic out_ready
);
  logic begun, drops;
  assign in_ready = drops || out_ready;
  assign out_valid = in_valid && !drops;
  always_ff @(posedge clk) begin
    if (in_valid && in_ready) begun <= !in_last;
    if (drops) drops <= !(in_valid && in_last);
    else drops <= stop && begun;
    if (rst) {begun, drops} <= 2'b00;
  end
endmodule
