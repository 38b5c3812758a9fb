// SPDX-License-Identifier: Apache-2.0
// The FP16 half of the matmul array: y = FP16(x*W + bias), or FP32, of a LORA_CMD_MATRIX; W is FP16 or,
// as W4A16, made FP16 on its way in. What adapters add comes from the adapter unit. One group of LANES
// columns and ROWS rows behind one port that reads lines and one that writes them. Lines may come back in any order: each brings its tag. `done` is one cycle; the counts
// hold until the next command.
module mpu_fp16
  import mpu_types::*;
#(
    parameter int LANES = 32,  // 8, 16 or 32
    parameter int ROWS = 1     // at most 8
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         abort_valid,    // what runs and what was announced; `idle` afterwards
    output logic         idle,           // nothing runs, is announced or is on the port
    input  logic         announce_valid, // while idle: weights may be fetched, nothing is written
    input  logic         command_valid,  // starts what was announced, else the command that is here
    output logic         command_ready,
    input  logic [15:0]  k,              // 1 .. 32 * MAX_UNITS - 1
    input  logic [31:0]  n,              // at least 1
    input  logic [6:0]   rows,           // at least 1
    input  logic [31:0]  weight_line,
    input  logic [15:0]  first,
    input  logic [7:0]   merge,
    input  logic [5:0]   bank_first,
    input  logic [5:0]   bank_count,
    input  logic         has_bias,
    input  logic [5:0]   bias_bank,
    input  logic [31:0]  bias_line,
    input  logic [5:0]   x_bank,
    input  logic [31:0]  x_line,
    input  logic [31:0]  x_stride,
    input  logic [5:0]   y_bank,
    input  logic [31:0]  y_line,
    input  logic [31:0]  y_stride,
    input  logic         y_single,
    input  logic         four_bit,       // k is a multiple of 32 << group_log
    input  logic [1:0]   group_log,
    input  logic         adapted,        // rows name adapters
    output logic         done,
    output logic [31:0]  nonfinite_count,
    output logic [31:0]  nonfinite_row,  // ~0 none
    // adapter unit: takes FP32 results, a column of every row a cycle, and gives them back, a stripe at a time
    output logic [2:0]         stripe_log,   // of columns
    output logic               stripe_valid,
    output logic [32*ROWS-1:0] stripe_values,
    input  logic               values_free,  // it has no stripe
    input  logic               values_valid,
    input  logic [32*ROWS-1:0] values_single,
    input  logic [16*ROWS-1:0] values_half,
    output logic         read_valid,
    input  logic         read_ready,
    output logic [5:0]   read_bank,
    output logic [31:0]  read_line,
    output logic [15:0]  read_tag,
    input  logic         line_valid,
    input  logic [15:0]  line_tag,
    input  logic [511:0] line_data,
    output logic         write_valid,
    input  logic         write_ready,
    output logic [5:0]   write_bank,
    output logic [31:0]  write_line,
    output logic [63:0]  write_bytes,
    output logic [511:0] write_data
);
  localparam int TILE_STRIPES = 32 / LANES;
  localparam int LANES_LOG = $clog2(LANES);

  logic runs, clear, line_here;
  logic asks_read, read_taken, asks_write, write_taken;
  unit_port memory_port (
      .clk(clk),
      .rst(rst),
      .abort_valid(abort_valid),
      .runs(runs),
      .clear(clear),
      .unit_read_valid(asks_read),
      .unit_read_ready(read_taken),
      .unit_write_valid(asks_write),
      .unit_write_ready(write_taken),
      .unit_line_valid(line_here),
      .read_valid(read_valid),
      .read_ready(read_ready),
      .line_valid(line_valid),
      .write_valid(write_valid),
      .write_ready(write_ready)
  );

  typedef enum logic [1:0] {IDLE, START, LOAD, RUN} state_t;
  state_t state;
  command_t command;
  logic [6:0] rows_left;
  logic [3:0] rows_now;
  logic [31:0] x_now, stripes, stored;
  logic first_rows;  // of the command
  logic started, ended;
  logic accept, rows_start, stripes_start, x_ready, schedule_busy, store_free, rows_done, more_rows;

  assign idle = runs && state == IDLE;
  assign command_ready = runs && !started;
  assign done = ended && runs;
  assign accept = (announce_valid || command_valid) && idle;
  assign rows_now = rows_left > 7'(ROWS) ? 4'(ROWS) : rows_left[3:0];
  assign more_rows = rows_left > 7'(ROWS);
  assign stripes = (command.n + 32'(LANES - 1)) >> LANES_LOG;
  assign rows_start = state == START;
  assign stripes_start = state == LOAD && x_ready;
  assign rows_done = state == RUN && stored == stripes && !schedule_busy;

  always_ff @(posedge clk) begin
    ended <= rows_done && !more_rows;
    if (command_valid && command_ready) started <= 1'b1;
    unique case (state)
      IDLE:
      if (accept) begin
        command <= '{
            k: k, n: n, rows: rows, weight_line: weight_line, first: first, merge: merge,
            bank_first: bank_first, bank_count: bank_count, has_bias: has_bias,
            bias_bank: bias_bank, bias_line: bias_line, x_bank: x_bank, x_line: x_line,
            x_stride: x_stride, y_bank: y_bank, y_line: y_line, y_stride: y_stride,
            y_single: y_single, eight_bit: 1'b0, four_bit: four_bit, group_log: group_log,
            row_scales: 1'b0, adapted: adapted
        };
        rows_left <= rows;
        x_now <= x_line;
        first_rows <= 1'b1;
        state <= START;
      end
      START: state <= LOAD;
      LOAD: if (x_ready) state <= RUN;
      RUN:
      if (rows_done) begin
        rows_left <= rows_left - 7'(ROWS);
        x_now <= x_now + command.x_stride * ROWS;
        first_rows <= 1'b0;
        state <= more_rows ? START : IDLE;
        if (!more_rows) started <= 1'b0;
      end
    endcase
    if (clear) begin
      state <= IDLE;
      started <= 1'b0;
      ended <= 1'b0;
    end
  end

  logic blocks_ready, blocks_next;
  logic [7:0] block;
  logic [5:0] block_bank;
  logic [31:0] block_line;
  block_walk #(
      .STRIPES(TILE_STRIPES)
  ) walk (
      .clk(clk),
      .rst(clear),
      .start(rows_start),
      .command(command),
      .ready(blocks_ready),
      .next(blocks_next),
      .block(block),
      .bank(block_bank),
      .line(block_line)
  );

  logic round_free;
  logic [1:0] round_ready;
  line_kind_t line_kind;
  logic unit_valid, unit_free;
  logic [3:0] unit_where;
  logic [1:0] unit_group;
  logic stream_write, stream_side;
  assign line_kind = line_kind_t'(line_tag[15:14]);
  unit_fetch fetch (
      .clk(clk),
      .rst(clear),
      .start(rows_start),
      .command(command),
      .x_line(x_now),
      .read_x(started && state == LOAD),
      .rows(rows_now),
      .stripes(stripes),
      .stripes_log(3'($clog2(TILE_STRIPES))),
      .blocks_ready(blocks_ready),
      .blocks_next(blocks_next),
      .block(block),
      .block_bank(block_bank),
      .block_line(block_line),
      .read_valid(asks_read),
      .read_ready(read_taken),
      .read_bank(read_bank),
      .read_line(read_line),
      .read_tag(read_tag),
      .x_valid(line_here && line_kind == LINE_X),
      .stored_valid(stream_write),
      .stored_side(stream_side),
      .unit_valid(unit_valid),
      .unit_where(unit_where),
      .unit_group(unit_group),
      .unit_free(unit_free),
      .round_free(round_free),
      .round_ready(round_ready),
      .x_ready(x_ready)
  );

  // A bias that arrives while 4-bit weights are unpacked waits for a free cycle.
  logic bias_late, bias_late_side;
  logic [1:0] bias_late_to;
  logic [511:0] bias_late_line;
  logic weights_valid;
  logic [8:0] weights_to;
  logic [511:0] weights;
  w4_unpack unpack (
      .clk(clk),
      .rst(clear),
      .restart(rows_start),
      .unit_valid(unit_valid),
      .unit_where(unit_where),
      .unit_group(unit_group),
      .unit_free(unit_free),
      .pause(bias_late),
      .line_valid(line_here && line_kind == LINE_4_BIT),
      .line_room(line_tag[4]),
      .line_index(line_tag[3:0]),
      .line_data(line_data),
      .weights_valid(weights_valid),
      .weights_to(weights_to),
      .weights(weights)
  );

  logic bias_late_write;
  assign bias_late_write = bias_late && !weights_valid;
  always_ff @(posedge clk) begin
    if (line_here && line_kind == LINE_BIAS && command.four_bit) begin
      bias_late <= 1'b1;
      bias_late_side <= line_tag[8];
      bias_late_to <= line_tag[1:0];
      bias_late_line <= line_data;
    end else if (bias_late_write) bias_late <= 1'b0;
    if (clear) bias_late <= 1'b0;
  end

  // The stream buffer: two sides of eight segments of 32 lines, then the bias of four stripes. The
  // rows of x: a line a unit.
  logic [511:0] stream[1024], stream_line;
  logic [9:0] stream_address, stream_to, x_unit;
  logic [4:0] x_column;
  logic x_is_one;
  logic [16*ROWS-1:0] x;
  logic [511:0] stream_data;
  always_comb begin
    stream_write = line_here && (line_kind == LINE_WEIGHTS || line_kind == LINE_BIAS);
    stream_side = line_tag[8];
    stream_to = line_kind == LINE_BIAS ? {8'h80, line_tag[1:0]} : line_tag[9:0];
    stream_data = line_data;
    if (command.four_bit) begin
      stream_write = weights_valid || bias_late;
      stream_side = weights_valid ? weights_to[8] : bias_late_side;
      stream_to = weights_valid ? {1'b0, weights_to} : {8'h80, bias_late_to};
      stream_data = weights_valid ? weights : bias_late_line;
    end
  end
  always_ff @(posedge clk) begin
    if (stream_write) stream[stream_to] <= stream_data;
    stream_line <= stream[stream_address];
  end
  for (genvar row = 0; row < ROWS; row++) begin : row_of_x
    logic [511:0] units[MAX_UNITS], unit_line;
    always_ff @(posedge clk) begin
      if (line_here && line_kind == LINE_X && line_tag[13:10] == row[3:0])
        units[line_tag[9:0]] <= line_data;
      unit_line <= units[x_unit];
    end
    assign x[16*row+:16] = x_is_one ? 16'h3c00 : unit_line[16*x_column+:16];
  end
  logic [16*LANES-1:0] w;
  logic [4:0] stripe_part;  // of the stripe whose line is here
  if (LANES == 32) begin : whole_lines
    assign w = stream_line;
  end else begin : parts
    assign w = stream_line[16*LANES*stripe_part[$clog2(TILE_STRIPES)-1:0]+:16*LANES];
  end

  logic use_product, join_hold, hold_load, sum_clear, flags_take, result_valid;
  logic [4:0] result_column;
  fp16_schedule #(
      .LANES(LANES)
  ) schedule (
      .clk(clk),
      .rst(clear),
      .start(stripes_start),
      .command(command),
      .stripes(stripes),
      .busy(schedule_busy),
      .round_ready(round_ready),
      .round_free(round_free),
      .store_free(store_free && (!command.adapted || values_free)),
      .stream_address(stream_address),
      // verilator lint_off PINCONNECTEMPTY
      .stripe_now(),
      // verilator lint_on PINCONNECTEMPTY
      .stripe_part(stripe_part),
      .x_unit(x_unit),
      .x_column(x_column),
      .x_is_one(x_is_one),
      .use_product(use_product),
      .join_hold(join_hold),
      .hold_load(hold_load),
      .sum_clear(sum_clear),
      .flags_take(flags_take),
      .result_valid(result_valid),
      .result_column(result_column)
  );

  logic [32*ROWS-1:0] single;
  logic [16*ROWS-1:0] half;
  logic value_valid;
  fp16_lanes #(
      .LANES(LANES),
      .ROWS(ROWS)
  ) lanes (
      .clk(clk),
      .w(w),
      .x(x),
      .use_product(use_product),
      .join_hold(join_hold),
      .hold_load(hold_load),
      .column(result_column),
      .sum_clear(sum_clear),
      .flags_take(flags_take),
      .single(single),
      .half(half)
  );
  always_ff @(posedge clk) value_valid <= result_valid && !clear;
  assign stripe_log = 3'(LANES_LOG);
  assign stripe_valid = value_valid && command.adapted;
  assign stripe_values = single;

  result_store #(
      .LANES(LANES),
      .ROWS(ROWS)
  ) store (
      .clk(clk),
      .rst(clear),
      .start(stripes_start && first_rows),
      .next_rows(stripes_start),
      .command(command),
      .rows(rows_now),
      .value_valid(command.adapted ? values_valid : value_valid),
      .single(command.adapted ? values_single : single),
      .half(command.adapted ? values_half : half),
      .free(store_free),
      .stored(stored),
      .write_valid(asks_write),
      .write_ready(write_taken),
      .write_bank(write_bank),
      .write_line(write_line),
      .write_bytes(write_bytes),
      .write_data(write_data),
      .nonfinite_count(nonfinite_count),
      .nonfinite_row(nonfinite_row)
  );
endmodule
