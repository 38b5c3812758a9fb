// SPDX-License-Identifier: Apache-2.0
// Hands a word on so many cycles later, at least 3: a memory that is walked round.
module pipe_delay #(
    parameter int WIDTH  = 32,
    parameter int CYCLES = 9
) (
    input  logic             clk,
    input  logic [WIDTH-1:0] word,
    output logic [WIDTH-1:0] later
);
  localparam int PLACES = CYCLES - 1, BITS = $clog2(PLACES);
  logic [WIDTH-1:0] memory[PLACES];
  logic [BITS-1:0] at;
  always_ff @(posedge clk) begin
    memory[at] <= word;
    later <= memory[at];
    at <= at >= BITS'(PLACES - 1) ? '0 : at + 1'b1;
  end
endmodule
