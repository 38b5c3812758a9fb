// SPDX-License-Identifier: Apache-2.0
// A group of channels whose ports are plain bits, for simulation: Verilator compiles it once, however many there are, and its
// hierarchical blocks take no structs. Wires alone.
module group_block
  import channel_types::*;
#(
    parameter int CHANNELS = 32,
    parameter int LINKS = 4,
    parameter int ROWS = 2,
    parameter int QUEUE = 2,
    parameter int LINES = 4096,
    parameter int DSP58 = 0,
    parameter int DSP48 = 0
) (
    input  logic                                clk,
    input  logic                                rst,
    input  logic [4:0]                          first,
    input  logic [$bits(down_t)-1:0]            down,
    input  logic [$bits(pass_fields_t)-1:0]     fields,
    input  logic [32*ROWS-1:0]                  row_lines,
    output logic [$bits(up_t)-1:0]              up,
    output logic [LINKS-1:0]                    params_taken,
    output logic [$bits(result_line_t)-1:0]     line,
    input  logic                                room,
    output logic [LINKS*$bits(mem_req_t)-1:0]   request,
    input  logic [LINKS-1:0]                    ready,
    input  logic [LINKS*$bits(mem_rsp_t)-1:0]   response
);
  /* verilator hier_block */
  channel_group #(
      .CHANNELS(CHANNELS),
      .LINKS(LINKS),
      .ROWS(ROWS),
      .QUEUE(QUEUE),
      .LINES(LINES),
      .DSP58(DSP58),
      .DSP48(DSP48)
  ) one (
      .clk(clk),
      .rst(rst),
      .first(first),
      .down(down),
      .fields(fields),
      .row_lines(row_lines),
      .up(up),
      .params_taken(params_taken),
      .line(line),
      .room(room),
      .request(request),
      .ready(ready),
      .response(response)
  );
endmodule
