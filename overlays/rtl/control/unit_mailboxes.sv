// SPDX-License-Identifier: Apache-2.0
// The mailboxes of the units: a memory that core and units share, and each unit's control word. A unit that
// has a start reads its command here; it writes its result here, then its state.
module unit_mailboxes
  import abi_types::*;
(
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  core_valid,
    input  logic [3:0]            core_write,   // bytes; none: read
    input  logic [2:0]            core_unit,
    input  logic [5:0]            core_word,
    input  logic [31:0]           core_stored,
    output logic [31:0]           core_data,    // a cycle later
    input  logic                  unit_write,
    input  logic [2:0]            unit_which,
    input  logic [5:0]            unit_word,
    input  logic [31:0]           unit_stored,  // of the control word: DONE or FAILED
    output logic [31:0]           unit_data,    // a cycle later
    output logic [LORA_UNITS-1:0] unit_start,   // one cycle
    output logic [LORA_UNITS-1:0] unit_abort    // one cycle
);
  // bits of CONTROL, hal_card.h
  localparam int START = 0, DONE = 1, BUSY = 2, FAILED = 3, ABORT = 4;
  logic [31:0] words[512], core_read;
  logic [3:0] control[8], asked;
  logic asks_control, commands;
  assign commands = core_valid && core_write[0] && core_word == 6'd0;
  // a memory of two ports, each with its own process: always_ff may not share what it writes
  always @(posedge clk) begin
    for (int lane = 0; lane < 4; lane++)
      if (core_valid && core_write[lane])
        words[{core_unit, core_word}][8*lane+:8] <= core_stored[8*lane+:8];
    core_read <= words[{core_unit, core_word}];
  end
  always @(posedge clk) begin
    if (unit_write) words[{unit_which, unit_word}] <= unit_stored;
    unit_data <= words[{unit_which, unit_word}];
  end

  always_ff @(posedge clk) begin
    unit_start <= '0;
    unit_abort <= '0;
    // a unit that was told to stop has no result any more
    if (unit_write && unit_word == 6'd0 && control[unit_which][BUSY])
      control[unit_which] <= {unit_stored[FAILED], 1'b0, unit_stored[DONE], 1'b0};
    if (commands) begin
      control[core_unit] <= 4'd0;
      if (core_stored[START]) control[core_unit] <= 4'd1 << BUSY;
    end
    for (int u = 0; u < LORA_UNITS; u++) begin
      unit_start[u] <= commands && core_unit == 3'(u) && core_stored[START] && !rst;
      unit_abort[u] <= rst || (commands && core_unit == 3'(u) && core_stored[ABORT]);
    end
    if (rst) for (int u = 0; u < 8; u++) control[u] <= 4'd0;
    asked <= control[core_unit];
    asks_control <= core_word == 6'd0;
  end
  assign core_data = asks_control ? 32'(asked) : core_read;
endmodule
