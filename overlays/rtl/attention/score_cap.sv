// SPDX-License-Identifier: Apache-2.0
// Soft caps of scores (docs/numbers.md, 3.14), 32 at a time by the vector unit's program: rare, and slow.
module score_cap
  import vfu_types::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic [31:0] cap,
    input  logic        score_valid,  // 32 of a tile, then none before `ready`
    input  logic [31:0] score,
    output logic        ready,
    output logic        capped_valid,  // likewise, in order
    output logic [4:0]  capped_index,
    output logic [31:0] capped
);
  typedef enum logic [1:0] {FILL, RUN, EMPTY} state_t;
  state_t state;
  logic [4:0] index;
  logic [31:0] scores[LANES][8];
  logic [31:0] results[LANES][8];
  logic [LANES-1:0][31:0] loaded, stored;
  logic [2:0] beat, stored_beat;
  logic start, stores, finished;
  scalars_t scalars;
  always_comb begin
    scalars = '0;
    scalars.command = cap;
  end
  assign ready = state == FILL && index == 5'd0;
  assign capped_valid = state == EMPTY;
  assign capped_index = index;
  assign capped = results[index[1:0]][index[4:2]];
  vector_core #(
      .GELU(0)
  ) core (
      .clk(clk),
      .rst(rst),
      .start(start),
      .at(vfu_program::AT_SOFTCAP),
      .last_divided(3'd7),
      .scalars(scalars),
      .beat(beat),
      .loaded(loaded),
      .finished(finished),
      .stores(stores),
      .stored_beat(stored_beat),
      .stored(stored),
      // verilator lint_off PINCONNECTEMPTY
      .instruction(),
      .next_beat(),
      .stored_bad()
      // verilator lint_on PINCONNECTEMPTY
  );
  for (genvar i = 0; i < LANES; i++) begin : lanes
    assign loaded[i] = scores[i][beat];
    always_ff @(posedge clk) begin
      if (score_valid && index[1:0] == 2'(i)) scores[i][index[4:2]] <= score;
      if (stores) results[i][stored_beat] <= stored[i];
    end
  end
  always_ff @(posedge clk) begin
    start <= 1'b0;
    unique case (state)
      FILL:
      if (score_valid) begin
        index <= index + 5'd1;
        if (index == 5'd31) begin
          state <= RUN;
          start <= 1'b1;
        end
      end
      RUN: if (finished) state <= EMPTY;
      default: begin
        index <= index + 5'd1;
        if (index == 5'd31) state <= FILL;
      end
    endcase
    if (rst) begin
      state <= FILL;
      index <= 5'd0;
      start <= 1'b0;
    end
  end
endmodule
