// SPDX-License-Identifier: Apache-2.0
// One of several ports that have an answer, in turns.
module port_choice #(
    parameter int PORTS = 2,
    parameter int PORT_BITS = $clog2(PORTS)
) (
    input  logic                 clk,
    input  logic                 rst,
    input  logic                 hold,    // none now
    input  logic [PORTS-1:0]     valid,
    output logic [PORTS-1:0]     ready,
    output logic                 any,
    output logic [PORT_BITS-1:0] port
);
  logic [PORTS-1:0] passed;  // had their turn
  always_comb begin
    port = '0;
    for (int p = PORTS - 1; p >= 0; p--) if (valid[p]) port = PORT_BITS'(p);
    for (int p = PORTS - 1; p >= 0; p--) if (valid[p] && !passed[p]) port = PORT_BITS'(p);
    any = valid != '0 && !hold;
    ready = '0;
    ready[port] = any;
  end
  always_ff @(posedge clk) begin
    if (any) for (int p = 0; p < PORTS; p++) passed[p] <= p <= int'(port);
    if (rst) passed <= '0;
  end
endmodule
