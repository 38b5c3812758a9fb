// SPDX-License-Identifier: Apache-2.0
// The INT8 half of the matmul array: W8A8, and with DEPTH 8 W4A8 as well, of a LORA_CMD_MATRIX. What
// adapters add comes from the adapter unit. One group of sixteen columns times DEPTH and ROWS rows behind one
// port that reads lines and one that writes them. Lines may come back in any order: each brings its tag. `done` is one cycle; the
// counts hold until the next command.
module mpu_int8
  import mpu_types::*;
#(
    parameter int ROWS = 1,       // at most 8
    parameter int DEPTH = 8,      // 4 or 8
    parameter int DSP58 = 0,      // 1: multipliers of Versal devices
    parameter int DSP48 = 0       // 1: sums in chains of DSP48E2s
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         abort_valid,    // what runs and what was announced; `idle` afterwards
    output logic         idle,           // nothing runs, is announced or is on the port
    input  logic         announce_valid, // while idle: weights may be fetched, nothing is written
    input  logic         command_valid,  // starts what was announced, else the command that is here
    output logic         command_ready,
    input  logic [15:0]  k,              // 1 .. 32767
    input  logic [31:0]  n,              // at least 1
    input  logic [6:0]   rows,           // at least 1
    input  logic [31:0]  weight_line,
    input  logic [15:0]  first,
    input  logic [7:0]   merge,
    input  logic [5:0]   bank_first,
    input  logic [5:0]   bank_count,
    input  logic         has_bias,
    input  logic [5:0]   bias_bank,      // of the scales, too
    input  logic [31:0]  bias_line,      // of the scales; the bias follows
    input  logic [5:0]   x_bank,
    input  logic [31:0]  x_line,
    input  logic [31:0]  x_stride,
    input  logic [5:0]   y_bank,
    input  logic [31:0]  y_line,
    input  logic [31:0]  y_stride,
    input  logic         y_single,
    input  logic         four_bit,       // k is a multiple of 32 << group_log
    input  logic [1:0]   group_log,
    input  logic         row_scales,
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
  localparam int TOTAL_DELAY = 16;  // from a pass' begin to its last stored total
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
  logic [31:0] x_now, tiles, stored;
  logic first_rows;  // of the command
  logic started, ended;
  logic accept, rows_start, tiles_start, x_ready, schedule_busy, store_free, rows_done, more_rows;

  assign idle = runs && state == IDLE;
  assign command_ready = runs && !started;
  assign done = ended && runs;
  assign accept = (announce_valid || command_valid) && idle;
  assign rows_now = rows_left > 7'(ROWS) ? 4'(ROWS) : rows_left[3:0];
  assign more_rows = rows_left > 7'(ROWS);
  assign tiles = (command.n + 32'd31) >> 5;
  assign rows_start = state == START;
  assign tiles_start = state == LOAD && x_ready;
  assign rows_done = state == RUN && stored == tiles && !schedule_busy;
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
            y_single: y_single, eight_bit: !four_bit, four_bit: four_bit, group_log: group_log,
            row_scales: row_scales, adapted: adapted
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
  block_walk walk (
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

  logic slot_free, params_free;
  logic [2**BLOCKS_LOG-1:0] slot_ready;
  logic [1:0] params_ready;
  integer_fetch fetch (
      .clk(clk),
      .rst(clear),
      .start(rows_start),
      .command(command),
      .x_line(x_now),
      .read_x(started && state == LOAD),
      .rows(rows_now),
      .tiles(tiles),
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
      .line_valid(line_here),
      .line_tag(line_tag),
      .slot_free(slot_free),
      .slot_ready(slot_ready),
      .params_free(params_free),
      .params_ready(params_ready),
      .x_ready(x_ready)
  );

  line_kind_t line_kind;
  assign line_kind = line_kind_t'(line_tag[15:14]);
  logic [511:0] stream[64*2**BLOCKS_LOG], stream_line, params[8];
  logic [BLOCKS_LOG+5:0] stream_address;
  logic [8:0] x_address, x_lines;
  always_ff @(posedge clk) begin
    if (line_here && line_kind == LINE_WEIGHTS) stream[line_tag[BLOCKS_LOG+5:0]] <= line_data;
    if (line_here && line_kind == LINE_BIAS) params[line_tag[2:0]] <= line_data;
    stream_line <= stream[stream_address];
  end
  logic [ROWS-1:0][511:0] x_unit;
  logic [31:0] row_scale[ROWS];
  assign x_lines = 9'((command.k + 16'd63) >> 6);
  for (genvar row = 0; row < ROWS; row++) begin : row_of_x
    logic [511:0] units[512];
    always_ff @(posedge clk) begin
      if (line_here && line_kind == LINE_X && line_tag[13:10] == row[3:0]) begin
        // the scale lies behind four times eight bytes of the line behind the columns
        if (command.row_scales && line_tag[9:0] == {1'b0, x_lines}) row_scale[row] <= line_data[256+:32];
        else units[line_tag[8:0]] <= line_data;
      end
      x_unit[row] <= units[x_address];
    end
  end

  logic sum_free;
  line_use_t line_use;
  integer_schedule schedule (
      .clk(clk),
      .rst(clear),
      .start(tiles_start),
      .command(command),
      .tiles(tiles),
      .busy(schedule_busy),
      .slot_ready(slot_ready),
      .slot_free(slot_free),
      .sum_free(sum_free),
      .stream_address(stream_address),
      .x_address(x_address),
      .use_next(line_use)
  );

  logic scales_valid, sum_valid, sum_segment_end;
  logic [SUMS_LOG-1:0] scales_sum;
  logic [SUMS_LOG:0] sum_where;
  logic [ROWS-1:0][511:0] sums;
  integer_lanes #(
      .ROWS(ROWS),
      .DEPTH(DEPTH),
      .DSP58(DSP58),
      .DSP48(DSP48)
  ) lanes (
      .clk(clk),
      .rst(clear),
      .four_bit(command.four_bit),
      .line_use(line_use),
      .stream_line(stream_line),
      .x_line(x_unit),
      .scales_valid(scales_valid),
      .scales_sum(scales_sum),
      .sum_valid(sum_valid),
      .sum_where(sum_where),
      .sum_segment_end(sum_segment_end),
      .sums(sums)
  );

  // Sums that wait, oldest first; what reads them: a pass of W4A8, else the finish.
  logic [SUMS_LOG-1:0] oldest;
  logic [SUMS_LOG:0] waiting;
  logic [2**SUMS_LOG-1:0] segment_ends;
  logic sums_start, part_done, tile_taken;
  assign sums_start = tiles_start;
  assign sum_free = command.four_bit ? part_done : tile_taken;
  always_ff @(posedge clk) begin
    waiting <= waiting + {{SUMS_LOG{1'b0}}, sum_valid && sum_where[0]} - {{SUMS_LOG{1'b0}}, sum_free};
    if (sum_valid) segment_ends[sum_where[SUMS_LOG:1]] <= sum_segment_end;
    if (sum_free) oldest <= oldest + 1'b1;
    if (clear || sums_start) begin
      waiting <= '0;
      oldest <= '0;
    end
  end

  pass_t pass;
  logic [4:0] column;
  logic total_made, total_side, totals_read_side;
  logic [1:0] totals, totals_complete;
  logic [TOTAL_DELAY-1:0] total_delay;
  logic [511:0] scales[2**SUMS_LOG];
  logic [63:0] part_scales;
  assign part_scales = scales[oldest][64*pass.slot+:64];
  always_ff @(posedge clk) if (scales_valid) scales[scales_sum] <= stream_line;
  w4_passes passes (
      .clk(clk),
      .rst(clear),
      .start(tiles_start),
      .command(command),
      .part_waiting(waiting != '0),
      .part_segment_end(segment_ends[oldest]),
      .part_done(part_done),
      .total_free(totals != 2'd2),
      .total_made(total_made),
      .pass(pass)
  );
  always_ff @(posedge clk) begin
    total_delay <= {total_delay[TOTAL_DELAY-2:0], total_made};
    totals <= totals + {1'b0, total_made} - {1'b0, command.four_bit && tile_taken};
    totals_complete <= totals_complete + {1'b0, total_delay[TOTAL_DELAY-1]} - {1'b0, command.four_bit && tile_taken};
    if (total_delay[TOTAL_DELAY-1]) total_side <= !total_side;
    if (command.four_bit && tile_taken) totals_read_side <= !totals_read_side;
    if (clear || tiles_start) begin
      total_delay <= '0;
      totals <= 2'd0;
      totals_complete <= 2'd0;
      total_side <= 1'b0;
      totals_read_side <= 1'b0;
    end
  end

  logic [31:0] sum[ROWS], total[ROWS];
  for (genvar row = 0; row < ROWS; row++) begin : row_of_sums
    logic [511:0] kept[2*2**SUMS_LOG], column_sums;
    logic [127:0] part_sums;
    always_ff @(posedge clk) if (sum_valid) kept[sum_where] <= sums[row];
    assign column_sums = kept[{oldest, command.four_bit ? pass.slot[2] : column[4]}];
    assign part_sums = column_sums[128*pass.slot[1:0]+:128];
    assign sum[row] = column_sums[32*column[3:0]+:32];
    if (DEPTH == 8) begin : four_bit_too
      w4_segments segments (
          .clk(clk),
          .pass(pass),
          .part_sums(part_sums),
          .part_scales(part_scales),
          .total_side(total_side),
          .read_where({totals_read_side, column}),
          .total(total[row])
      );
    end else begin : eight_bit_only
      assign total[row] = 32'd0;
    end
  end

  logic params_side, value_valid;
  logic [32*ROWS-1:0] single;
  logic [16*ROWS-1:0] half;
  always_ff @(posedge clk) begin
    if (params_free) params_side <= !params_side;
    if (clear || rows_start) params_side <= 1'b0;
  end
  integer_finish #(
      .ROWS(ROWS)
  ) finish (
      .clk(clk),
      .rst(clear),
      .command(command),
      .tile_ready(state == RUN && params_ready[params_side] &&
                  (command.four_bit ? totals_complete != 2'd0 : waiting != '0)),
      .store_free(store_free && (!command.adapted || values_free)),
      .taken(tile_taken),
      .params_free(params_free),
      .column(column),
      .scale_line(params[{params_side, 1'b0, column[4]}]),
      .bias_line(params[{params_side, 2'd2}]),
      .sum(sum),
      .total(total),
      .row_scale(row_scale),
      .value_valid(value_valid),
      .single(single),
      .half(half)
  );

  assign stripe_log = 3'd5;
  assign stripe_valid = value_valid && command.adapted;
  assign stripe_values = single;
  result_store #(
      .LANES(32),
      .ROWS(ROWS)
  ) store (
      .clk(clk),
      .rst(clear),
      .start(tiles_start && first_rows),
      .next_rows(tiles_start),
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
