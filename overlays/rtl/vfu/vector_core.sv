// SPDX-License-Identifier: Apache-2.0
// Runs programs (vfu_program) on vectors of 32 elements: four lanes, sixteen registers of a vector, tables
// of GELU. An instruction takes eight cycles, division and square root a bit a cycle and element.
module vector_core
  import vfu_types::*;
  import vfu_program::*;
#(
    parameter bit GELU = 1
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         start,         // one cycle: the program at `at`
    input  logic [8:0]   at,
    input  logic [2:0]   last_divided,  // beat, held
    input  scalars_t     scalars,       // held
    // loads: the elements of this beat, from what the instruction names
    output instruction_t instruction,
    output logic [2:0]   beat,
    output logic [2:0]   next_beat,     // of the next cycle, for memories that answer a cycle later
    input  logic [LANES-1:0][31:0] loaded,
    output logic         finished,      // one cycle: all results are stored
    output logic         stores,        // a beat of results, two cycles after its issue
    output logic [2:0]   stored_beat,
    output logic [LANES-1:0][31:0] stored,
    output logic [LANES-1:0] stored_bad
);
  typedef enum logic [2:0] {IDLE, FETCH, ISSUE, DIVIDE, DIVIDING, DRAIN} state_t;
  state_t state;
  logic [8:0] pc;
  logic [3:0] drain;
  logic issue, divide_start, divide_write, divide_busy;
  logic [31:0] kept_scalar[4];
  instruction_t fetched;
  assign fetched = instruction_t'(PROGRAM[pc]);
  function automatic state_t follow(input instruction_t next);
    if (next.op == OP_END) return DRAIN;
    return next.op == OP_DIVIDE || next.op == OP_ROOT ? DIVIDE : ISSUE;
  endfunction
  function automatic logic [31:0] scalar_of(input logic [5:0] which);
    if (which < SCALAR_INDEX) return CONSTANTS[which[4:0]];
    if (which >= SCALAR_KEPT) return kept_scalar[which[1:0]];
    unique case (which)
      SCALAR_INDEX: return scalars.index;
      SCALAR_LENGTH: return scalars.length;
      SCALAR_COMMAND: return scalars.command;
      SCALAR_NUMERATOR: return scalars.numerator;
      SCALAR_PLUS: return scalars.plus;
      SCALAR_COLUMNS: return scalars.columns;
      default: return scalars.folded[which[2:0]];
    endcase
  endfunction
  logic [31:0] scalar_a, scalar_b;
  assign scalar_a = scalar_of(instruction.a[5:0]);
  assign scalar_b = scalar_of(instruction.b[5:0]);
  assign issue = state == ISSUE || state == DIVIDE;
  assign next_beat = state == ISSUE ? beat + 3'd1 : 3'd0;
  assign finished = state == DRAIN && drain == 4'd8;

  logic [31:0] read_a[LANES], read_b[LANES], kept[LANES];
  logic [LANES-1:0] busy;
  logic [2:0] turn;  // how far elements are rotated
  assign turn = instruction.op == OP_ROTATE_1 ? 3'd1 : instruction.op == OP_ROTATE_2 ? 3'd2
      : instruction.op == OP_ROTATE_4 ? 3'd4 : 3'd0;
  assign divide_busy = busy[0];
  for (genvar lane = 0; lane < LANES; lane++) begin : lanes
    logic [1:0] from;
    logic [2:0] a_beat, ahead;
    logic [31:0] chord_word;
    logic [10:0] chord_place;
    logic chord_shift;
    if (GELU) begin : gelu
      gelu_table table_of_lane (
          .clk(clk),
          .place(chord_place),
          .shift(chord_shift),
          .word(chord_word)
      );
    end else begin : none
      assign chord_word = 32'd0;
    end
    assign from = 2'(lane) + turn[1:0];
    assign ahead = 3'(lane) - {1'b0, turn[1:0]};  // negative: of the next beat
    assign a_beat = beat + {2'd0, turn[2] || ahead[2]};
    vector_lane one (
        .clk(clk),
        .rst(rst),
        .issue(issue),
        .instruction(instruction),
        .beat(beat),
        .a_beat(a_beat),
        .read_a(read_a[lane]),
        .read_b(read_b[lane]),
        .a(instruction.a[6] ? scalar_a : read_a[from]),
        .b(instruction.b[6] ? scalar_b : read_b[lane]),
        .loaded(loaded[lane]),
        .chord_place(chord_place),
        .chord_shift(chord_shift),
        .chord_word(chord_word),
        .divide_start(divide_start),
        .divide_write(divide_write),
        .divide_busy(busy[lane]),
        .kept(kept[lane]),
        .stored(stored[lane]),
        .stored_bad(stored_bad[lane])
    );
  end
  assign divide_start = state == DIVIDING && drain == 4'd0;
  assign divide_write = state == DIVIDING && drain != 4'd0 && drain != 4'd1 && !divide_busy;

  logic stores_1, keeps_1;
  logic [2:0] beat_1;
  logic [1:0] keep_to_1;
  always_ff @(posedge clk) begin
    stores_1 <= state == ISSUE && (instruction.op == OP_STORE_HALF || instruction.op == OP_STORE_SINGLE ||
                                   instruction.op == OP_STORE_INT8 || instruction.op == OP_STORE_BITS);
    stores <= stores_1;
    keeps_1 <= state == ISSUE && instruction.op == OP_KEEP && beat == 3'd0;
    keep_to_1 <= instruction.to[1:0];
    beat_1 <= beat;
    stored_beat <= beat_1;
    if (keeps_1) kept_scalar[keep_to_1] <= kept[0];
  end

  always_ff @(posedge clk) begin
    unique case (state)
      IDLE: ;
      FETCH: begin
        instruction <= fetched;
        pc <= pc + 9'd1;
        beat <= 3'd0;
        drain <= 4'd0;
        state <= follow(fetched);
      end
      ISSUE: begin
        beat <= beat + 3'd1;
        if (beat == 3'd7) begin
          instruction <= fetched;
          pc <= pc + 9'd1;
          state <= follow(fetched);
        end
      end
      DIVIDE: begin  // these operands
        state <= DIVIDING;
        drain <= 4'd0;
      end
      DIVIDING: begin
        if (drain != 4'd2) drain <= drain + 4'd1;
        if (divide_write) begin
          drain <= 4'd0;
          beat <= beat + 3'd1;
          state <= DIVIDE;
          if (beat == last_divided) state <= FETCH;
        end
      end
      DRAIN: begin
        drain <= drain + 4'd1;
        if (finished) state <= IDLE;
      end
      default: state <= IDLE;
    endcase
    if (start) begin
      pc <= at;
      state <= FETCH;
    end
    if (rst) state <= IDLE;
  end
endmodule
