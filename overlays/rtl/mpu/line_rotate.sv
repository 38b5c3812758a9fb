// SPDX-License-Identifier: Apache-2.0
// Lines of all banks to all groups of an array: group g gets that of bank (g + turn) mod LINES. Blocks are
// numbered K fastest over the banks, so a group whose tile begins in bank b and that begins (b - g) mod LINES
// blocks late wants just that bank in turn t, whatever K is: no two groups want the same. Two bits of the turn
// a cycle.
module line_rotate #(
    parameter int LINES = 32,  // a power of two
    parameter int WIDTH = 512  // bits of each: several may share the work
) (
    input  logic                         clk,
    input  logic [$clog2(LINES)-1:0]     turn,
    input  logic [LINES-1:0][WIDTH-1:0]  lines,
    output logic [LINES-1:0][WIDTH-1:0]  rotated  // ceil(log2(LINES)/2) cycles later
);
  localparam int BITS = $clog2(LINES);
  localparam int STAGES = (BITS + 1) / 2;
  logic [LINES-1:0][WIDTH-1:0] at[STAGES+1];
  logic [2*STAGES-1:0] turns[STAGES+1];  // what is left of it
  assign at[0] = lines;
  assign turns[0] = (2 * STAGES)'(turn);
  for (genvar s = 0; s < STAGES; s++) begin : stages
    for (genvar g = 0; g < LINES; g++) begin : groups
      always_ff @(posedge clk) begin
        unique case (turns[s][1:0])
          2'd0: at[s+1][g] <= at[s][g];
          2'd1: at[s+1][g] <= at[s][(g+1*4**s)%LINES];
          2'd2: at[s+1][g] <= at[s][(g+2*4**s)%LINES];
          2'd3: at[s+1][g] <= at[s][(g+3*4**s)%LINES];
        endcase
      end
    end
    always_ff @(posedge clk) turns[s+1] <= turns[s] >> 2;
  end
  assign rotated = at[STAGES];
endmodule
