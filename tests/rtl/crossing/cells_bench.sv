// SPDX-License-Identifier: Apache-2.0
// All cells between the same two clocks, a to b; the driver is cells.cpp.
module cells_bench (
    input  logic         a_clk,
    input  logic         a_rst,
    output logic         a_stop,
    input  logic         b_clk,
    input  logic         b_rst,
    output logic         b_stop,
    input  logic         bit_d,
    output logic         bit_q,
    input  logic         reset_d,
    output logic         reset_q,
    input  logic [3:0]   in_valid,   // pulse, word, shallow FIFO, deep FIFO
    output logic [3:0]   in_ready,
    input  logic [127:0] in_word[4],
    output logic [3:0]   out_valid,
    input  logic [3:0]   out_ready,
    output logic [127:0] out_word[4]
);
  logic a_clear, b_clear, bit_a, reset_a;
  always_ff @(posedge a_clk) begin
    bit_a <= bit_d;
    reset_a <= reset_d;
  end
  reset_pair resets (
      .a_clk(a_clk),
      .a_rst(a_rst),
      .a_stop(a_stop),
      .a_clear(a_clear),
      .b_clk(b_clk),
      .b_rst(b_rst),
      .b_stop(b_stop),
      .b_clear(b_clear)
  );
  bit_sync level (
      .clk(b_clk),
      .d(bit_a),
      .q(bit_q)
  );
  reset_sync reset (
      .clk(b_clk),
      .request(reset_a),
      .rst(reset_q)
  );
  pulse_cross pulses (
      .from_clk(a_clk),
      .from_stop(a_stop),
      .from_clear(a_clear),
      .in_valid(in_valid[0]),
      .in_ready(in_ready[0]),
      .to_clk(b_clk),
      .to_stop(b_stop),
      .to_clear(b_clear),
      .out_pulse(out_valid[0])
  );
  assign out_word[0] = '0;
  word_cross #(
      .WIDTH(128)
  ) word (
      .from_clk(a_clk),
      .from_stop(a_stop),
      .from_clear(a_clear),
      .in_valid(in_valid[1]),
      .in_ready(in_ready[1]),
      .in_word(in_word[1]),
      .to_clk(b_clk),
      .to_stop(b_stop),
      .to_clear(b_clear),
      .out_valid(out_valid[1]),
      .out_ready(out_ready[1]),
      .out_word(out_word[1])
  );
  for (genvar i = 2; i < 4; i++) begin : fifos
    async_fifo #(
        .WIDTH(128),
        .DEPTH_BITS(i == 2 ? 2 : 4)
    ) fifo (
        .from_clk(a_clk),
        .from_stop(a_stop),
        .from_clear(a_clear),
        .in_valid(in_valid[i]),
        .in_ready(in_ready[i]),
        .in_word(in_word[i]),
        .to_clk(b_clk),
        .to_stop(b_stop),
        .to_clear(b_clear),
        .out_valid(out_valid[i]),
        .out_ready(out_ready[i]),
        .out_word(out_word[i])
    );
  end
endmodule
