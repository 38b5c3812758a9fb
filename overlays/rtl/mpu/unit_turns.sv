// SPDX-License-Identifier: Apache-2.0
// Whose turn it is: the first that asks behind the one that was served last. One on offer stays until it is taken.
module unit_turns #(
    parameter int UNITS     = 4,
    parameter int UNIT_BITS = $clog2(UNITS)
) (
    input  logic                 clk,
    input  logic                 rst,
    input  logic [UNITS-1:0]     asks,
    input  logic                 ready,
    output logic [UNIT_BITS-1:0] unit
);
  logic [UNIT_BITS-1:0] last;
  logic waits;
  always_comb begin
    unit = last;
    for (int u = UNITS - 1; u >= 0; u--) if (asks[u]) unit = UNIT_BITS'(u);
    for (int u = UNITS - 1; u >= 0; u--) if (asks[u] && u > int'(last)) unit = UNIT_BITS'(u);
    if (waits) unit = last;
  end
  always_ff @(posedge clk) begin
    last <= unit;
    waits <= asks != '0 && !ready;
    if (rst) {last, waits} <= '0;
  end
endmodule
