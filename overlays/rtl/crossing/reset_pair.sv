// SPDX-License-Identifier: Apache-2.0
// Resets of two clocks whose domains exchange words: what lies between them is emptied when either side is
// reset, without a word that is torn or comes twice. `stop`: this side gives and takes nothing. `clear`: its
// pointers go to zero; by then the other side has stopped. Both sides are reset together once, at power-on,
// for at least eight cycles of the slower clock.
`ifndef LORA_FLAT  // constraints find it by its name; open synthesis joins modules
(* keep_hierarchy = "yes" *)
`endif
module reset_pair (
    input  logic a_clk,
    input  logic a_rst,
    output logic a_stop,
    output logic a_clear,
    input  logic b_clk,
    input  logic b_rst,
    output logic b_stop,
    output logic b_clear
);
  logic a_want, a_ack, b_want, b_ack;
  reset_side a (
      .clk(a_clk),
      .rst(a_rst),
      .stop(a_stop),
      .clear(a_clear),
      .want(a_want),
      .ack(a_ack),
      .their_want(b_want),
      .their_ack(b_ack)
  );
  reset_side b (
      .clk(b_clk),
      .rst(b_rst),
      .stop(b_stop),
      .clear(b_clear),
      .want(b_want),
      .ack(b_ack),
      .their_want(a_want),
      .their_ack(a_ack)
  );
endmodule
