// SPDX-License-Identifier: Apache-2.0
// Reads a channel's lines ahead: the run of each command of its queue, once a pass, as soon as the command is there and
// while the buffer has room. A line has its place in the buffer before it is asked for, so answers are never held up.
// Lines come and go in order; within a block the array reads them in any order and frees the block at once.
// Reset: `rst`, of the port too, empties the buffer.
// Assumes: the port answers in order, each request once.
module channel_fetch
  import channel_types::*;
#(
    parameter int LINES = 4096
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         work_valid,
    /* verilator lint_off UNUSEDSIGNAL */
    input  work_t        work,
    /* verilator lint_on UNUSEDSIGNAL */
    output logic         work_next,
    output mem_req_t     request,
    input  logic         ready,
    input  mem_rsp_t     response,
    // the array
    output logic [$clog2(LINES):0]   level,     // lines that are there
    input  logic                     free,      // one cycle: so many of them
    input  logic [6:0]               free_lines,
    input  logic                     read,
    input  logic [$clog2(LINES)-1:0] read_at,
    output logic [513:0]             read_data  // two cycles later
);
  localparam int BITS = $clog2(LINES);
  if (LINES < 128 || 2 ** BITS != LINES) begin : wrong_lines
    $error("LINES: a power of two, two blocks at least");
  end
  typedef logic [BITS:0] count_t;

  // --- requests ----------------------------------------------------------------------------------
  logic active, room, issue, tile_end, pass_end, run_end;
  logic [31:0] next_line;
  logic [13:0] lines_left;
  logic [19:0] tiles_left;
  logic [6:0]  passes_left;
  count_t held;  // lines asked for or there
  assign room = held != count_t'(LINES);
  assign issue = active && room && (!request.valid || ready);
  assign tile_end = lines_left == 14'd1;
  assign pass_end = tile_end && tiles_left == 20'd1;
  assign run_end = pass_end && passes_left == 7'd1;
  assign work_next = work_valid && (active ? issue && run_end : work.tiles == 20'd0);
  always_ff @(posedge clk) begin
    if (ready) request.valid <= 1'b0;
    held <= held + count_t'(issue) - (free ? count_t'(free_lines) : '0);
    if (issue) begin
      request <= '{valid: 1'b1, line: next_line};
      next_line <= pass_end ? work.line : next_line + 32'd1;
      lines_left <= tile_end ? work.tile_lines : lines_left - 14'd1;
      if (tile_end) tiles_left <= pass_end ? work.tiles : tiles_left - 20'd1;
      if (pass_end) passes_left <= passes_left - 7'd1;
      if (run_end) active <= 1'b0;
    end
    if (!active && work_valid && work.tiles != 20'd0) begin
      active <= 1'b1;
      next_line <= work.line;
      lines_left <= work.tile_lines;
      tiles_left <= work.tiles;
      passes_left <= work.passes;
    end
    if (rst) begin
      active <= 1'b0;
      request.valid <= 1'b0;
      held <= '0;
    end
  end

  // --- answers -----------------------------------------------------------------------------------
  mem_rsp_t response_1;
  logic [BITS-1:0] write_at;
  line_buffer #(
      .LINES(LINES)
  ) lines (
      .clk(clk),
      .write(response_1.valid),
      .write_at(write_at),
      .write_data({response_1.fault, response_1.data}),
      .read(read),
      .read_at(read_at),
      .read_data(read_data)
  );
  always_ff @(posedge clk) begin
    response_1.valid <= response.valid;
    if (response.valid) {response_1.fault, response_1.data} <= {response.fault, response.data};
    if (response_1.valid) write_at <= write_at + 1'b1;
    level <= level + count_t'(response_1.valid) - (free ? count_t'(free_lines) : '0);
    if (rst) begin
      response_1.valid <= 1'b0;
      write_at <= '0;
      level <= '0;
    end
  end

`ifndef SYNTHESIS
  count_t under_way;
  mem_req_t request_1;
  logic stays;
  always_ff @(posedge clk) begin
    under_way <= rst ? '0 : under_way + count_t'(request.valid && ready) - count_t'(response.valid);
    request_1 <= request;
    stays <= request.valid && !ready && !rst;
    if (!rst) begin
      assert (!stays || request == request_1) else $fatal(1, "a request changes before it is taken");
      assert (!response.valid || under_way != '0) else $fatal(1, "a line that was not asked for");
      assert (level <= count_t'(LINES) && held <= count_t'(LINES) && level <= held) else $fatal(1, "the buffer overflows");
      assert (!free || level >= count_t'(free_lines)) else $fatal(1, "lines are freed that are not there");
    end
  end
`endif
endmodule
