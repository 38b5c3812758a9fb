// SPDX-License-Identifier: Apache-2.0
// Sums of squares of a row's segments (docs/numbers.md, 2.1 and 3.5), side by side: four adders of three cycles each, in
// which two segments take turns; each sum goes round in its adder, and its elements are added in their order.
module pipe_sums
  import float_types::*;
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
  localparam int RINGS = 4, TURNS = 3, DEPTH = 8;  // of a segment's lines that are read ahead
  typedef enum logic [2:0] {IDLE, SPANS, ROW, RUN, SETTLE, TAKE, WRITE} state_t;
  state_t state;
  logic [31:0] x_row, z_row;
  logic [3:0] wait_cycles;
  logic [2:0] span;
  logic [1:0] phase;

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

  // elements: in each cycle one of each ring's segments, none in the third
  logic [7:0][31:0] sum_of;
  logic [RINGS-1:0] over;  // no element is left
  for (genvar q = 0; q < RINGS; q++) begin : rings
    logic [511:0] memory[2*DEPTH];
    logic [1:0][DEPTH-1:0] came;
    logic [1:0][2:0] slot;
    logic [1:0][4:0] element;
    logic [1:0][31:0] left;
    logic [1:0][30:0] kept;
    logic s;
    logic takes, ends, taken, square_valid;
    logic [15:0] half;
    logic [31:0] value, square;
    logic [30:0] sum;
    assign s = phase[0];
    assign takes = state == RUN && phase != 2'd2 && left[s] != 32'd0 && came[s][slot[s]];
    assign ends = takes && (element[s] == 5'd31 || left[s] == 32'd1);
    assign over[q] = left == '0;
    assign sum_of[2*q] = {1'b0, kept[0]};
    assign sum_of[2*q+1] = {1'b0, kept[1]};
    assign freed[2*q+:2] = ends ? 2'd1 << s : 2'd0;
    assign value = half_to_float(half);
    always_ff @(posedge clk) begin
      taken <= takes;
      half <= memory[{s, slot[s]}][{element[s], 4'd0}+:16];
      if (line_valid && line_tag[5:4] == 2'(q)) begin
        memory[line_tag[3:0]] <= line_data;
        came[line_tag[3]][line_tag[2:0]] <= 1'b1;
      end
      if (takes) begin
        left[s] <= left[s] - 32'd1;
        element[s] <= element[s] + 5'd1;
      end
      if (ends) begin
        came[s][slot[s]] <= 1'b0;
        slot[s] <= slot[s] + 3'd1;
      end
      if (state == ROW) begin
        {came, slot, element} <= '0;
        for (int i = 0; i < 2; i++) left[i] <= whole[2*q+i] ? span_columns[2*q+i] : 32'd0;
      end
    end
    float_multiply multiply (
        .clk(clk), .valid(taken), .a(value), .b(value), .product_valid(square_valid), .product(square)
    );
    magnitude_add add (
        .clk(clk),
        .a(state == ROW || (state == RUN && wait_cycles != 4'd0) ? 31'd0 : sum),
        .b(square_valid ? square[30:0] : 31'd0),
        .sum(sum)
    );
    // an element goes in five cycles after its turn, so a sum comes out in the turn but one before its segment's
    always_ff @(posedge clk) if (state == TAKE && phase != 2'd1) kept[phase == 2'd0] <= sum;
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
    phase <= phase >= 2'd2 ? 2'd0 : phase + 2'd1;
    if (!read_valid || read_ready) turn <= turn + 3'd1;
    if (wait_cycles != 4'd0) wait_cycles <= wait_cycles - 4'd1;
    unique case (state)
      SPANS: begin
        span <= span + 3'd1;
        if (span == 3'd7) state <= ROW;
      end
      ROW: begin  // the sums become +0, before the first product is there
        wait_cycles <= 4'(TURNS);
        state <= RUN;
      end
      RUN:
      if (over == '1 && wait_cycles == 4'd0) begin
        wait_cycles <= 4'd9;  // the last products are added
        state <= SETTLE;
      end
      SETTLE:
      if (wait_cycles == 4'd0) begin
        wait_cycles <= 4'(TURNS);
        state <= TAKE;
      end
      TAKE: if (wait_cycles == 4'd1) state <= WRITE;
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
