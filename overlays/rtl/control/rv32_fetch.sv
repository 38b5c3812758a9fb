// SPDX-License-Identifier: Apache-2.0
// Words of instructions ahead of the one that is decoded. Memory answers a cycle later; a word is asked
// for only where there is room for it.
module rv32_fetch
  import rv32_types::*;
(
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  redirect,       // go on at `target`
    input  logic [LOCAL_BITS-1:0] target,
    output logic                  memory_read,
    output logic [LOCAL_BITS-3:0] memory_word,
    input  logic [31:0]           memory_data,
    input  logic                  upper,          // the instruction begins in the first word's upper half
    input  logic                  take,           // it goes on
    output logic                  valid,
    output logic                  long,           // 32 bits
    output logic [31:0]           instruction
);
  localparam int DEPTH = 4;
  logic [31:0] words[DEPTH];
  logic [2:0] count, kept;
  logic coming, pop;
  logic [LOCAL_BITS-3:0] next;
  assign instruction = upper ? {words[1][15:0], words[0][31:16]} : words[0];
  assign long = instruction[1:0] == 2'b11;
  assign valid = count > 3'(upper && long);
  assign pop = take && (upper || long);
  assign kept = count - 3'(pop);

  assign memory_word = redirect ? target[LOCAL_BITS-1:2] : next;
  assign memory_read = redirect || count + 3'(coming) < 3'(DEPTH);
  always_ff @(posedge clk) begin
    coming <= memory_read && !rst;
    count <= redirect || rst ? 3'd0 : kept + 3'(coming);
    if (memory_read) next <= memory_word + 1'b1;
    for (int i = 0; i < DEPTH; i++)
      if (coming && kept == 3'(i)) words[i] <= memory_data;
      else if (pop && i + 1 < DEPTH) words[i] <= words[(i+1)%DEPTH];
  end
endmodule
