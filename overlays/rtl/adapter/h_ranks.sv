// SPDX-License-Identifier: Apache-2.0
// A row of h: gathers the ranks that a factor of B multiplies, or stores those that a factor of A has made, a rank
// a cycle. Rank j lies at column h_first + j / h_run * h_skip + j mod h_run; ranks are counted from 0 on, so this
// needs no division. Of what is stored, values that are not finite are counted (docs/numbers.md, 1.2).
module h_ranks
  import adapter_types::*;
(
    input  logic         clk,
    input  logic         rst,
    input  logic         start,    // one cycle: a factor of a row
    input  logic         down,     // stores, else gathers
    input  factor_t      factor,
    input  logic [24:0]  columns,  // of the row
    input  logic [31:0]  row_offset,
    output logic         ready,    // gathered, or at the first rank that is to be stored
    output logic         bad,      // one cycle: a rank lies outside the row
    output logic         busy,     // ranks are being stored
    // gathers: lines of h, then values by rank
    output logic         run_valid,
    input  logic         run_ready,
    output run_t         run,
    input  logic         line_valid,
    input  logic [511:0] line_data,
    output logic         value_valid,
    output logic [9:0]   value_rank,
    output logic [15:0]  value,
    // stores: eight ranks, one a cycle
    input  logic         made_valid,
    input  logic [15:0]  made,
    output logic         free,
    output logic         stored,       // one cycle: all eight, or what there was of them
    output logic         nonfinite,    // one cycle: of what is stored
    output logic         write_valid,
    input  logic         write_ready,
    output logic [31:0]  write_line,
    output logic [63:0]  write_bytes,
    output logic [511:0] write_data
);
  typedef enum logic [2:0] {IDLE, WALK, GATHER, ASK, ANSWER, READY, STORE} state_t;
  state_t state;
  logic [15:0] rank, rank_end, in_run;
  logic [42:0] run_column;  // of the run of ranks that follow each other
  logic [43:0] column;
  logic [31:0] offset;
  logic [25:0] kept_line;
  logic [511:0] kept;
  logic is_kept, outside, here, step;
  logic [7:0][15:0] halves;
  logic [3:0] collected, place;
  assign rank_end = factor.rank_first + factor.rank_count;
  assign column = {1'b0, run_column} + {28'd0, in_run};
  assign outside = column >= {19'd0, columns};
  assign offset = row_offset + {column[30:0], 1'b0};
  assign here = is_kept && kept_line == offset[31:6];
  assign ready = state == READY;
  assign bad = outside && ((state == GATHER && rank != rank_end) || (state == STORE && rank != rank_end));

  assign run_valid = state == ASK;
  assign run = '{in_slot: 1'b0, line: {5'd0, offset[31:6]}, count: 6'd1, kind: LINE_OF_H, where: 9'd0};
  assign value_valid = state == GATHER && rank != rank_end && !outside && here;
  assign value_rank = rank[9:0];
  assign value = kept[16*offset[5:1]+:16];

  logic [15:0] half;
  logic last_stored;
  assign half = halves[place[2:0]];
  assign busy = state == STORE || (state == READY && collected == 4'd8);
  assign free = state == READY && collected == 4'd0 && !made_valid;
  assign write_valid = state == STORE && rank != rank_end && !outside;
  assign write_line = {6'd0, offset[31:6]};
  assign write_bytes = 64'd3 << {offset[5:1], 1'b0};
  assign write_data = {32{half}};
  assign nonfinite = write_valid && write_ready && half[14:10] == 5'h1f;
  assign last_stored = rank == rank_end || (write_ready && place == 4'd7);
  assign stored = state == STORE && !bad && last_stored;
  assign step = state == WALK || value_valid || (write_valid && write_ready);

  always_ff @(posedge clk) begin
    if (made_valid) begin
      halves[collected[2:0]] <= made;
      collected <= collected + 4'd1;
    end
    if (step) begin
      rank <= rank + 16'd1;
      in_run <= in_run + 16'd1;
      if (in_run + 16'd1 == factor.h_run) begin
        in_run <= 16'd0;
        run_column <= run_column + {11'd0, factor.h_skip};
      end
    end
    unique case (state)
      WALK:
      if (rank + 16'd1 == factor.rank_first) state <= down ? READY : GATHER;
      GATHER:
      if (rank == rank_end) state <= READY;
      else if (outside) state <= IDLE;
      else if (!here) state <= ASK;
      ASK: if (run_ready) state <= ANSWER;
      ANSWER:
      if (line_valid) begin
        kept <= line_data;
        kept_line <= offset[31:6];
        is_kept <= 1'b1;
        state <= GATHER;
      end
      READY:
      if (collected == 4'd8) begin
        place <= 4'd0;
        state <= STORE;
      end
      STORE: begin
        if (write_valid && write_ready) place <= place + 4'd1;
        if (stored) begin
          collected <= 4'd0;
          state <= READY;
        end else if (bad) state <= IDLE;
      end
      default: ;
    endcase
    if (start) begin
      rank <= 16'd0;
      in_run <= 16'd0;
      run_column <= {11'd0, factor.h_first};
      is_kept <= 1'b0;
      collected <= 4'd0;
      state <= factor.rank_first != 16'd0 ? WALK : down ? READY : GATHER;
    end
    if (rst) begin
      state <= IDLE;
      collected <= 4'd0;
    end
  end
endmodule
