// SPDX-License-Identifier: Apache-2.0
// Weights of a head, position after position from the first one seen, once all its scores are there and V of the head
// before is done. Sixteen tiles of them are kept, from the one that V is at.
module attention_weights #(
    parameter int TILES = 4096
) (
    input  logic        clk,
    input  logic        rst,
    input  logic        integers,
    input  logic        by_heads,     // scores of two heads are kept
    input  logic        row_begins,   // the next head is the first
    input  logic [17:0] first,        // of the row, held
    input  logic [17:0] count,
    input  logic        complete,     // a head's scores are there
    input  logic        moves,        // V is at this tile now
    input  logic [11:0] tile,
    input  logic        ends,         // V of the head is done
    output logic [16:0] address,      // of the score
    input  logic [31:0] score,        // a cycle later
    input  logic [31:0] maximum,
    input  logic [8:0]  read_place,   // position, modulo 512
    output logic [15:0] read_weight,  // a cycle later
    output logic        there,        // the weights before `made`
    output logic [17:0] made,
    output logic        poisoned      // one was NaN, of integers, of the head that was done last
);
  localparam int BITS = $clog2(32 * TILES);
  logic [15:0] weights[512];
  logic runs, asks, asked, waits, head, weight_valid, weight_nan, spoiled;
  logic [17:0] next;
  logic [12:0] ahead;
  logic [11:0] at;
  logic [15:0] weight;
  logic [31:0] most;
  assign ahead = next[17:5] - {1'b0, at};
  assign asks = runs && ahead < 13'd16;
  always_comb begin
    address = next[16:0];
    if (by_heads) address[BITS-1] = head;
  end
  weight_pipe pipe (
      .clk(clk),
      .rst(rst),
      .integers(integers),
      .valid(asked),
      .score(score),
      .maximum(most),
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
      if (integers && weight_nan) spoiled <= 1'b1;
    end
    if (moves) at <= tile;
    if (ends) begin
      there <= 1'b0;
      head <= !head;
      poisoned <= spoiled;
    end
    if (waits && !there) begin
      {runs, there, spoiled, waits} <= 4'b1100;
      most <= maximum;
      next <= first;
      made <= first;
      at <= first[16:5];
    end
    if (complete) waits <= 1'b1;
    if (row_begins) head <= 1'b0;
    if (rst) {runs, asked, there, waits} <= 4'b0000;
  end
endmodule
