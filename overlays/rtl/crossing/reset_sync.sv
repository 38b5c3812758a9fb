// SPDX-License-Identifier: Apache-2.0
// A reset of another clock, active high. The request is caught without the clock, however short it is; it
// comes out with the clock and ends with it, some cycles after the request. `request` is a flop.
`ifndef LORA_FLAT  // constraints find it by its name; open synthesis joins modules
(* keep_hierarchy = "yes" *)
`endif
module reset_sync (
    input  logic clk,
    input  logic request,
    output logic rst
);
  // verilator lint_off SYNCASYNCNET
  (* ASYNC_REG = "TRUE" *) logic caught, leaves;
  always_ff @(posedge clk or posedge request)
    if (request) {leaves, caught} <= 2'b11;
    else {leaves, caught} <= {caught, 1'b0};
  // verilator lint_on SYNCASYNCNET
  // what begins without the clock is not for flops that are reset with it
  bit_sync begins (
      .clk(clk),
      .d(leaves),
      .q(rst)
  );
endmodule
