// SPDX-License-Identifier: Apache-2.0
// Vectors of FP32: the scores of a head of a row, 32 positions each, and a few sums. What is read is there a
// cycle later; words are written one by one.
module vector_memory #(
    parameter int TILES = 4096
) (
    input  logic             clk,
    input  logic             read_small,
    input  logic [14:0]      read_address,   // vector and beat
    output logic [3:0][31:0] read_data,
    input  logic [3:0]       write_words,
    input  logic             write_small,
    input  logic [14:0]      write_address,
    input  logic [3:0][31:0] write_data
);
  localparam int BITS = $clog2(8 * TILES);
  logic few_1;
  logic [3:0][31:0] many_data, few_data;
  assign read_data = few_1 ? few_data : many_data;
  always_ff @(posedge clk) few_1 <= read_small;
  for (genvar i = 0; i < 4; i++) begin : words
    logic [31:0] many[8*TILES];
    logic [31:0] few[256];
    always_ff @(posedge clk) begin
      many_data[i] <= many[read_address[BITS-1:0]];
      few_data[i] <= few[read_address[7:0]];
      if (write_words[i] && !write_small) many[write_address[BITS-1:0]] <= write_data[i];
      if (write_words[i] && write_small) few[write_address[7:0]] <= write_data[i];
    end
  end
endmodule
