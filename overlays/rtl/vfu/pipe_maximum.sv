// SPDX-License-Identifier: Apache-2.0
// The argmax of rows of FP32 (docs/numbers.md, 3.11): a line of 16 values a cycle, in the order in which memory gives them.
// Of equal values the one of the lowest column counts, a NaN beats all.
module pipe_maximum
  import float_types::*;
  import pipe_types::*;
(
    input  logic          clk,
    input  logic          rst,
    input  logic          start,
    input  pipe_command_t command,     // held
    output logic          finished,
    output logic          bad_valid,   // a row ends, whose maximum is not finite
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
  localparam int LEVELS = 4;
  typedef enum logic [1:0] {IDLE, ROW, RUN, WRITE} state_t;
  state_t state;
  // A value as a number that orders as values do: both zeros alike, NaN above all. `minus`: a zero's sign.
  typedef struct packed {
    logic        minus;
    logic [31:0] key;
    logic [3:0]  column;
  } entry_t;
  function automatic logic [31:0] key_of(input logic [31:0] value);
    if (value[30:0] > 31'h7f800000) return '1;
    if (value[30:0] == 31'd0) return 32'h80000000;
    return value[31] ? ~value : {1'b1, value[30:0]};
  endfunction
  function automatic logic [31:0] value_of(input logic minus, input logic [31:0] key);
    if (key == '1) return FLOAT_NAN;
    if (key == 32'h80000000) return {minus, 31'd0};
    return key[31] ? {1'b0, key[30:0]} : ~key;
  endfunction

  // --- lines, asked for in order --------------------------------------------------------------------------
  logic [31:0] x_row, y_row;
  logic [20:0] lines, asked, came;  // of a row
  logic [63:0] waits;               // by tag
  logic [20:0] line_of[64];
  assign lines = 21'((command.columns + 32'd15) >> 4);
  assign read_tag = asked[5:0];
  assign read_line = x_row + {11'd0, asked};
  assign read_valid = state == RUN && asked != lines && !waits[read_tag];
  always_ff @(posedge clk) begin
    if (line_valid) waits[line_tag] <= 1'b0;
    if (read_valid && read_ready) begin
      line_of[read_tag] <= asked;
      waits[read_tag] <= 1'b1;
      asked <= asked + 21'd1;
    end
    came <= came + {20'd0, line_valid};
    if (state == ROW) {asked, came, waits} <= '0;
  end

  // --- the first maximum of a line: half as many a cycle --------------------------------------------------
  logic [LEVELS+1:0] valid;
  logic [LEVELS+1:0][20:0] line;
  logic [511:0] data;
  entry_t level[LEVELS+1][16];
  always_ff @(posedge clk) begin
    valid <= {valid[LEVELS:0], line_valid};
    line <= {line[LEVELS:0], line_of[line_tag]};
    data <= line_data;
    for (int i = 0; i < 16; i++) begin
      level[0][i] <= '{minus: data[32*i+31], key: key_of(data[32*i+:32]), column: 4'(i)};
      if ({line[0][20:0], 4'(i)} >= command.columns[24:0]) level[0][i].key <= 32'd0;  // below all
    end
    for (int n = 0; n < LEVELS; n++)
      for (int i = 0; i < 8 >> n; i++)
        level[n+1][i] <= level[n][2*i+1].key > level[n][2*i].key ? level[n][2*i+1] : level[n][2*i];
    if (rst || state == ROW) valid <= '0;
  end

  // --- the row's ------------------------------------------------------------------------------------------
  entry_t best;
  logic [20:0] best_line;
  logic takes;
  assign takes = level[LEVELS][0].key > best.key ||
      (level[LEVELS][0].key == best.key && line[LEVELS+1] < best_line);
  always_ff @(posedge clk) begin
    if (valid[LEVELS+1] && takes) begin
      best <= level[LEVELS][0];
      best_line <= line[LEVELS+1];
    end
    if (state == ROW) {best, best_line} <= '0;
  end

  logic [31:0] highest, token;
  logic row_ends;
  assign highest = value_of(best.minus, best.key);
  assign token = command.first + {7'd0, best_line, best.column};
  assign write_valid = state == WRITE;
  assign write_line = {6'd0, y_row[31:6]};
  assign write_bytes = 64'hff << {y_row[5:3], 3'd0};
  assign write_data = {8{token, highest}};
  assign row_ends = write_valid && write_ready;
  assign bad_valid = row_ends && highest[30:23] == 8'd255;
  assign finished = row_ends && row + 7'd1 == command.rows;
  always_ff @(posedge clk) begin
    unique case (state)
      ROW: state <= RUN;
      RUN: if (came == lines && valid == '0) state <= WRITE;
      WRITE:
      if (row_ends) begin
        row <= row + 7'd1;
        x_row <= x_row + {6'd0, command.x_stride[31:6]};
        y_row <= y_row + command.y_stride;
        state <= finished ? IDLE : ROW;
      end
      default: ;
    endcase
    if (start) begin
      row <= 7'd0;
      x_row <= {6'd0, command.x_offset[31:6]};
      y_row <= command.y_offset;
      state <= ROW;
    end
    if (rst) state <= IDLE;
  end
endmodule
