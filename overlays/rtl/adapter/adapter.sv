// SPDX-License-Identifier: Apache-2.0
// Adapters of rows (docs/numbers.md, 7): h = FP16(A*x) of a LORA_CMD_ADAPTER; or beside an array that runs a
// LORA_CMD_MATRIX, whose FP32 results come by here, a stripe of columns after the other, so that scale*(B*h) is added
// to those of rows that name an adapter. `row` asks for the adapter of one of the command's rows, which comes in the
// next cycle. Tables and factors are read from the rows' slots; those that are wrong end the command with `verdict`.
// Announced or started with the array; `done` is a command's end of A*x, the array's that of the other.
module adapter
  import adapter_types::*;
#(
    parameter int ROWS = 1  // the array's
) (
    input  logic               clk,
    input  logic               rst,
    input  logic               abort_valid,
    output logic               idle,
    input  logic               announce_valid,  // nothing is read yet
    input  logic               command_valid,
    output logic               command_ready,
    input  logic               down,            // A*x
    input  logic [15:0]        matrix,          // number in the slots' directories
    input  logic [15:0]        k,               // A: columns of x, 1 .. 32767
    input  logic [31:0]        n,               // B: columns of the matrix, at least 1
    input  logic [6:0]         rows,            // at least 1
    input  logic [31:0]        x_line,          // A: on-chip, as h
    input  logic [31:0]        x_stride,
    input  logic [31:0]        h_offset,        // bytes
    input  logic [31:0]        h_stride,
    input  logic [10:0]        slots,           // of the list
    input  logic [20:0]        slot_chunks,
    input  logic [15:0]        slot_matrices,
    input  logic [24:0]        h_columns,
    input  logic [31:0]        slot_line,
    input  logic [5:0]         slot_bank_first,
    input  logic [5:0]         slot_bank_count, // at least 1 where there are slots
    output logic [5:0]         row,             // in the next cycle:
    input  logic [31:0]        row_adapter,     // its slot; negative: none
    output logic               done,
    output logic [1:0]         verdict,
    output logic [31:0]        nonfinite_count, // of h
    output logic [31:0]        nonfinite_row,   // ~0 none
    // array
    input  logic [2:0]         stripe_log,
    input  logic               sums_valid,
    input  logic [32*ROWS-1:0] sums,
    output logic               values_free,
    output logic               values_valid,
    output logic [32*ROWS-1:0] values_single,
    output logic [16*ROWS-1:0] values_half,
    // memory
    output logic               read_valid,
    input  logic               read_ready,
    output logic [5:0]         read_bank,
    output logic [31:0]        read_line,
    output logic [15:0]        read_tag,
    input  logic               line_valid,
    input  logic [15:0]        line_tag,
    input  logic [511:0]       line_data,
    output logic               write_valid,
    input  logic               write_ready,
    output logic [5:0]         write_bank,
    output logic [31:0]        write_line,
    output logic [63:0]        write_bytes,
    output logic [511:0]       write_data
);
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

  typedef enum logic [3:0] {
    IDLE, TOLD, STRIPE, ROW, ENTRY, ENTRY_ANSWER, FACTOR, FACTOR_ANSWER, CHECK, RANKS, BEGIN, RUN, NEXT_ROW, GIVE, FAIL,
    LOOK  // the row's slot comes
  } state_t;
  typedef struct packed {
    logic        down;
    logic [15:0] matrix;
    logic [15:0] k;
    logic [31:0] n;
    logic [6:0]  rows;
    logic [31:0] x_stride;
    logic [31:0] h_stride;
    slots_t      slots;
  } told_t;
  state_t state;
  told_t command;
  logic started, ended, accept;
  assign idle = runs && state == IDLE;
  assign command_ready = runs && !started;
  assign done = ended && runs;
  assign accept = (announce_valid || command_valid) && idle;

  // rows, and stripes of them
  logic [6:0] row_now, pass_first, pass_end;
  logic [31:0] row_x, row_h, pass_h, column, next_column;
  logic [31:0] stripe_columns;
  assign row = row_now[5:0];
  assign stripe_columns = 32'd1 << stripe_log;
  assign next_column = column + stripe_columns;
  assign pass_end = command.down || command.rows - pass_first < 7'(ROWS) ? command.rows : pass_first + 7'(ROWS);

  // the row's slot, matrix and factor
  logic [9:0] slot;
  logic slot_here, entry_here, factor_here, ranks_here;
  entry_t entry;
  factor_t factor;
  logic [16:0] index, index_first, index_end, factor_index;
  assign index_first = command.down ? 17'd0 : {1'b0, entry.down_count};
  assign index_end = {1'b0, entry.down_count} + (command.down ? 17'd0 : {1'b0, entry.up_count});

  // what the factor adds to: columns of the stripe
  logic [31:0] factor_end, low, high, stripe_end;
  logic factor_bad, overlaps;
  assign factor_end = factor.first + factor.count;
  assign stripe_end = next_column < command.n ? next_column : command.n;
  assign low = factor.first > column ? factor.first : column;
  assign high = factor_end < stripe_end ? factor_end : stripe_end;
  assign overlaps = low < high;
  assign factor_bad = factor.rank > MAX_RANK || factor.h_run == 16'd0 || factor.offset[5:0] != 6'd0 ||
      {1'b0, factor.rank_first} + {1'b0, factor.rank_count} > {1'b0, factor.rank} ||
      factor.first > MAX_COLUMNS || factor.count > MAX_COLUMNS ||
      (command.down && factor_end > {16'd0, command.k});

  // tables, h, x and values are read one kind after the other, but x and values
  logic run_valid, run_ready, table_asks, h_asks, sums_ask, reader_bad, forget;
  run_t run, table_run, h_run, sums_run;
  assign table_asks = state == ENTRY || state == FACTOR;
  always_comb begin
    table_run = '{in_slot: 1'b1, line: 31'd1 + {18'd0, command.matrix[15:3]}, count: 6'd1, kind: LINE_TABLE,
                  where: 9'd0};
    if (state == FACTOR) table_run.line = {5'd0, entry.offset[31:6]} + {14'd0, index};
  end
  logic factor_asked;  // the record has to be read
  assign factor_asked = state == FACTOR && index != index_end && entry.offset[5:0] == 6'd0 &&
      !(factor_here && factor_index == index);
  always_comb begin
    run = sums_run;
    run_valid = sums_ask;
    if (h_asks) run = h_run;
    if (table_asks) run = table_run;
    if (h_asks || state == ENTRY || factor_asked) run_valid = 1'b1;
  end
  assign forget = state == ROW && (!slot_here || slot != row_adapter[9:0]);
  slot_reader reader (
      .clk(clk),
      .rst(clear),
      .slots(command.slots),
      .slot(slot),
      .forget(forget),
      .run_valid(run_valid),
      .run_ready(run_ready),
      .run(run),
      .bad(reader_bad),
      .read_valid(asks_read),
      .read_ready(read_taken),
      .read_bank(read_bank),
      .read_line(read_line),
      .read_tag(read_tag)
  );
  line_kind_t line_kind;
  assign line_kind = line_kind_t'(line_tag[10:9]);
  logic [10:0] under_way;
  always_ff @(posedge clk) begin
    under_way <= under_way + {10'd0, asks_read && read_taken} - {10'd0, line_here};
    if (clear) under_way <= 11'd0;
  end

  logic ranks_start, ranks_ready, ranks_bad, ranks_busy, h_valid, made_free, made_stored, nonfinite;
  logic [9:0] h_rank;
  logic [15:0] h_value, sum_half;
  logic sum_valid;
  logic [31:0] sum_single;
  h_ranks ranks (
      .clk(clk),
      .rst(clear),
      .start(ranks_start),
      .down(command.down),
      .factor(factor),
      .columns(command.slots.columns),
      .row_offset(row_h),
      .ready(ranks_ready),
      .bad(ranks_bad),
      .busy(ranks_busy),
      .run_valid(h_asks),
      .run_ready(run_ready),
      .run(h_run),
      .line_valid(line_here && line_kind == LINE_OF_H),
      .line_data(line_data),
      .value_valid(h_valid),
      .value_rank(h_rank),
      .value(h_value),
      .made_valid(sum_valid && command.down && state == RUN),
      .made(sum_half),
      .free(made_free),
      .stored(made_stored),
      .nonfinite(nonfinite),
      .write_valid(asks_write),
      .write_ready(write_taken),
      .write_line(write_line),
      .write_bytes(write_bytes),
      .write_data(write_data)
  );
  assign write_bank = 6'd63;

  // the factor's sums; of B those of eight columns a stripe of the lanes, of a tile of 32
  logic [31:0] base, tile_lines;
  logic [15:0] range_first, range_end, stripe_step;
  logic [7:0] stripes, stripes_done;
  logic [1:0] part_low, part_high, part_first, part;
  logic update_free, update_added, sums_start;
  assign part_low = 2'((low - column) >> 3);
  assign part_high = 2'((high - 32'd1 - column) >> 3);
  assign part = part_first + stripes_done[1:0];
  factor_sums products (
      .clk(clk),
      .rst(clear || state == FAIL),
      .start(sums_start),
      .down(command.down),
      .k(command.down ? command.k : factor.rank),
      .first(range_first),
      .range_end(range_end),
      .base(base),
      .stripe_step(stripe_step),
      .x_line(row_x[30:0]),
      .stripes(stripes),
      .part_first(column[4:3] + part_first),
      .run_valid(sums_ask),
      .run_ready(run_ready && !table_asks && !h_asks),
      .run(sums_run),
      .line_valid(line_here),
      .line_kind(line_tag[10:9]),
      .line_where(line_tag[8:0]),
      .line_data(line_data),
      .h_valid(h_valid),
      .h_rank(h_rank),
      .h_value(h_value),
      .store_free(command.down ? made_free : update_free),
      .value_valid(sum_valid),
      .single(sum_single),
      .half(sum_half)
  );

  logic stripe_here, stripe_given, gives, quiet;
  assign quiet = run_ready && under_way == 11'd0 && !ranks_busy;
  assign gives = !command.down && ((state == STRIPE && stripe_here && verdict != GOOD) ||
      (state == ROW && row_now == pass_end) || (state == FAIL && quiet));
  tile_update #(
      .ROWS(ROWS)
  ) update (
      .clk(clk),
      .rst(clear || accept),
      .stripe_log(stripe_log),
      .sums_valid(sums_valid),
      .sums(sums),
      .stripe_here(stripe_here),
      .stripe_free(values_free),
      .row(3'(row_now - pass_first)),
      .part(part),
      .low(low),
      .high(high),
      .column_first(column),
      .scale(factor.scale),
      .u_valid(sum_valid && !command.down && state == RUN),
      .u(sum_single),
      .free(update_free),
      .added(update_added),
      .give(gives),
      .given(stripe_given),
      .value_valid(values_valid),
      .single(values_single),
      .half(values_half)
  );

  // a step of the rows' loop that fails
  logic fails;
  verdict_t failure;
  logic row_named;
  assign row_named = state == ROW && row_now != pass_end && !row_adapter[31];
  always_comb begin
    fails = 1'b0;
    failure = BAD_SIZE;
    if (row_named && ({1'b0, row_adapter[30:0]} >= {21'd0, command.slots.slots} ||
                      command.matrix >= command.slots.matrices)) begin
      fails = 1'b1;
      failure = BAD_ADDRESS;
    end
    if (reader_bad) begin
      fails = 1'b1;
      failure = state == FACTOR_ANSWER ? BAD_SIZE : BAD_ADDRESS;
    end
    if (state == FACTOR && index != index_end && entry.offset[5:0] != 6'd0) fails = 1'b1;
    if (state == CHECK && factor_bad) fails = 1'b1;
    if (ranks_bad && (state == RANKS || state == RUN)) fails = 1'b1;
  end
  assign ranks_start = state == CHECK && !factor_bad && (command.down ? factor.rank_count != 16'd0
                                                                      : overlaps && !ranks_here);
  assign sums_start = state == BEGIN;

  always_ff @(posedge clk) begin
    ended <= 1'b0;
    if (command_valid && command_ready) started <= 1'b1;
    unique case (state)
      IDLE:
      if (accept) begin
        command <= '{
            down: down, matrix: matrix, k: k, n: n, rows: rows, x_stride: x_stride, h_stride: h_stride,
            slots: '{
                slots: slots, chunks: slot_chunks, matrices: slot_matrices, columns: h_columns, line: slot_line,
                bank_first: slot_bank_first, bank_count: slot_bank_count
            }
        };
        row_x <= x_line;
        row_h <= h_offset;
        pass_h <= h_offset;
        row_now <= 7'd0;
        pass_first <= 7'd0;
        column <= 32'd0;
        slot_here <= 1'b0;
        entry_here <= 1'b0;
        verdict <= GOOD;
        state <= TOLD;
      end
      TOLD: if (started) state <= command.down ? LOOK : STRIPE;
      STRIPE:
      if (stripe_here) begin
        row_now <= pass_first;
        row_h <= pass_h;
        state <= verdict == GOOD ? LOOK : GIVE;
      end
      LOOK: state <= ROW;
      ROW: begin
        if (row_now == pass_end) state <= command.down ? IDLE : GIVE;
        else if (row_adapter[31]) state <= NEXT_ROW;
        else begin
          slot <= row_adapter[9:0];
          slot_here <= 1'b1;
          // one row's tables stay from stripe to stripe
          if (entry_here && ROWS == 1 && !command.down) state <= FACTOR;
          else begin
            entry_here <= 1'b0;
            state <= ENTRY;
          end
          index <= index_first;
        end
        if (row_now == pass_end && command.down) begin
          ended <= 1'b1;
          started <= 1'b0;
        end
      end
      ENTRY: begin
        factor_here <= 1'b0;
        if (run_ready) state <= ENTRY_ANSWER;
      end
      ENTRY_ANSWER:
      if (line_here && line_kind == LINE_TABLE) begin
        entry <= line_data[64*command.matrix[2:0]+:64];
        entry_here <= 1'b1;
      end else if (entry_here) begin
        index <= index_first;
        state <= FACTOR;
      end
      FACTOR:
      if (index == index_end) state <= NEXT_ROW;
      else if (factor_asked) begin
        if (run_ready) state <= FACTOR_ANSWER;
      end else state <= CHECK;
      FACTOR_ANSWER:
      if (line_here && line_kind == LINE_TABLE) begin
        factor <= line_data;
        factor_here <= 1'b1;
        factor_index <= index;
        ranks_here <= 1'b0;
        state <= CHECK;
      end
      CHECK: begin
        index <= index + 17'd1;
        state <= FACTOR;
        if (command.down && factor.rank_count != 16'd0) state <= RANKS;
        if (!command.down && overlaps) state <= ranks_here ? BEGIN : RANKS;
        // A: 16 bytes a column; B: a line a rank, of each tile that the factor touches
        range_first <= command.down ? factor.first[15:0] : factor.rank_first;
        range_end <= command.down ? factor_end[15:0] : factor.rank_first + factor.rank_count;
        stripe_step <= command.down ? factor.count[15:0] : 16'd0;
        stripes <= command.down ? 8'((factor.rank_count + 16'd7) >> 3) : {6'd0, part_high - part_low} + 8'd1;
        part_first <= part_low;
        stripes_done <= 8'd0;
        tile_lines <= ({5'd0, column[31:5]} - {5'd0, factor.first[31:5]}) * {16'd0, factor.rank_count};
      end
      RANKS: if (ranks_ready) begin
        ranks_here <= !command.down;
        state <= BEGIN;
      end
      BEGIN: state <= RUN;
      RUN: begin
        if (made_stored || update_added) stripes_done <= stripes_done + 8'd1;
        if (stripes_done == stripes) state <= FACTOR;
      end
      NEXT_ROW: begin
        row_now <= row_now + 7'd1;
        row_x <= row_x + command.x_stride;
        row_h <= row_h + command.h_stride;
        state <= LOOK;
      end
      GIVE:
      if (stripe_given) begin
        column <= next_column;
        state <= STRIPE;
        if (next_column >= command.n) begin
          column <= 32'd0;
          pass_first <= pass_end;
          pass_h <= row_h;
          entry_here <= 1'b0;
          if (pass_end == command.rows) begin
            started <= 1'b0;
            state <= IDLE;
          end
        end
      end
      default:  // FAIL: what has been asked for still comes
      if (quiet) begin
        state <= command.down ? IDLE : GIVE;
        if (command.down) begin
          ended <= 1'b1;
          started <= 1'b0;
        end
      end
    endcase
    if (fails) begin
      verdict <= failure;
      state <= FAIL;
    end
    if (clear) begin
      state <= IDLE;
      started <= 1'b0;
      ended <= 1'b0;
    end
  end

  assign base = command.down
      ? {4'd0, factor.offset[31:4]} - {16'd0, range_first}
      : {6'd0, factor.offset[31:6]} + tile_lines - {16'd0, range_first};

  always_ff @(posedge clk) begin
    if (nonfinite) begin
      nonfinite_count <= nonfinite_count + 32'd1;
      if (nonfinite_row == 32'hffffffff) nonfinite_row <= {25'd0, row_now};
    end
    if (accept) begin
      nonfinite_count <= 32'd0;
      nonfinite_row <= 32'hffffffff;
    end
  end
endmodule
