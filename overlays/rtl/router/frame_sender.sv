// SPDX-License-Identifier: Apache-2.0
// Frames on their way to a link: a frame leaves once it is whole, so none is ever cut short.
module frame_sender
  import router_types::*;
(
    input  logic         clk,
    input  logic         rst,
    output logic         has_room,
    input  logic         write_valid,
    input  logic [6:0]   write_line,
    input  logic [511:0] write_data,
    input  logic         commit,
    input  logic [12:0]  commit_bytes,
    // stream
    output logic         tx_valid,
    input  logic         tx_ready,
    output logic [511:0] tx_data,
    output logic [63:0]  tx_keep,
    output logic         tx_last
);
  logic [2:0] free;
  logic head_valid, read_enable;
  logic [12:0] bytes;
  logic [6:0] at, last_line;
  assign has_room = free != 3'd0;
  assign last_line = 7'((bytes - 13'd1) >> 6);
  assign read_enable = head_valid && (!tx_valid || tx_ready);

  frame_buffer #(
      .NOTE_BITS(13)
  ) frames (
      .clk(clk),
      .rst(rst),
      .free(free),
      .write_valid(write_valid),
      .write_line(write_line),
      .write_data(write_data),
      .commit(commit),
      .write_note(commit_bytes),
      .head_valid(head_valid),
      .head_note(bytes),
      .read_enable(read_enable),
      .read_line(at),
      .read_data(tx_data),
      .pop(read_enable && at == last_line)
  );

  always_ff @(posedge clk) begin
    if (read_enable) begin
      tx_valid <= 1'b1;
      tx_last <= at == last_line;
      tx_keep <= at == last_line ? bytes_from(6'd0, 7'(6'(bytes - 13'd1)) + 7'd1) : '1;
      at <= at == last_line ? 7'd0 : at + 7'd1;
    end else if (tx_ready) tx_valid <= 1'b0;
    if (rst) begin
      tx_valid <= 1'b0;
      at <= 7'd0;
    end
  end
endmodule
