// SPDX-License-Identifier: Apache-2.0
// A bit of another clock: two flops. `d` is a flop of its clock, with no logic behind it; a change that is
// shorter than a cycle of `clk` may be missed.
`ifndef LORA_FLAT  // constraints find it by its name; open synthesis joins modules
(* keep_hierarchy = "yes" *)
`endif
module bit_sync (
    input  logic clk,
    input  logic d,
    output logic q
);
  (* ASYNC_REG = "TRUE" *) logic first, second;
  always_ff @(posedge clk) begin
`ifdef LORA_METASTABLE
    first <= 1'(crossing_model::crossing_take(id, noted));
`else
    first <= d;
`endif
    second <= first;
  end
  assign q = second;

`ifdef LORA_METASTABLE
  int id, noted;
  initial id = crossing_model::crossing_new();
  always_comb noted = crossing_model::crossing_note(id, 64'(d));
`endif
endmodule
