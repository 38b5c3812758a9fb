// SPDX-License-Identifier: Apache-2.0
// The unit to name when nothing moves, as stalled_unit of fw_dispatch.c: one that runs, other than the
// Router, which may only wait for another board; then the Router; then the first in the list whose
// counters did not come.
module stalled_unit
  import abi_types::*;
  import sequencer_types::*;
(
    input  logic [UNITS-1:0]       running,
    input  logic [UNITS-1:0]       valid,
    input  logic [UNITS-1:0][13:0] index,   // of the next command
    input  index_t                 bound,   // none behind it counts
    output logic                   known,
    output logic                   runs,
    output logic [2:0]             unit
);
  index_t least;
  always_comb begin
    least = bound;
    unit = 3'(LORA_UNIT_CONTROL);
    known = valid[LORA_UNIT_CONTROL];
    for (int u = 1; u < UNITS; u++)
      if (valid[u] && index[u] < least) begin
        least = index[u];
        unit  = 3'(u);
        known = 1'b1;
      end
    runs = running[UNITS-1:1] != '0;
    if (runs) known = 1'b1;
    if (running[LORA_UNIT_ROUTER]) unit = 3'(LORA_UNIT_ROUTER);
    for (int u = UNITS - 1; u >= 1; u--)
      if (running[u] && u != LORA_UNIT_ROUTER) unit = 3'(u);
  end
endmodule
