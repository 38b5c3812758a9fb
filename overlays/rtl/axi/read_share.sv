// SPDX-License-Identifier: Apache-2.0
// Two readers at one AXI4 port, in turns where both ask: `a` by bursts, with the ID {1, 0}; `b` a line each, with ID 0,
// whose lines are always taken and come in order.
module read_share #(
    parameter int ID_BITS = 5  // of each
) (
    input  logic             clk,
    input  logic             rst,
    input  logic             a_arvalid,
    output logic             a_arready,
    input  logic [41:0]      a_arline,
    input  logic [7:0]       a_arlen,
    output logic             a_rvalid,
    input  logic             a_rready,
    input  logic             b_valid,
    output logic             b_ready,
    input  logic [41:0]      b_line,
    output logic             b_line_valid,
    output logic             arvalid,
    input  logic             arready,
    output logic [ID_BITS:0] arid,
    output logic [41:0]      arline,
    output logic [7:0]       arlen,
    input  logic             rvalid,
    output logic             rready,
    input  logic             of_a      // the highest bit of rid
);
  logic free, a_first, takes_a;
  assign free = !arvalid || arready;
  assign takes_a = a_arvalid && (a_first || !b_valid);
  assign a_arready = free && (a_first || !b_valid);
  assign b_ready = free && !takes_a;
  always_ff @(posedge clk) begin
    if (arready) arvalid <= 1'b0;
    if (free && (a_arvalid || b_valid)) begin
      arvalid <= 1'b1;
      arid <= {takes_a, ID_BITS'(0)};
      arline <= takes_a ? a_arline : b_line;
      arlen <= takes_a ? a_arlen : 8'd0;
      a_first <= !takes_a;
    end
    if (rst) {arvalid, a_first} <= 2'b00;
  end
  assign a_rvalid = rvalid && of_a;
  assign b_line_valid = rvalid && !of_a;
  assign rready = !of_a || a_rready;

`ifndef SYNTHESIS
  logic waits;
  logic [41:0] waiting;
  always_ff @(posedge clk) begin
    waits <= b_valid && !b_ready && !rst;
    waiting <= b_line;
    if (!rst) assert (!waits || (b_valid && b_line == waiting)) else $fatal(1, "a read changes before it is taken");
  end
`endif
endmodule
