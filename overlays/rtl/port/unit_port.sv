// SPDX-License-Identifier: Apache-2.0
// Between a unit and its memory port: lets a command end at any cycle. After an abort nothing new goes out; what
// is on offer stays until memory takes it, as a bus demands; answers that are still to come are dropped. Then the
// unit `runs` again. Until then `clear` resets it, for longer than anything stays in its pipelines.
// A reset is of the unit and the memory port together: no answer comes after it to a read from before.
module unit_port #(
    parameter int CLEAR_CYCLES = 32,
    parameter int COUNT_BITS = 15  // of the reads that may be under way
) (
    input  logic clk,
    input  logic rst,
    input  logic abort_valid,      // one cycle or more
    output logic runs,             // the unit takes commands, and its `done` counts
    output logic clear,            // the unit's reset
    // unit
    input  logic unit_read_valid,
    output logic unit_read_ready,
    input  logic unit_write_valid,
    output logic unit_write_ready,
    output logic unit_line_valid,
    // memory
    output logic read_valid,
    input  logic read_ready,
    input  logic line_valid,
    output logic write_valid,
    input  logic write_ready
);
  localparam int CYCLE_BITS = $clog2(CLEAR_CYCLES);
  typedef enum logic [1:0] {RUN, HOLD, CLEAR} state_t;
  state_t state;
  logic hold_read, hold_write;  // on offer since before the abort
  logic [CYCLE_BITS-1:0] cycle;
  logic [COUNT_BITS-1:0] under_way;

  assign runs = state == RUN;
  assign clear = rst || state == CLEAR;
  assign read_valid = unit_read_valid && (runs || (state == HOLD && hold_read));
  assign write_valid = unit_write_valid && (runs || (state == HOLD && hold_write));
  assign unit_read_ready = read_ready && runs;
  assign unit_write_ready = write_ready && runs;
  assign unit_line_valid = line_valid && runs;

  always_ff @(posedge clk) begin
    under_way <= under_way + COUNT_BITS'(read_valid && read_ready) - COUNT_BITS'(line_valid);
    if (read_ready) hold_read <= 1'b0;
    if (write_ready) hold_write <= 1'b0;
    unique case (state)
      RUN:
      if (abort_valid) begin
        hold_read <= read_valid && !read_ready;
        hold_write <= write_valid && !write_ready;
        state <= HOLD;
      end
      HOLD: begin
        cycle <= '0;
        if (!hold_read && !hold_write) state <= CLEAR;
      end
      default: begin
        if (cycle != CYCLE_BITS'(CLEAR_CYCLES - 1)) cycle <= cycle + 1'b1;
        else if (under_way == '0 && !abort_valid) state <= RUN;
      end
    endcase
    if (rst) begin
      state <= CLEAR;
      cycle <= '0;
      under_way <= '0;
    end
  end
endmodule
