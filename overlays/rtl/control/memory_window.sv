// SPDX-License-Identifier: Apache-2.0
// A page of board memory at a time. The arena that covers (bank, page) is looked up at the first access
// behind a new choice; a page that none covers reads as zeros and takes no writes. A write is over once
// memory has taken it, before it is there; a read does not overtake it. A line that was read is kept until
// a new choice, even of the same page, or a write: what the core reads behind a choice is younger than it.
// A read that memory reports as failed is not kept.
module memory_window (
    input  logic        clk,
    input  logic        rst,
    // the core's accesses, held until `ready`; one that it no longer asks for is brought to its end
    input  logic        valid,
    input  logic [3:0]  write,          // bytes; none: read
    input  logic [11:0] offset,
    input  logic [31:0] stored,
    output logic        ready,
    output logic [31:0] data,
    output logic        failed,         // with `ready`
    input  logic        changed,        // bank, page or the arenas
    // arena_table
    output logic        look,
    input  logic        look_over,
    input  logic        look_covered,
    input  logic [35:0] look_address,
    // board memory: a request is held until it is taken
    output logic        memory_valid,
    input  logic        memory_ready,
    output logic [47:0] memory_address,
    output logic [3:0]  memory_write,
    output logic [31:0] memory_stored,
    input  logic        memory_answers,
    input  logic [511:0] memory_line,
    input  logic         memory_error,  // with the answer: it, or an earlier write, has failed
    output logic [35:0] page            // of what was accessed last, if an arena covers it
);
  typedef enum logic [2:0] {IDLE, LOOK, ASK, REQUEST, ANSWER, OVER} state_t;
  state_t state;
  logic known, covered, dropped, kept, here;
  logic [5:0] kept_line;
  logic [15:0][31:0] line;
  assign here = kept && write == 4'd0 && offset[11:6] == kept_line;
  logic [9:0] word;
  assign ready = state == OVER && !dropped;
  assign look = state == LOOK;
  assign memory_valid = state == REQUEST;
  assign memory_address = {page, word, 2'b00};
  always_ff @(posedge clk) begin
    if (state != IDLE && !valid) dropped <= 1'b1;
    case (state)
      IDLE:
      if (valid) begin
        dropped <= 1'b0;
        failed <= 1'b0;
        memory_write <= write;
        memory_stored <= stored;
        word <= offset[11:2];
        data <= known && covered ? line[offset[5:2]] : 32'd0;
        state <= here ? OVER : !known ? LOOK : covered ? REQUEST : OVER;
      end
      LOOK: begin
        known <= 1'b1;
        state <= ASK;
      end
      ASK:
      if (!valid) begin  // arena_table has begun anew too: it never answers
        known <= 1'b0;
        state <= IDLE;
      end else if (look_over) begin
        covered <= look_covered;
        page <= look_address;
        state <= look_covered ? REQUEST : OVER;
      end
      REQUEST: begin
        kept <= 1'b0;
        if (memory_ready) state <= memory_write == 4'd0 ? ANSWER : OVER;
      end
      ANSWER:
      if (memory_answers) begin
        line <= memory_line;
        data <= memory_line[{word[3:0], 5'd0}+:32];
        kept <= !memory_error;
        failed <= memory_error;
        kept_line <= word[9:4];
        state <= OVER;
      end
      default: state <= IDLE;
    endcase
    if (changed) {known, kept} <= 2'b00;
    if (rst) begin
      state <= IDLE;
      kept <= 1'b0;
      known <= 1'b0;
    end
  end
endmodule
