// SPDX-License-Identifier: Apache-2.0
// Weights of a head, position after position from the first one seen, once all its scores are there. Sixteen tiles of
// them are kept, from the one that V is at.
module attention_weights (
    input  logic        clk,
    input  logic        rst,
    input  logic        integers,
    input  logic [17:0] first,        // of the row, held
    input  logic [17:0] count,
    input  logic        begins,       // a head's scores come: its weights are not there
    input  logic        complete,     // its scores are there
    input  logic        moves,        // V is at this tile now
    input  logic [11:0] tile,
    output logic [16:0] address,      // of the score
    input  logic [31:0] score,        // a cycle later
    input  logic [31:0] maximum,
    input  logic [8:0]  read_place,   // position, modulo 512
    output logic [15:0] read_weight,  // a cycle later
    output logic        there,        // the weights before `made`
    output logic [17:0] made,
    output logic        poisoned      // one was NaN, of integers
);
  logic [15:0] weights[512];
  logic runs, asks, asked, weight_valid, weight_nan;
  logic [17:0] next;
  logic [12:0] ahead;
  logic [15:0] weight;
  logic [11:0] at;
  assign ahead = next[17:5] - {1'b0, at};
  assign asks = runs && ahead < 13'd16;
  assign address = next[16:0];
  weight_pipe pipe (
      .clk(clk),
      .rst(rst),
      .integers(integers),
      .valid(asked),
      .score(score),
      .maximum(maximum),
      .weight_valid(weight_valid),
      .weight(weight),
      .weight_nan(weight_nan)
  );
  always_ff @(posedge clk) begin
    read_weight <= weights[read_place];
    asked <= asks;
    if (asks) begin
      next <= next + 18'd1;
      if (next + 18'd1 == count) runs <= 1'b0;
    end
    if (weight_valid) begin
      weights[made[8:0]] <= weight;
      made <= made + 18'd1;
      if (integers && weight_nan) poisoned <= 1'b1;
    end
    if (moves) at <= tile;
    if (begins) there <= 1'b0;
    if (complete) begin
      {runs, there, poisoned} <= 3'b110;
      next <= first;
      at <= first[16:5];
      made <= first;
    end
    if (rst) {runs, asked, there} <= 3'b000;
  end
endmodule
