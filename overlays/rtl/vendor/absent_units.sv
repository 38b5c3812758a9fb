// SPDX-License-Identifier: Apache-2.0
// In the place of units that a board does not have: each command fails at once, so a run ends with a record
// that names the unit, not by the watchdog.
module absent_units
  import abi_types::*;
  import sequencer_types::*;
(
    input  logic                   clk,
    input  logic                   rst,
    // commands of a list
    input  logic [UNITS-1:0]       unit_start,
    input  logic                   unit_abort,
    output logic [UNITS-1:0]       unit_idle,
    output logic [UNITS-1:0]       result_valid,
    input  logic [UNITS-1:0]       result_ready,
    output logic [UNITS-1:0][1:0]  result_state,
    output logic [UNITS-1:0][7:0]  result_status,
    // commands of the core's, by their mailboxes
    input  logic [LORA_UNITS-1:0]  mail_start,
    input  logic [LORA_UNITS-1:0]  mail_abort,
    output logic                   unit_write,
    output logic [2:0]             unit_which,
    output logic [5:0]             unit_word,
    output logic [31:0]            unit_stored
);
  localparam logic [5:0] CONTROL = 6'd0, STATUS = 6'd1;  // words, hal_card.h
  localparam logic [31:0] FAILED = 32'h8;

  assign unit_idle = ~result_valid;
  assign result_state = {UNITS{2'(LORA_UNIT_FAILED)}};
  assign result_status = {UNITS{8'(LORA_ERR_OPCODE)}};
  always_ff @(posedge clk)
    if (rst || unit_abort) result_valid <= '0;
    else result_valid <= unit_start | (result_valid & ~result_ready);

  // A status, then the control word.
  logic [LORA_UNITS-1:0] asked;
  logic says;
  logic [2:0] first;
  always_comb begin
    first = 3'd0;
    for (int u = LORA_UNITS - 1; u >= 0; u--) if (asked[u]) first = 3'(u);
  end
  assign unit_write = asked != '0;
  assign unit_which = first;
  assign unit_word = says ? CONTROL : STATUS;
  assign unit_stored = says ? FAILED : LORA_ERR_OPCODE;
  always_ff @(posedge clk) begin
    says <= unit_write && !says;
    for (int u = 0; u < LORA_UNITS; u++)
      asked[u] <= !mail_abort[u] && (mail_start[u] || (asked[u] && !(says && first == 3'(u))));
    if (rst) {asked, says} <= '0;
  end
endmodule
