// SPDX-License-Identifier: Apache-2.0
// One side of reset_pair.
`ifndef LORA_FLAT  // constraints find it by its name; open synthesis joins modules
(* keep_hierarchy = "yes" *)
`endif
module reset_side (
    input  logic clk,
    input  logic rst,
    output logic stop,
    output logic clear,
    // flops, to the other side
    output logic want,
    output logic ack,
    // the other side's
    input  logic their_want,
    input  logic their_ack
);
  typedef enum logic [1:0] {IDLE, BEGIN, WANT, LEAVE} state_t;
  state_t state;
  logic sees_want, sees_ack;
  bit_sync wants (
      .clk(clk),
      .d(their_want),
      .q(sees_want)
  );
  bit_sync answers (
      .clk(clk),
      .d(their_ack),
      .q(sees_ack)
  );
  assign stop = rst || state != IDLE || sees_want || ack;
  assign clear = sees_want || (state == WANT && sees_ack);
  always_ff @(posedge clk) begin
    case (state)
      IDLE: if (rst) state <= BEGIN;
      BEGIN: if (!sees_ack) state <= WANT;  // of an earlier request
      WANT: if (sees_ack && !rst) state <= LEAVE;
      default: if (!sees_ack) state <= IDLE;
    endcase
    // a cycle behind: what is cleared lies before it
    want <= state == WANT;
    ack <= sees_want;
  end
endmodule
