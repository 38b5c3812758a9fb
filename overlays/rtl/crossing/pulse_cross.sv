// SPDX-License-Identifier: Apache-2.0
// Pulses of one cycle into another clock. A level changes for each pulse, and the other side's copy comes
// back; until then the next pulse is not taken. Resets as reset_pair has them.
`ifndef LORA_FLAT  // constraints find it by its name; open synthesis joins modules
(* keep_hierarchy = "yes" *)
`endif
module pulse_cross (
    input  logic from_clk,
    input  logic from_stop,
    input  logic from_clear,
    input  logic in_valid,
    output logic in_ready,
    input  logic to_clk,
    input  logic to_stop,
    input  logic to_clear,
    output logic out_pulse
);
  logic level, copy, sees_level, sees_copy;
  bit_sync there (
      .clk(to_clk),
      .d(level),
      .q(sees_level)
  );
  bit_sync back (
      .clk(from_clk),
      .d(copy),
      .q(sees_copy)
  );
  assign in_ready = !from_stop && sees_copy == level;
  always_ff @(posedge from_clk)
    if (from_clear) level <= 1'b0;
    else if (in_valid && in_ready) level <= !level;

  assign out_pulse = !to_stop && sees_level != copy;
  always_ff @(posedge to_clk)
    if (to_clear) copy <= 1'b0;
    else if (!to_stop) copy <= sees_level;
endmodule
