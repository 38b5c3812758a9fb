// SPDX-License-Identifier: Apache-2.0
// Three readers at one AXI4 port, in turns: `a` by bursts, with the ID {1, 0}; `b` a line each, with ID 0, whose lines are
// always taken; `c` a line each, with ID 1. Lines of one come in order.
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
    input  logic             c_valid,
    output logic             c_ready,
    input  logic [41:0]      c_line,
    output logic             c_line_valid,
    input  logic             c_line_ready,
    output logic             arvalid,
    input  logic             arready,
    output logic [ID_BITS:0] arid,
    output logic [41:0]      arline,
    output logic [7:0]       arlen,
    input  logic             rvalid,
    output logic             rready,
    input  logic             of_a,     // the highest bit of rid
    input  logic             of_c      // the lowest
);
  logic free;
  logic [1:0] whose;
  unit_turns #(
      .UNITS(3)
  ) turns (
      .clk(clk),
      .rst(rst),
      .asks({c_valid, b_valid, a_arvalid}),
      .ready(free),
      .unit(whose)
  );
  assign free = !arvalid || arready;
  assign a_arready = free && whose == 2'd0;
  assign b_ready = free && whose == 2'd1;
  assign c_ready = free && whose == 2'd2;
  always_ff @(posedge clk) begin
    if (arready) arvalid <= 1'b0;
    if (free && (a_arvalid || b_valid || c_valid)) begin
      arvalid <= 1'b1;
      arid <= {whose == 2'd0, ID_BITS'(whose == 2'd2)};
      arline <= whose == 2'd0 ? a_arline : whose == 2'd1 ? b_line : c_line;
      arlen <= whose == 2'd0 ? a_arlen : 8'd0;
    end
    if (rst) arvalid <= 1'b0;
  end
  assign a_rvalid = rvalid && of_a;
  assign b_line_valid = rvalid && !of_a && !of_c;
  assign c_line_valid = rvalid && !of_a && of_c;
  assign rready = of_a ? a_rready : !of_c || c_line_ready;

`ifndef SYNTHESIS
  logic [1:0] waits;
  logic [1:0][41:0] waiting;
  always_ff @(posedge clk) begin
    waits <= {c_valid && !c_ready, b_valid && !b_ready} & {2{!rst}};
    waiting <= {c_line, b_line};
    if (!rst)
      assert ((!waits[0] || (b_valid && b_line == waiting[0])) && (!waits[1] || (c_valid && c_line == waiting[1])))
      else $fatal(1, "a read changes before it is taken");
  end
`endif
endmodule
