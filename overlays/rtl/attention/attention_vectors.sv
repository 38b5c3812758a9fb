// SPDX-License-Identifier: Apache-2.0
// Vectors of attention: the programs of scores, weights and quotients on a vector_core, the memory of scores,
// and their maximum. One thing at a time.
module attention_vectors
  import float_types::*;
  import vfu_types::*;
  import attention_types::*;
#(
    parameter int TILES = 4096
) (
    input  logic         clk,
    input  logic         rst,
    // sums that arrive
    input  logic         sum_valid,
    input  logic [2:0]   sum_slot,
    input  logic [2:0]   sum_beat,
    input  logic [3:0][31:0] sums,
    input  logic [31:0]  sum_e,
    // a program: one cycle; held until finished
    input  logic         start,
    input  logic [8:0]   at,
    input  logic         source_small,
    input  logic [11:0]  source,
    input  logic         source_zero,   // +0 instead
    input  logic [3:0]   group,         // of the arrived sums
    input  logic [31:0]  command,
    input  logic [31:0]  numerator,
    input  logic [31:0]  plus,
    input  logic         rounded_positions,
    input  logic [17:0]  position,      // the tile's first
    input  logic [17:0]  last_position,
    input  logic         to_memory,
    input  logic         target_small,
    input  logic [11:0]  target,
    output logic         finished,
    output logic         stores,
    output logic [2:0]   stored_beat,
    output logic [LANES-1:0][31:0] stored,
    output logic [LANES-1:0] stored_bad,
    // one score of a scratch page to its place in a tile: two cycles, held
    input  logic         move,
    input  logic [6:0]   move_from,     // slot
    input  logic [4:0]   move_to,       // of tile `target`
    // maxima
    input  logic         clear_maximum,
    input  logic         find_maximum,  // of tile `source`, among those seen; ten cycles
    input  logic [31:0]  seen,
    output logic         finds,
    output logic [31:0]  maximum
);
  instruction_t instruction;
  logic [2:0] beat, next_beat;
  logic [LANES-1:0][31:0] loaded, memory, four;
  logic [31:0] arrived_e;
  logic [3:0][31:0] arrived[64];
  scalars_t scalars;
  always_comb begin
    scalars = '0;
    scalars.folded[0] = maximum;
    scalars.command = command;
    scalars.numerator = numerator;
    scalars.plus = plus;
  end
  always_ff @(posedge clk) begin
    if (sum_valid) arrived[{sum_slot, sum_beat}] <= sums;
    if (sum_valid && sum_slot == 3'd0) arrived_e <= sum_e;
  end
  assign four = arrived[{instruction.b[0] && instruction.b[1] ? instruction.b[4:2] : group[2:0], beat}];
  for (genvar i = 0; i < LANES; i++) begin : loads
    logic [17:0] p;
    assign p = {position[17:5], beat, 2'(i)};
    always_comb begin
      unique case (instruction.b[1:0])
        2'd0: loaded[i] = source_zero ? 32'd0 : memory[i];
        2'd1: loaded[i] = group == GROUP_E ? arrived_e : four[i];
        2'd2: loaded[i] = rounded_positions ? position_bf16(p) : {14'd0, p} - {14'd0, last_position};
        default: loaded[i] = four[i];
      endcase
    end
  end
  vector_core #(
      .GELU(0)
  ) core (
      .clk(clk),
      .rst(rst),
      .start(start),
      .at(at),
      .last_divided(3'd7),
      .scalars(scalars),
      .instruction(instruction),
      .beat(beat),
      .next_beat(next_beat),
      .loaded(loaded),
      .finished(finished),
      .stores(stores),
      .stored_beat(stored_beat),
      .stored(stored),
      .stored_bad(stored_bad)
  );

  logic moves;
  logic [3:0] finding;  // 8: done
  logic read_small;
  logic [14:0] read_address;
  assign finds = !finding[3];
  always_comb begin
    read_small = source_small;
    read_address = {source, finds ? finding[2:0] : next_beat};
    if (move) begin
      read_small = 1'b1;
      read_address = {7'd0, VECTOR_RAW + {3'd0, move_from[6:5]}, move_from[4:2]};
    end
  end
  vector_memory #(
      .TILES(TILES)
  ) vectors (
      .clk(clk),
      .read_small(read_small),
      .read_address(read_address),
      .read_data(memory),
      .write_words(moves ? 4'd1 << move_to[1:0] : {4{stores && to_memory}}),
      .write_small(!moves && target_small),
      .write_address({target, moves ? move_to[4:2] : stored_beat}),
      .write_data(moves ? {4{memory[move_from[1:0]]}} : stored)
  );

  // a NaN is not among them: it makes its own weight NaN
  logic [31:0] most[LANES];
  logic took;
  logic [2:0] beat_1;
  function automatic logic [31:0] larger(input logic [31:0] a, input logic [31:0] b);
    return float_less(a, b) ? b : a;
  endfunction
  assign maximum = larger(larger(most[0], most[1]), larger(most[2], most[3]));
  always_ff @(posedge clk) begin
    moves <= move && !rst;
    took <= finds;
    beat_1 <= finding[2:0];
    if (find_maximum) finding <= 4'd0;
    else if (finds) finding <= finding + 4'd1;
    for (int i = 0; i < LANES; i++) begin
      if (clear_maximum) most[i] <= 32'hff800000;
      else if (took && seen[{beat_1, 2'(i)}] && float_less(most[i], memory[i])) most[i] <= memory[i];
    end
    if (rst) finding <= 4'd8;
  end
endmodule
