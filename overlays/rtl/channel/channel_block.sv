// SPDX-License-Identifier: Apache-2.0
// A channel whose ports are plain bits, for simulation: Verilator compiles it once, however many there are, and its
// hierarchical blocks take no structs. Wires alone.
module channel_block
  import channel_types::*;
#(
    parameter int CHANNELS = 32,
    parameter int ROWS = 2,
    parameter int QUEUE = 2,
    parameter int LINES = 4096,
    parameter int DSP58 = 0,
    parameter int DSP48 = 0
) (
    input  logic                           clk,
    input  logic                           rst,
    input  logic [4:0]                     index,
    input  logic                           abort_valid,
    output logic                           runs,
    input  logic                           push,
    input  logic [$bits(descriptor_t)-1:0] descriptor,
    input  logic                           go,
    input  logic                           whole,
    input  logic [$bits(read_rsp_t)-1:0]   feed,
    output logic                           over,
    output logic [$bits(fault_t)-1:0]      bad,
    output logic [$bits(tile_t)-1:0]       tile,
    input  logic                           take,
    output logic                           total_valid,
    output logic [32*ROWS-1:0]             total,
    output logic [$bits(mem_req_t)-1:0]    request,
    input  logic                           ready,
    input  logic [$bits(mem_rsp_t)-1:0]    response
);
  /* verilator hier_block */
  channel #(
      .CHANNELS(CHANNELS),
      .ROWS(ROWS),
      .QUEUE(QUEUE),
      .LINES(LINES),
      .DSP58(DSP58),
      .DSP48(DSP48)
  ) one (
      .clk(clk),
      .rst(rst),
      .index(index),
      .abort_valid(abort_valid),
      .runs(runs),
      .push(push),
      .descriptor(descriptor),
      .go(go),
      .whole(whole),
      .feed(feed),
      .over(over),
      .bad(bad),
      .tile(tile),
      .take(take),
      .total_valid(total_valid),
      .total(total),
      .request(request),
      .ready(ready),
      .response(response)
  );
endmodule
