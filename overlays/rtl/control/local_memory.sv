// SPDX-License-Identifier: Apache-2.0
// 128 KiB of words: instructions by one port, data by the other. Others than the core (the loader, units
// that read a command's list) come in by the data's port when the core leaves it.
module local_memory
  import rv32_types::*;
(
    input  logic                  clk,
    input  logic                  fetch_read,
    input  logic [LOCAL_BITS-3:0] fetch_word,
    output logic [31:0]           fetch_data,
    input  logic                  core_uses,
    input  logic [3:0]            core_write,
    input  logic [LOCAL_BITS-3:0] core_word,
    input  logic [31:0]           core_stored,
    input  logic                  other_valid,
    output logic                  other_ready,    // its data is there a cycle later
    input  logic [3:0]            other_write,
    input  logic [LOCAL_BITS-3:0] other_word,
    input  logic [31:0]           other_stored,
    output logic [31:0]           data
);
  logic [31:0] words[1<<(LOCAL_BITS-2)];
  logic [3:0] write;
  logic [LOCAL_BITS-3:0] word;
  logic [31:0] stored;
  assign other_ready = !core_uses;
  assign write = core_uses ? core_write : other_valid ? other_write : 4'd0;
  assign word = core_uses ? core_word : other_word;
  assign stored = core_uses ? core_stored : other_stored;
  always_ff @(posedge clk) if (fetch_read) fetch_data <= words[fetch_word];
  always_ff @(posedge clk) begin
    for (int lane = 0; lane < 4; lane++)
      if (write[lane]) words[word][8*lane+:8] <= stored[8*lane+:8];
    data <= words[word];
  end
endmodule
