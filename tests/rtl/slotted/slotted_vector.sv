// SPDX-License-Identifier: Apache-2.0
// The vector unit behind its slot, and the arbiter before memory. A test plays sequencer, step and memory.
module slotted_vector #(
    parameter int PIPES = 0
) (
    input  logic            clk,
    input  logic            rst,
    input  logic            unit_announce,
    input  logic [511:0]    unit_line,
    input  logic [6:0]      unit_rows,
    input  logic            unit_start,
    input  logic            unit_abort,
    output logic            unit_idle,
    output logic            result_valid,
    input  logic            result_ready,
    output logic [1:0]      result_state,
    output logic [7:0]      result_status,
    output logic [31:0]     result_nonfinite_count,
    output logic [31:0]     result_nonfinite_row,
    input  logic [31:0]     onchip_bytes,
    input  logic [15:0]     list_head_dim,
    input  logic [7:0]      control_bank,
    input  logic [31:0]     block_offset,
    output logic [5:0]      row,
    output logic            row_selected,
    input  logic [5:0]      row_number,
    input  logic [31:0]     row_flags,
    input  logic [31:0]     row_token,
    input  logic [31:0]     row_position,
    output logic            read_valid,
    input  logic            read_ready,
    output logic [5:0]      read_bank,
    output logic [31:0]     read_line,
    output logic [16:0]     read_tag,
    input  logic            line_valid,
    input  logic [16:0]     line_tag,
    input  logic [511:0]    line_data,
    input  logic            line_refused,
    input  logic            line_error,
    output logic            write_valid,
    input  logic            write_ready,
    output logic [5:0]      write_bank,
    output logic [31:0]     write_line,
    output logic [63:0]     write_bytes,
    output logic [511:0]    write_data,
    output logic [4:0]      write_id,
    input  logic            written,
    input  logic [4:0]      written_id,
    input  logic            written_refused,
    input  logic            written_error
);
  logic has_a, has_b, one_plus, abort_valid, command_valid, command_ready, done, bad_index;
  logic [5:0] x_bank, z_bank, a_bank, b_bank, y_bank, vector_bank;
  logic [6:0] rows;
  logic [7:0] op;
  logic [31:0] columns, head_dim, count, first, record, x_offset, x_stride, z_offset, z_stride, a_line,
      b_line, y_offset, y_stride, scalar, extra, nonfinite_count, nonfinite_row;
  logic [6:0] asked_row;
  logic is_vector;
  logic [31:0] token, position;
  // the first of the arbiter's units; the other one asks for nothing
  logic asks, writes;
  logic [1:0] asked, lines, lines_refused, lines_error, taken, opens, writes_refused, writes_error;
  logic [5:0] from_bank, to_bank;
  logic [31:0] from_line, to_line;
  logic [15:0] from_tag, got_tag;
  logic [63:0] to_bytes;
  logic [511:0] to_data, got;
  vector_slot slot (
      .clk(clk), .rst(rst), .unit_announce(unit_announce), .unit_line(unit_line), .unit_rows(unit_rows),
      .unit_start(unit_start), .unit_abort(unit_abort), .unit_idle(unit_idle), .result_valid(result_valid),
      .result_ready(result_ready), .result_state(result_state), .result_status(result_status),
      .result_nonfinite_count(result_nonfinite_count), .result_nonfinite_row(result_nonfinite_row),
      .onchip_bytes(onchip_bytes), .list_head_dim(list_head_dim), .control_bank(control_bank),
      .block_offset(block_offset), .row(row), .row_selected(row_selected), .row_number(row_number),
      .row_flags(row_flags), .row_token(row_token), .row_position(row_position), .op(op), .has_a(has_a),
      .has_b(has_b), .one_plus(one_plus), .columns(columns), .rows(rows), .head_dim(head_dim), .count(count),
      .first(first), .record(record), .x_bank(x_bank), .x_offset(x_offset), .x_stride(x_stride),
      .z_bank(z_bank), .z_offset(z_offset), .z_stride(z_stride), .a_bank(a_bank), .a_line(a_line),
      .b_bank(b_bank), .b_line(b_line), .y_bank(y_bank), .y_offset(y_offset), .y_stride(y_stride),
      .scalar(scalar), .extra(extra), .vector_bank(vector_bank), .abort_valid(abort_valid),
      .command_valid(command_valid), .command_ready(command_ready), .done(done), .bad_index(bad_index),
      .nonfinite_count(nonfinite_count), .nonfinite_row(nonfinite_row), .line_refused(lines_refused[0]),
      .line_error(lines_error[0]), .write_refused(writes_refused[0]), .write_error(writes_error[0]),
      .write_open(opens[0]), .unit_row(asked_row), .vector_row(is_vector), .vector_token(token),
      .vector_position(position)
  );
  vector_unit #(
      .PIPES(PIPES)
  ) unit (
      .clk(clk), .rst(rst), .op(op), .has_a(has_a), .has_b(has_b), .one_plus(one_plus), .columns(columns),
      .rows(rows), .head_dim(head_dim), .count(count), .first(first), .record(record), .x_bank(x_bank),
      .x_offset(x_offset), .x_stride(x_stride), .z_bank(z_bank), .z_offset(z_offset), .z_stride(z_stride),
      .a_bank(a_bank), .a_line(a_line), .b_bank(b_bank), .b_line(b_line), .y_bank(y_bank), .y_offset(y_offset),
      .y_stride(y_stride), .scalar(scalar), .extra(extra), .vector_bank(vector_bank), .abort_valid(abort_valid),
      .command_valid(command_valid), .command_ready(command_ready), .done(done), .bad_index(bad_index),
      .nonfinite_count(nonfinite_count), .nonfinite_row(nonfinite_row), .row(asked_row),
      .row_is_vector(is_vector), .row_token(token), .row_position(position), .read_valid(asks),
      .read_ready(asked[0]), .read_bank(from_bank), .read_line(from_line), .read_tag(from_tag),
      .line_valid(lines[0]), .line_tag(got_tag), .line_data(got), .write_valid(writes), .write_ready(taken[0]),
      .write_bank(to_bank), .write_line(to_line), .write_bytes(to_bytes), .write_data(to_data)
  );
  port_arbiter #(
      .UNITS(2)
  ) arbiter (
      .clk(clk), .rst(rst), .unit_read_valid({1'b0, asks}), .unit_read_ready(asked),
      .unit_read_bank({6'd0, from_bank}), .unit_read_line({32'd0, from_line}),
      .unit_read_tag({16'd0, from_tag}), .unit_line_valid(lines), .unit_line_tag(got_tag), .unit_line_data(got),
      .unit_line_refused(lines_refused), .unit_line_error(lines_error), .unit_write_valid({1'b0, writes}),
      .unit_write_ready(taken), .unit_write_bank({6'd0, to_bank}), .unit_write_line({32'd0, to_line}),
      .unit_write_bytes({64'd0, to_bytes}), .unit_write_data({512'd0, to_data}), .unit_write_open(opens),
      .unit_write_refused(writes_refused), .unit_write_error(writes_error), .line_error(line_error),
      .written_error(written_error), .read_valid(read_valid), .read_ready(read_ready), .read_bank(read_bank),
      .read_line(read_line), .read_tag(read_tag), .line_valid(line_valid), .line_tag(line_tag),
      .line_data(line_data), .line_refused(line_refused), .write_valid(write_valid), .write_ready(write_ready),
      .write_bank(write_bank), .write_line(write_line), .write_bytes(write_bytes), .write_data(write_data),
      .write_id(write_id), .written(written), .written_id(written_id), .written_refused(written_refused)
  );
endmodule
