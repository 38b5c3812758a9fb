// SPDX-License-Identifier: Apache-2.0
// channel_matmul with ports that C++ can set one by one.
module channel_bench
  import mpu_types::*;
  import channel_types::*;
#(
    parameter int CHANNELS = `CHANNELS,  // by macros: Verilator gives -G to hierarchical blocks too
    parameter int ROWS = `ROWS,
    parameter int QUEUE = `QUEUE,
    parameter int LINES = `BUFFER,
    parameter int FINISHERS = `FINISHERS
) (
    input  logic                clk,
    input  logic                rst,
    input  logic                abort_valid,
    output logic                idle,
    input  logic                announce_valid,
    output logic                announce_ready,
    input  logic [15:0]         k,
    input  logic [31:0]         n,
    input  logic [6:0]          rows,
    input  logic [31:0]         weight_line,
    input  logic [15:0]         first,
    input  logic [7:0]          merge,
    input  logic [5:0]          bank_count,
    input  logic                has_bias,
    input  logic [5:0]          bias_bank,
    input  logic [31:0]         bias_line,
    input  logic [5:0]          x_bank,
    input  logic [31:0]         x_line,
    input  logic [31:0]         x_stride,
    input  logic [5:0]          y_bank,
    input  logic [31:0]         y_line,
    input  logic [31:0]         y_stride,
    input  logic                y_single,
    input  logic                eight_bit,
    input  logic                four_bit,
    input  logic [1:0]          group_log,
    input  logic                row_scales,
    input  logic                start_valid,
    output logic                start_ready,
    output logic                result_valid,
    output logic [2:0]          result_status,
    output logic [31:0]         nonfinite_count,
    output logic [31:0]         nonfinite_row,
    output logic [CHANNELS-1:0] bank_valid,
    output logic [31:0]         bank_line[CHANNELS],
    input  logic [CHANNELS-1:0] bank_ready,
    input  logic [CHANNELS-1:0] answer_valid,
    input  logic [CHANNELS-1:0] answer_refused,
    input  logic [CHANNELS-1:0] answer_failed,
    input  logic [511:0]        answer_data[CHANNELS],
    output logic                read_valid,
    input  logic                read_ready,
    output logic [5:0]          read_bank,
    output logic [31:0]         read_line,
    output logic [12:0]         read_tag,
    input  logic                line_valid,
    input  logic                line_refused,
    input  logic                line_failed,
    input  logic [12:0]         line_tag,
    input  logic [511:0]        line_data,
    output logic                write_valid,
    input  logic                write_ready,
    output logic [5:0]          write_bank,
    output logic [31:0]         write_line,
    output logic [63:0]         write_bytes,
    output logic [511:0]        write_data
);
  command_t command;
  result_t result;
  mem_req_t bank_request[CHANNELS];
  mem_rsp_t bank_response[CHANNELS];
  read_req_t read_request;
  read_rsp_t read_response;
  write_req_t write_request;
  assign command = '{
      k: k, n: n, rows: rows, weight_line: weight_line, first: first, merge: merge, bank_first: 6'd0,
      bank_count: bank_count, has_bias: has_bias, bias_bank: bias_bank, bias_line: bias_line, x_bank: x_bank,
      x_line: x_line, x_stride: x_stride, y_bank: y_bank, y_line: y_line, y_stride: y_stride, y_single: y_single,
      eight_bit: eight_bit, four_bit: four_bit, group_log: group_log, row_scales: row_scales, adapted: 1'b0
  };
  assign {result_valid, result_status, nonfinite_count, nonfinite_row} = result;
  for (genvar i = 0; i < CHANNELS; i++) begin : banks
    assign {bank_valid[i], bank_line[i]} = bank_request[i];
    assign bank_response[i] = {answer_valid[i], answer_refused[i], answer_failed[i], answer_data[i]};
  end
  assign {read_valid, read_bank, read_line, read_tag} = read_request;
  assign read_response = {line_valid, line_refused, line_failed, line_tag, line_data};
  assign {write_valid, write_bank, write_line, write_bytes, write_data} = write_request;
  channel_matmul #(
      .CHANNELS(CHANNELS),
      .ROWS(ROWS),
      .QUEUE(QUEUE),
      .LINES(LINES),
      .FINISHERS(FINISHERS)
  ) unit (
      .clk(clk),
      .rst(rst),
      .abort_valid(abort_valid),
      .idle(idle),
      .announce_valid(announce_valid),
      .announce_ready(announce_ready),
      .command(command),
      .start_valid(start_valid),
      .start_ready(start_ready),
      .result(result),
      .bank_request(bank_request),
      .bank_ready(bank_ready),
      .bank_response(bank_response),
      .read_request(read_request),
      .read_ready(read_ready),
      .read_response(read_response),
      .write_request(write_request),
      .write_ready(write_ready)
  );
`ifdef MISTAKES
  initial if ($value$plusargs("mistake=%d", channel_types::mistake) == 0) channel_types::mistake = 0;
`endif
endmodule
