// SPDX-License-Identifier: Apache-2.0
// Words of the link test's pattern: serial, port, number, seed, then each word mixed from a key and its index. Two cycles
// from the index to the word.
module pattern_words (
    input  logic        clk,
    input  logic        rst,
    // the key of a frame: one cycle, then `key_done` and on
    input  logic        make_key,
    input  logic [31:0] serial,
    input  logic [31:0] port,
    input  logic [31:0] number,
    input  logic [31:0] seed,
    output logic        key_done,  // one cycle
    // words
    input  logic [9:0]  index,
    output logic [31:0] word
);
  logic [31:0] key, field, value, first, second, mixed;
  logic [1:0] step;
  logic [2:0] cycle;  // one bit, of the field that is mixed
  logic [9:0] indices[2];
  assign mixed = second ^ second >> 16;
  always_comb begin
    unique case (step)
      2'd0: field = number;
      2'd1: field = port ^ key;
      2'd2: field = serial ^ key;
      default: field = seed ^ key;
    endcase
  end
  assign value = cycle[0] ? field : key + 32'(index);
  always_comb begin
    unique case (indices[1])
      10'd0: word = serial;
      10'd1: word = port;
      10'd2: word = number;
      10'd3: word = seed;
      default: word = mixed;
    endcase
  end
  always_ff @(posedge clk) begin
    first <= (value ^ value >> 16) * 32'h7feb_352d;
    second <= (first ^ first >> 15) * 32'h846c_a68b;
    indices[0] <= index;
    indices[1] <= indices[0];
    cycle <= {cycle[1:0], make_key || (cycle[2] && step != 2'd3)};
    key_done <= cycle[2] && step == 2'd3;
    if (make_key) step <= 2'd0;
    if (cycle[2]) begin
      key <= mixed;
      step <= step + 2'd1;
    end
    if (rst) {cycle, key_done} <= '0;
  end
endmodule
