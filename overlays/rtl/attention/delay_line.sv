// SPDX-License-Identifier: Apache-2.0
// A value some cycles later; still while nothing is under way.
module delay_line #(
    parameter int WIDTH = 32,
    parameter int CYCLES = 4
) (
    input  logic             clk,
    input  logic             moves,
    input  logic [WIDTH-1:0] value,
    output logic [WIDTH-1:0] late
);
  logic [CYCLES-1:0][WIDTH-1:0] held;
  assign late = held[CYCLES-1];
  if (CYCLES == 1) begin : one
    always_ff @(posedge clk) if (moves) held[0] <= value;
  end else begin : more
    always_ff @(posedge clk) if (moves) held <= {held[CYCLES-2:0], value};
  end
endmodule
