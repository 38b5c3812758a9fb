// SPDX-License-Identifier: Apache-2.0
// The finishers' lines on their way to memory, in turns, one a cycle, and what is counted of them: values that are not finite,
// the first row that has one (docs/numbers.md, 1.2). A line counts when it leaves for the port. Each finisher has room for a
// line here; both ways are registered.
// Reset: `rst`; what is on offer to memory is the unit_port's to hold.
module channel_writes
  import channel_types::*;
#(
    parameter int FINISHERS = 8
) (
    input  logic                         clk,
    input  logic                         rst,
    input  logic                         start,  // one cycle: a new command
    input  logic         [5:0]           bank,
    input  result_line_t                 lines[FINISHERS],
    output logic         [FINISHERS-1:0] room,
    output write_req_t                   request,
    input  logic                         ready,
    output logic                         quiet,
    output logic         [31:0]          nonfinite_count,
    output logic         [31:0]          nonfinite_row
);
  localparam int LOG = FINISHERS > 1 ? $clog2(FINISHERS) : 1;
  if (FINISHERS < 1 || FINISHERS > 8 || 2 ** $clog2(FINISHERS) != FINISHERS) begin : wrong_finishers
    $error("FINISHERS: 1, 2, 4 or 8");
  end
  logic [LOG-1:0] last, picked;
  logic any, moves;
  logic [FINISHERS-1:0] held, taken;
  /* verilator lint_off UNUSEDSIGNAL */
  result_line_t line, line_1, slots[FINISHERS];
  /* verilator lint_on UNUSEDSIGNAL */
  always_comb begin
    picked = last;
    any = 1'b0;
    for (int i = FINISHERS; i >= 1; i--) begin
      automatic logic [LOG-1:0] next = LOG'((int'(last) + i) & (FINISHERS - 1));
      if (held[next]) begin
        picked = next;
        any = 1'b1;
      end
    end
    line = '0;
    for (int i = 0; i < FINISHERS; i++) if (picked == i[LOG-1:0]) line |= slots[i];
    taken = '0;
    for (int i = 0; i < FINISHERS; i++) taken[i] = moves && any && picked == i[LOG-1:0];
  end
  assign moves = !line_1.valid || ready;
  assign request = '{valid: line_1.valid, bank: bank, line: line_1.line, bytes: line_1.bytes, data: line_1.data};
  always_ff @(posedge clk) begin
    quiet <= !line_1.valid && held == '0;
    for (int i = 0; i < FINISHERS; i++) begin
      if (lines[i].valid) slots[i] <= lines[i];
      held[i] <= lines[i].valid || (held[i] && !taken[i]);
      room[i] <= !held[i] && !lines[i].valid;
    end
    if (moves) begin
      line_1 <= line;
      line_1.valid <= any;
      if (any) begin
        last <= picked;
        nonfinite_count <= nonfinite_count + {26'd0, line.nonfinite};
        if (line.nonfinite != 6'd0 && {25'd0, line.row} < nonfinite_row) nonfinite_row <= {25'd0, line.row};
      end
    end
    if (start) begin
      nonfinite_count <= 32'd0;
      nonfinite_row <= 32'hffffffff;
    end
    if (rst) begin
      line_1.valid <= 1'b0;
      quiet <= 1'b0;
      held <= '0;
      room <= '0;
    end
  end

`ifndef SYNTHESIS
  write_req_t request_1;
  logic stays;
  always_ff @(posedge clk) begin
    request_1 <= request;
    stays <= request.valid && !ready && !rst;
    if (!rst) begin
      assert (!stays || request == request_1) else $fatal(1, "a write changes before it is taken");
      assert (!request.valid || request.bytes != 64'd0) else $fatal(1, "a write of no byte");
      for (int i = 0; i < FINISHERS; i++)
        assert (!lines[i].valid || !held[i]) else $fatal(1, "a line comes where there is no room");
    end
  end
`endif
endmodule
