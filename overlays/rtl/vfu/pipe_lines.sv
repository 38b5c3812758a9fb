// SPDX-License-Identifier: Apache-2.0
// Reads the lines of a command of the pipes ahead, stream by stream as vfu_types names them, all rows one after another.
// A block is 32 columns: a line of FP16 of each stream, two of FP32. A norm's sums are a line a row.
module pipe_lines
  import vfu_types::*;
  import pipe_types::*;
(
    input  logic          clk,
    input  logic          rst,
    input  logic          start,
    input  pipe_command_t command,       // held, and so are the next two
    input  pipe_kind_t    kind,
    input  logic [3:0][1:0] lines,       // of each stream in a block
    output logic [6:0]    row,           // whose position is asked for, in the next cycle
    input  logic [31:0]   row_position,
    output logic          read_valid,
    input  logic          read_ready,
    output logic [5:0]    read_bank,
    output logic [31:0]   read_line,
    output logic [6:0]    read_tag,
    input  logic          line_valid,
    input  logic [6:0]    line_tag,
    input  logic [511:0]  line_data,
    // the first lines of each stream
    output logic [3:0][1:0] here,        // how many of the first two have come
    input  logic [3:0]    second,        // which of them is looked at
    output logic [3:0][511:0] data,
    input  logic [3:0][1:0] used         // go
);
  typedef enum logic [2:0] {IDLE, ROW, POSITION, TABLE, GROUP, SUMS_LINE, BLOCKS} state_t;
  state_t state;
  logic rotates;
  assign rotates = kind == ROTATES_HEADS;

  logic [31:0] x_row, z_row, half_lines, group_lines, line, left;  // lines; columns of the row behind this group
  logic [31:0] place;                                              // of the row in its tables, in lines
  logic [3:0][31:0] base;
  logic [3:0][1:0] asks;  // still to be asked for in this block
  logic [1:0] turn;
  assign half_lines = {6'd0, command.head_dim[31:6]};
  assign group_lines = rotates ? half_lines : (command.columns + 32'd31) >> 5;

  logic [3:0][4:0] asked, first;
  logic [3:0][5:0] count;  // asked for and not used
  logic [3:0] room;
  always_comb begin
    turn = 2'd0;
    for (int s = 3; s >= 0; s--) if (asks[s] != 2'd0) turn = 2'(s);
    for (int s = 0; s < 4; s++) room[s] = count[s] != 6'(AHEAD);
  end
  logic of_sums, taken, last;
  assign of_sums = state == SUMS_LINE;
  assign read_valid = of_sums ? room[STREAM_Z] : state == BLOCKS && room[turn];
  assign taken = read_valid && read_ready;
  assign read_tag = of_sums ? {STREAM_Z, asked[STREAM_Z]} : {turn, asked[turn]};
  assign last = asks[3] + asks[2] + asks[1] + asks[0] == 3'd1;
  always_comb begin
    unique case (of_sums ? STREAM_Z : turn)
      STREAM_X: read_bank = command.x_bank;
      STREAM_Z: read_bank = rotates ? command.x_bank : command.z_bank;
      default: read_bank = command.a_bank;
    endcase
    read_line = of_sums ? z_row : base[turn] + (lines[turn] == 2'd2 ? {line[30:0], asks[turn] == 2'd1} : line);
  end

  for (genvar s = 0; s < 4; s++) begin : streams
    logic [511:0] memory[AHEAD];
    logic [AHEAD-1:0] came;
    logic [4:0] next;
    assign next = first[s] + 5'd1;
    assign here[s] = !came[first[s]] ? 2'd0 : came[next] ? 2'd2 : 2'd1;
    assign data[s] = memory[second[s] ? next : first[s]];
    always_ff @(posedge clk) begin
      if (line_valid && line_tag[6:5] == 2'(s)) begin
        memory[line_tag[4:0]] <= line_data;
        came[line_tag[4:0]] <= 1'b1;
      end
      if (used[s] != 2'd0) came[first[s]] <= 1'b0;
      if (used[s] == 2'd2) came[next] <= 1'b0;
      first[s] <= first[s] + {3'd0, used[s]};
      count[s] <= count[s] + {5'd0, taken && read_tag[6:5] == 2'(s)} - {4'd0, used[s]};
      asked[s] <= asked[s] + {4'd0, taken && read_tag[6:5] == 2'(s)};
      if (start || rst) {first[s], asked[s], count[s], came} <= '0;
    end
  end

  always_ff @(posedge clk) begin
    unique case (state)
      ROW: state <= rotates ? POSITION : TABLE;  // the position comes in the next cycle
      POSITION: begin
        place <= row_position * ((command.extra + 32'd15) >> 4);
        state <= TABLE;
      end
      TABLE: begin
        base[STREAM_X] <= x_row;
        base[STREAM_Z] <= rotates ? x_row + half_lines : z_row;
        left <= rotates ? command.columns - command.head_dim : 32'd0;
        state <= kind == NORMS ? SUMS_LINE : GROUP;
      end
      SUMS_LINE: if (taken) state <= GROUP;
      GROUP: begin
        base[STREAM_A] <= command.a_line + (rotates ? place : 32'd0);
        base[STREAM_B] <= command.a_line + place + (half_lines << 1);
        line <= 32'd0;
        asks <= lines;
        state <= BLOCKS;
      end
      BLOCKS:
      if (taken) begin
        asks[turn] <= asks[turn] - 2'd1;
        if (last) begin
          asks <= lines;
          line <= line + 32'd1;
          if (line + 32'd1 == group_lines) begin
            base[STREAM_X] <= base[STREAM_X] + (half_lines << 1);
            base[STREAM_Z] <= base[STREAM_Z] + (half_lines << 1);
            left <= left - command.head_dim;
            state <= GROUP;
            if (left == 32'd0) begin
              x_row <= x_row + {6'd0, command.x_stride[31:6]};
              z_row <= z_row + {6'd0, command.z_stride[31:6]};
              row <= row + 7'd1;
              state <= row + 7'd1 == command.rows ? IDLE : ROW;
            end
          end
        end
      end
      default: ;
    endcase
    if (start) begin
      row <= 7'd0;
      x_row <= {6'd0, command.x_offset[31:6]};
      z_row <= {6'd0, command.z_offset[31:6]};
      state <= ROW;
    end
    if (rst) state <= IDLE;
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) if (!rst && state != IDLE) begin
    for (int s = 0; s < 4; s++)
      assert (used[s] <= here[s]) else $fatal(1, "a line is used that is not here");
    assert (state != BLOCKS || asks != '0) else $fatal(1, "a block without lines");
  end
`endif
endmodule
