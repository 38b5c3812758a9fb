// SPDX-License-Identifier: Apache-2.0
// A channel of the matmul: an array behind the memory port of one bank. It reads the lines of its tiles ahead into its buffer,
// as soon as a command is announced; when x begins to be there, `go` starts a pass: 16 columns by 8 rows of W4A8 a cycle (4 of W8A8) for
// ROWS rows of x, then one scale-and-add a cycle and row. Totals of a tile wait, on two sides, until a finisher takes them.
//
//   port > channel_fetch (line_buffer) > integer_lanes > channel_row > totals > `take` streams 32 columns
//          channel_work                    x_rows < feed      channel_passes
//
// From schedule to lanes three registers: address, memory, memory's output.
// Reset, abort: as port/unit_port.sv has them, 34 cycles at least; memories and data begin with any bits.
// Assumes: the port answers in order; what is broadcast (push, go, whole, feed, abort) has passed as many registers as each other.
module channel
  import mpu_types::*;
  import channel_types::*;
#(
    parameter int CHANNELS = 32,
    parameter int ROWS = 2,      // 1 .. 4
    parameter int QUEUE = 2,     // of commands
    parameter int LINES = 4096,  // of the buffer
    parameter int DSP58 = 0,
    parameter int DSP48 = 0
) (
    input  logic                   clk,
    input  logic                   rst,
    input  logic [4:0]             index,
    input  logic                   abort_valid,
    output logic                   runs,     // no abort is under way
    input  logic                   push,
    input  descriptor_t            descriptor,
    input  logic                   go,       // x of the pass is there, its first lines at least
    input  logic                   whole,    // all of it, with `go` or behind it
    /* verilator lint_off UNUSEDSIGNAL */
    input  read_rsp_t              feed,
    /* verilator lint_on UNUSEDSIGNAL */
    output logic                   over,     // all totals of the pass have been taken
    output fault_t                 bad,      // a line of this command that was used
    output tile_t                  tile,
    input  logic                   take,     // one cycle
    output logic                   total_valid,  // 32 cycles behind `take`
    output logic [ROWS-1:0][31:0]  total,
    output mem_req_t               request,
    input  logic                   ready,
    input  mem_rsp_t               response
);
  localparam int BITS = $clog2(LINES), LATENCY = 11;
  if (ROWS < 1 || ROWS > 4) begin : wrong_rows
    $error("ROWS: 1 to 4");
  end

  // --- the port ----------------------------------------------------------------------------------
  /* verilator lint_off UNUSEDSIGNAL */
  logic clear, line_here, request_taken, no_ready, no_write;
  /* verilator lint_on UNUSEDSIGNAL */
  mem_req_t wanted;
  mem_rsp_t answer;
  assign answer = '{valid: line_here, fault: response.fault, data: response.data};
  unit_port memory_port (
      .clk(clk),
      .rst(rst),
      .abort_valid(abort_valid),
      .runs(runs),
      .clear(clear),
      .unit_read_valid(wanted.valid),
      .unit_read_ready(request_taken),
      .unit_write_valid(1'b0),
      .unit_write_ready(no_ready),
      .unit_line_valid(line_here),
      .read_valid(request.valid),
      .read_ready(ready),
      .line_valid(response.valid),
      .write_valid(no_write),
      .write_ready(1'b0)
  );
  assign request.line = wanted.line;

  // --- commands and lines ------------------------------------------------------------------------
  logic fetch_valid, fetch_next, use_valid, use_next;
  work_t fetched, work;
  channel_work #(
      .CHANNELS(CHANNELS),
      .QUEUE(QUEUE)
  ) commands (
      .clk(clk),
      .rst(clear),
      .index(index),
      .push(push && runs),
      .descriptor(descriptor),
      .fetch_valid(fetch_valid),
      .fetch(fetched),
      .fetch_next(fetch_next),
      .use_valid(use_valid),
      .used(work),
      .use_next(use_next)
  );
  logic [BITS:0] level;
  logic [6:0] free_lines;
  logic block_done, read;
  logic [BITS-1:0] read_at, block_at;
  logic [513:0] stream;
  channel_fetch #(
      .LINES(LINES)
  ) lines (
      .clk(clk),
      .rst(clear),
      .work_valid(fetch_valid),
      .work(fetched),
      .work_next(fetch_next),
      .request(wanted),
      .ready(request_taken),
      .response(answer),
      .level(level),
      .free(block_done),
      .free_lines(free_lines),
      .read(read),
      .read_at(read_at),
      .read_data(stream)
  );

  // --- the pass ----------------------------------------------------------------------------------
  logic started, pass_start, busy, sum_free, x_whole;
  logic [6:0] passes_left, offset;
  logic [8:0] x_address, x_at;
  line_use_t line_use, use_1, use_2, use_3;
  assign free_lines = work.block_lines;
  assign pass_start = go && runs && use_valid && work.tiles != 20'd0;
  channel_schedule #(
      .LINES(LINES)
  ) schedule (
      .clk(clk),
      .rst(clear),
      .start(pass_start),
      .work(work),
      .busy(busy),
      .level(level),
      .x_whole(x_whole),
      .block_done(block_done),
      .sum_free(sum_free),
      .offset(offset),
      .x_address(x_address),
      .line_use(line_use)
  );
  always_ff @(posedge clk) begin
    x_whole <= whole || (x_whole && !go);
    if (block_done) block_at <= block_at + BITS'(work.block_lines);
    read <= line_use.take != TAKE_NOTHING;
    if (line_use.take != TAKE_NOTHING) read_at <= block_at + BITS'(offset);
    x_at <= x_address;
    use_1 <= line_use;
    use_2 <= use_1;
    use_3 <= use_2;
    if (use_3.take != TAKE_NOTHING) bad <= bad | fault_t'(stream[513:512]);
    if (clear) begin
      block_at <= '0;
      read <= 1'b0;
      use_1.take <= TAKE_NOTHING;
      use_2.take <= TAKE_NOTHING;
      use_3.take <= TAKE_NOTHING;
      bad <= '0;
    end
  end

  // --- x and the exact sums ----------------------------------------------------------------------
  logic feed_valid;
  /* verilator lint_off UNUSEDSIGNAL */
  x_tag_t feed_tag;
  /* verilator lint_on UNUSEDSIGNAL */
  logic [511:0] feed_data;
  always_ff @(posedge clk) begin
    feed_valid <= feed.valid && feed.tag.x.is_x && !feed.tag.x.is_scale;
    if (feed.valid) {feed_tag, feed_data} <= {feed.tag.x, feed.data};
  end
  logic [ROWS-1:0][511:0] x;
  for (genvar row = 0; row < ROWS; row++) begin : x_of
    x_rows lines_of_x (
        .clk(clk),
        .write(feed_valid && feed_tag.row == row[1:0]),
        .write_at(feed_tag.index),
        .write_data(feed_data),
        .read(read),
        .read_at(x_at),
        .read_data(x[row])
    );
  end
  logic sum_valid, sum_segment_end, scales_valid;
  logic [SUMS_LOG-1:0] scales_sum;
  logic [SUMS_LOG:0] sum_where;
  logic [ROWS-1:0][511:0] sums;
  integer_lanes #(
      .ROWS(ROWS),
      .DEPTH(8),
      .DSP58(DSP58),
      .DSP48(DSP48)
  ) lanes (
      .clk(clk),
      .rst(clear),
      .four_bit(work.four_bit),
      .line_use(use_3),
      .stream_line(stream[511:0]),
      .x_line(x),
      .scales_valid(scales_valid),
      .scales_sum(scales_sum),
      .sum_valid(sum_valid),
      .sum_where(sum_where),
      .sum_segment_end(sum_segment_end),
      .sums(sums)
  );

  // --- sums that wait, oldest first, and their scales ----------------------------------------------
  logic [SUMS_LOG-1:0] oldest;
  logic [SUMS_LOG:0] waiting;
  logic [2**SUMS_LOG-1:0] segment_ends;
  logic [511:0] scales[2**SUMS_LOG], part_scales;
  logic [127:0] scale_quarter;
  logic [15:0] scale;
  column_pass_t [LATENCY:0] late;
  assign part_scales = scales[oldest];
  always_ff @(posedge clk) begin
    waiting <= waiting + {{SUMS_LOG{1'b0}}, sum_valid && sum_where[0]} - {{SUMS_LOG{1'b0}}, sum_free};
    if (sum_valid) segment_ends[sum_where[SUMS_LOG:1]] <= sum_segment_end;
    if (sum_free) oldest <= oldest + 1'b1;
    if (scales_valid) scales[scales_sum] <= stream[511:0];
    if (late[0].valid) scale_quarter <= part_scales[128*late[0].slot[4:3]+:128];
    if (late[1].valid) scale <= scale_quarter[16*late[1].slot[2:0]+:16];
    if (clear || pass_start) begin
      waiting <= '0;
      oldest <= '0;
    end
  end

  logic total_here, total_side, take_now, totals_over;
  channel_passes passes (
      .clk(clk),
      .rst(clear),
      .start(pass_start),
      .work(work),
      .part_waiting(waiting != '0),
      .part_segment_end(segment_ends[oldest]),
      .part_done(sum_free),
      .late(late),
      .total_here(total_here),
      .total_side(total_side),
      .take(take_now),
      .over(totals_over)
  );

  // --- totals that a finisher takes ----------------------------------------------------------------
  logic reading, read_side, more_passes;  // more_passes: of the command
  logic [4:0] column;
  assign take_now = take && runs;
  logic [19:0] tile_number;
  assign tile = '{valid: total_here, number: tile_number};
  for (genvar row = 0; row < ROWS; row++) begin : rows
    logic [31:0] found;
    channel_row #(
        .LATENCY(LATENCY)
    ) sums_of (
        .clk(clk),
        .rst(clear),
        .sum_valid(sum_valid),
        .sum_where(sum_where),
        .sums(sums[row]),
        .oldest(oldest),
        .late(late),
        .scale(scale),
        .read_at({read_side, column}),
        .total(found)
    );
    always_ff @(posedge clk) if (reading) total[row] <= found;
  end
  assign use_next = started && !busy && totals_over && !reading && passes_left == 7'd0;
  assign over = !started;
  always_ff @(posedge clk) begin
    total_valid <= reading;
    if (reading) column <= column + 5'd1;
    if (column == 5'd31) reading <= 1'b0;
    if (take_now) begin
      reading <= 1'b1;
      column <= 5'd0;
      read_side <= total_side;
      tile_number <= tile_number + 20'(CHANNELS);
    end
    if (started && !busy && totals_over && !reading) started <= 1'b0;
    if (go && runs) begin
      started <= 1'b1;
      tile_number <= work.first;
      passes_left <= (more_passes ? passes_left : work.passes) - 7'd1;
      more_passes <= (more_passes ? passes_left : work.passes) != 7'd1;
    end
    if (clear) begin
      reading <= 1'b0;
      total_valid <= 1'b0;
      started <= 1'b0;
      more_passes <= 1'b0;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) if (!clear) begin
    assert (!go || !runs || (use_valid && !started)) else $fatal(1, "channel %0d: go without a command", index);
    assert (!take_now || !reading) else $fatal(1, "channel %0d: totals are taken twice at once", index);
    assert (!sum_valid || !sum_where[0] || waiting != (SUMS_LOG + 1)'(2 ** SUMS_LOG))
    else $fatal(1, "channel %0d: more sums than there is room for", index);
  end
`endif
endmodule
