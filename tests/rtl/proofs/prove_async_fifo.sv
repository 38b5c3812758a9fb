// SPDX-License-Identifier: Apache-2.0
// Words cross between two clocks of any rates in order, none lost and none twice. A step is one in which either clock
// may rise; words count up.
module prove_async_fifo (
    input logic from_clk,
    input logic to_clk,
    input logic in_valid,
    input logic out_ready
);
  logic in_ready, out_valid;
  logic [2:0] out_word, sent, got;
  async_fifo #(
      .WIDTH(3),
      .DEPTH_BITS(2)
  ) words (
      .from_clk(from_clk),
      .from_stop(1'b0),
      .from_clear(1'b0),
      .in_valid(in_valid),
      .in_ready(in_ready),
      .in_word(sent),
      .to_clk(to_clk),
      .to_stop(1'b0),
      .to_clear(1'b0),
      .out_valid(out_valid),
      .out_ready(out_ready),
      .out_word(out_word)
  );
  always_ff @(posedge from_clk) begin
    if (in_valid && in_ready) sent <= sent + 3'd1;
  end
  always_ff @(posedge to_clk) begin
    if (out_valid && out_ready) got <= got + 3'd1;
    if (out_valid) assert (out_word == got);
  end
endmodule
