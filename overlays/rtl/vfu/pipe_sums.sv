// SPDX-License-Identifier: Apache-2.0
// Sums of squares of a row's segments (docs/numbers.md, 2.1 and 3.5), side by side: each has a sum of its own, to which its
// elements are added in their order, one a cycle.
module pipe_sums
  import vfu_types::*;
  import pipe_types::*;
(
    input  logic          clk,
    input  logic          rst,
    input  logic          start,
    input  pipe_command_t command,  // held
    output logic          finished,
    output logic          bad_valid,
    output logic [3:0]    bad,      // sums of this row that are to be counted
    output logic [6:0]    row,
    output logic          read_valid,
    input  logic          read_ready,
    output logic [31:0]   read_line,
    output logic [5:0]    read_tag,
    input  logic          line_valid,
    input  logic [5:0]    line_tag,
    input  logic [511:0]  line_data,
    output logic          write_valid,
    input  logic          write_ready,
    output logic [31:0]   write_line,
    output logic [63:0]   write_bytes,
    output logic [511:0]  write_data
);
  localparam int DEPTH = 8;  // of a segment's lines that are read ahead
  typedef enum logic [2:0] {IDLE, SPANS, ROW, RUN, WRITE} state_t;
  state_t state;
  logic [31:0] x_row, z_row;
  logic [2:0] span;

  // segments of d that are here as a whole: first line and columns
  logic [7:0] whole;
  logic [7:0][31:0] span_line, span_columns;
  logic [31:0] span_first, span_end;
  assign span_first = segment_column({1'b0, span}, command.extra);
  assign span_end = segment_column({1'b0, span} + 4'd1, command.extra);
  always_ff @(posedge clk) if (state == SPANS) begin
    whole[span] <= span_first != span_end && span_first >= command.first &&
        span_end - command.first <= command.columns;
    span_line[span] <= (span_first - command.first) >> 5;
    span_columns[span] <= span_end - span_first;
  end

  // lines, of all segments in turns
  logic [7:0][31:0] next_line, lines_left;
  logic [7:0][2:0] asked;
  logic [7:0][3:0] count;
  logic [7:0] freed;
  logic [2:0] turn;
  assign read_valid = state == RUN && lines_left[turn] != 32'd0 && count[turn] != 4'(DEPTH);
  assign read_line = next_line[turn];
  assign read_tag = {turn, asked[turn]};
  for (genvar s = 0; s < 8; s++) begin : segments
    logic taken;
    assign taken = read_valid && read_ready && turn == 3'(s);
    always_ff @(posedge clk) begin
      count[s] <= count[s] + {3'd0, taken} - {3'd0, freed[s]};
      if (taken) begin
        next_line[s] <= next_line[s] + 32'd1;
        lines_left[s] <= lines_left[s] - 32'd1;
        asked[s] <= asked[s] + 3'd1;
      end
      if (state == ROW) begin
        next_line[s] <= x_row + span_line[s];
        lines_left[s] <= whole[s] ? (span_columns[s] + 32'd31) >> 5 : 32'd0;
        {asked[s], count[s]} <= '0;
      end
    end
  end

  // elements, one a cycle of each segment
  logic [7:0][31:0] sum_of;
  logic [7:0] settled;
  for (genvar s = 0; s < 8; s++) begin : folds
    logic [511:0] memory[DEPTH];
    logic [DEPTH-1:0] came;
    logic [2:0] slot;
    logic [4:0] element;
    logic [31:0] left;
    logic takes, ends, taken, ready;
    logic [15:0] half;
    assign takes = state == RUN && left != 32'd0 && came[slot] && (!taken || ready);
    assign ends = takes && (element == 5'd31 || left == 32'd1);
    assign freed[s] = ends;
    assign sum_of[s][31] = 1'b0;
    always_ff @(posedge clk) begin
      if (takes) half <= memory[slot][{element, 4'd0}+:16];
      taken <= takes || (taken && !ready);
      if (line_valid && line_tag[5:3] == 3'(s)) begin
        memory[line_tag[2:0]] <= line_data;
        came[line_tag[2:0]] <= 1'b1;
      end
      if (takes) begin
        left <= left - 32'd1;
        element <= element + 5'd1;
      end
      if (ends) begin
        came[slot] <= 1'b0;
        slot <= slot + 3'd1;
      end
      if (state == ROW) begin
        {came, slot, element, taken} <= '0;
        left <= whole[s] ? span_columns[s] : 32'd0;
      end
    end
    square_sum fold (
        .clk(clk),
        .clear(state == ROW),
        .valid(taken),
        .ready(ready),
        .half(half),
        .last(state == RUN && left == 32'd0 && !taken),
        .settled(settled[s]),
        .sum(sum_of[s][30:0])
    );
  end

  assign write_valid = state == WRITE && whole != 8'd0;
  assign write_line = z_row;
  always_comb begin
    write_data = 512'(sum_of);
    bad = 4'd0;
    for (int s = 0; s < 8; s++) begin
      write_bytes[4*s+:4] = {4{whole[s]}};
      if (whole[s] && sum_of[s][30:23] == 8'd255) bad = bad + 4'd1;
    end
    write_bytes[63:32] = 32'd0;
  end
  logic row_ends;
  assign row_ends = state == WRITE && (write_ready || whole == 8'd0);
  assign bad_valid = row_ends;
  assign finished = row_ends && row + 7'd1 == command.rows;
  always_ff @(posedge clk) begin
    if (!read_valid || read_ready) turn <= turn + 3'd1;
    unique case (state)
      SPANS: begin
        span <= span + 3'd1;
        if (span == 3'd7) state <= ROW;
      end
      ROW: state <= RUN;
      RUN: if (settled == '1) state <= WRITE;
      WRITE:
      if (row_ends) begin
        row <= row + 7'd1;
        x_row <= x_row + {6'd0, command.x_stride[31:6]};
        z_row <= z_row + {6'd0, command.z_stride[31:6]};
        state <= row + 7'd1 == command.rows ? IDLE : ROW;
      end
      default: ;
    endcase
    if (start) begin
      row <= 7'd0;
      x_row <= {6'd0, command.x_offset[31:6]};
      z_row <= {6'd0, command.z_offset[31:6]};
      span <= 3'd0;
      state <= SPANS;
    end
    if (rst) state <= IDLE;
  end
endmodule
