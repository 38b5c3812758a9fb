// SPDX-License-Identifier: Apache-2.0
// The vector unit of a card: the programmed one (vfu) for all operations and, where PIPES is their columns a cycle, 8 or
// 16, vector_pipes for the commands that those take.
module vector_unit
  import pipe_types::*;
#(
    parameter int PIPES = 0
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         abort_valid,
    input  logic         command_valid,
    output logic         command_ready,
    // as vfu has them
    input  logic [7:0]   op,
    input  logic         has_a,
    input  logic         has_b,
    input  logic         one_plus,
    input  logic [31:0]  columns,
    input  logic [6:0]   rows,
    input  logic [31:0]  head_dim,
    input  logic [31:0]  count,
    input  logic [31:0]  first,
    input  logic [31:0]  record,
    input  logic [5:0]   x_bank,
    input  logic [31:0]  x_offset,
    input  logic [31:0]  x_stride,
    input  logic [5:0]   z_bank,
    input  logic [31:0]  z_offset,
    input  logic [31:0]  z_stride,
    input  logic [5:0]   a_bank,
    input  logic [31:0]  a_line,
    input  logic [5:0]   b_bank,
    input  logic [31:0]  b_line,
    input  logic [5:0]   y_bank,
    input  logic [31:0]  y_offset,
    input  logic [31:0]  y_stride,
    input  logic [31:0]  scalar,
    input  logic [31:0]  extra,
    input  logic [5:0]   vector_bank,
    output logic [6:0]   row,
    input  logic         row_is_vector,
    input  logic [31:0]  row_token,
    input  logic [31:0]  row_position,
    output logic         done,
    output logic         bad_index,
    output logic [31:0]  nonfinite_count,
    output logic [31:0]  nonfinite_row,
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
  // of either unit
  typedef struct packed {
    logic         ready;
    logic [6:0]   row;
    logic         done;
    logic [31:0]  nonfinite_count;
    logic [31:0]  nonfinite_row;
    logic         read_valid;
    logic [5:0]   read_bank;
    logic [31:0]  read_line;
    logic [15:0]  read_tag;
    logic         write_valid;
    logic [5:0]   write_bank;
    logic [31:0]  write_line;
    logic [63:0]  write_bytes;
    logic [511:0] write_data;
  } unit_t;
  unit_t by_program, by_pipes, now;
  logic by_program_index;
  logic pipes, takes;  // that run, or ran last; that would take this command

  vfu programmed (
      .clk(clk),
      .rst(rst),
      .abort_valid(abort_valid),
      .command_valid(command_valid && command_ready && !takes),
      .command_ready(by_program.ready),
      .op(op),
      .has_a(has_a),
      .has_b(has_b),
      .one_plus(one_plus),
      .columns(columns),
      .rows(rows),
      .head_dim(head_dim),
      .count(count),
      .first(first),
      .record(record),
      .x_bank(x_bank),
      .x_offset(x_offset),
      .x_stride(x_stride),
      .z_bank(z_bank),
      .z_offset(z_offset),
      .z_stride(z_stride),
      .a_bank(a_bank),
      .a_line(a_line),
      .b_bank(b_bank),
      .b_line(b_line),
      .y_bank(y_bank),
      .y_offset(y_offset),
      .y_stride(y_stride),
      .scalar(scalar),
      .extra(extra),
      .vector_bank(vector_bank),
      .row(by_program.row),
      .row_is_vector(row_is_vector),
      .row_token(row_token),
      .row_position(row_position),
      .done(by_program.done),
      .bad_index(by_program_index),
      .nonfinite_count(by_program.nonfinite_count),
      .nonfinite_row(by_program.nonfinite_row),
      .read_valid(by_program.read_valid),
      .read_ready(read_ready && !pipes),
      .read_bank(by_program.read_bank),
      .read_line(by_program.read_line),
      .read_tag(by_program.read_tag),
      .line_valid(line_valid && !pipes),
      .line_tag(line_tag),
      .line_data(line_data),
      .write_valid(by_program.write_valid),
      .write_ready(write_ready && !pipes),
      .write_bank(by_program.write_bank),
      .write_line(by_program.write_line),
      .write_bytes(by_program.write_bytes),
      .write_data(by_program.write_data)
  );

  if (PIPES != 0) begin : many
    pipe_command_t command;
    assign command = '{op: op, has_a: has_a, one_plus: one_plus, columns: columns, rows: rows, head_dim: head_dim,
                       first: first, x_bank: x_bank, x_offset: x_offset, x_stride: x_stride, z_bank: z_bank,
                       z_offset: z_offset, z_stride: z_stride, a_bank: a_bank, a_line: a_line, b_line: b_line,
                       y_bank: y_bank, y_offset: y_offset, y_stride: y_stride, scalar: scalar, extra: extra};
    assign takes = pipes_take(command);
    always_ff @(posedge clk) if (command_valid && command_ready) pipes <= takes;
    vector_pipes #(
        .COLUMNS(PIPES)
    ) piped (
        .clk(clk),
        .rst(rst),
        .abort_valid(abort_valid),
        .command_valid(command_valid && command_ready && takes),
        .command_ready(by_pipes.ready),
        .command(command),
        .row(by_pipes.row),
        .row_position(row_position),
        .done(by_pipes.done),
        .nonfinite_count(by_pipes.nonfinite_count),
        .nonfinite_row(by_pipes.nonfinite_row),
        .read_valid(by_pipes.read_valid),
        .read_ready(read_ready && pipes),
        .read_bank(by_pipes.read_bank),
        .read_line(by_pipes.read_line),
        .read_tag(by_pipes.read_tag),
        .line_valid(line_valid && pipes),
        .line_tag(line_tag),
        .line_data(line_data),
        .write_valid(by_pipes.write_valid),
        .write_ready(write_ready && pipes),
        .write_bank(by_pipes.write_bank),
        .write_line(by_pipes.write_line),
        .write_bytes(by_pipes.write_bytes),
        .write_data(by_pipes.write_data)
    );
  end else begin : none
    assign {takes, pipes} = 2'b00;
    always_comb begin
      by_pipes = '0;
      by_pipes.ready = 1'b1;
    end
  end

  assign now = pipes ? by_pipes : by_program;
  assign bad_index = by_program_index && !pipes;
  assign command_ready = by_program.ready && by_pipes.ready;
  assign {row, done, nonfinite_count, nonfinite_row} = {now.row, now.done, now.nonfinite_count, now.nonfinite_row};
  assign {read_valid, read_bank, read_line, read_tag} = {now.read_valid, now.read_bank, now.read_line, now.read_tag};
  assign {write_valid, write_bank, write_line} = {now.write_valid, now.write_bank, now.write_line};
  assign {write_bytes, write_data} = {now.write_bytes, now.write_data};
endmodule
