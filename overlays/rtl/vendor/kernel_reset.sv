// SPDX-License-Identifier: Apache-2.0
// A kernel's reset behind the shell's, which is synchronous to the clock: held for as long as both sides of each crossing
// need (reset_pair).
module kernel_reset (
    input  logic clk,
    input  logic rst_n,
    output logic rst
);
  logic [1:0] asked = '1;
  logic [4:0] left = '1;
  logic holds = 1'b1;
  assign rst = holds;
  always_ff @(posedge clk) begin
    asked <= {asked[0], !rst_n};
    left <= asked[1] ? '1 : left - 5'(left != '0);
    holds <= asked[1] || left != '0;
  end
endmodule
