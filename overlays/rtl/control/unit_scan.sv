// SPDX-License-Identifier: Apache-2.0
// How far a unit has looked: `index` is its next command where one is found, else a place before it.
// A chunk without one more of its commands takes a cycle.
module unit_scan
  import abi_types::*;
  import sequencer_types::*;
(
    input  logic                           clk,
    input  logic                           rst,
    input  logic                           start,
    input  chunk_t                         published,
    output chunk_t                         chunk,
    input  logic [LORA_CHUNK_COMMANDS-1:0] marks,      // of the chunk
    input  logic                           take,       // what is found
    output logic                           found,
    output index_t                         index
);
  logic [LORA_CHUNK_COMMANDS-1:0] passed, rest;
  logic [3:0] first;
  logic here;

  assign here = chunk < published;
  assign rest = marks & ~passed;
  assign found = here && rest != '0;
  assign index = {chunk, found ? first : 4'd0};
  always_comb begin
    first = 4'd0;
    for (int i = LORA_CHUNK_COMMANDS - 1; i >= 0; i--) if (rest[i]) first = 4'(i);
  end
  always_ff @(posedge clk) begin
    if (take) passed[first] <= 1'b1;
    else if (here && rest == '0) begin
      chunk <= chunk + 10'd1;
      passed <= '0;
    end
    if (rst || start) begin
      chunk <= 10'd0;
      passed <= '0;
    end
  end
endmodule
