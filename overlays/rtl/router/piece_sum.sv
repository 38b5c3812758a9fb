// SPDX-License-Identifier: Apache-2.0
// CRCs of runs: bytes of one row, which come in pieces of memory's lines, in order. Bytes of a line that are not the
// run's count as zeros, so a run is as if it ended where its last line does.
module piece_sum
  import router_types::*;
(
    input  logic         clk,
    input  logic         rst,
    output logic         ready,        // a piece may be let in
    input  logic         lets,         // one that ends a run is, now or some cycles before it comes
    input  logic         valid,
    input  logic [511:0] line,         // bytes of the piece at their place, zeros besides
    input  logic         starts_run,
    input  logic         starts_line,
    input  logic         ends_run,
    input  behind_t      behind,       // of the message behind its line, and 64
    output logic         run_valid,
    input  logic         run_ready,
    output logic [31:0]  run_crc,
    output behind_t      run_behind,
    output logic         idle
);
  logic came, first, moves, last, push;
  logic [511:0] piece;
  behind_t piece_behind, push_behind;
  logic [31:0] state, folded;
  logic [2:0] open;  // let in, not taken yet
  logic [2:0] put, taken;
  logic [59:0] runs[4];

  assign ready = open[2] == 1'b0;
  assign idle = open == 3'd0;
  assign run_valid = put != taken;
  assign {run_crc, run_behind} = runs[taken[1:0]];
  assign folded = crc_line(moves && !first ? state : '0, piece);
  always_ff @(posedge clk) begin
    came <= valid;
    piece <= line;
    {first, moves, last, piece_behind} <= {starts_run, starts_run || starts_line, ends_run, behind};
    if (came) state <= moves ? folded : folded ^ state;
    push <= came && last;
    push_behind <= piece_behind;
    if (push) begin
      runs[put[1:0]] <= {state, push_behind};
      put <= put + 3'd1;
    end
    if (run_valid && run_ready) taken <= taken + 3'd1;
    open <= open + 3'(lets) - 3'(run_valid && run_ready);
    if (rst) begin
      {came, push} <= '0;
      {open, put, taken} <= '0;
    end
  end
endmodule
