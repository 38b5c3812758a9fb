// SPDX-License-Identifier: Apache-2.0
// One command of a slot, from the end of its checks to its result: the unit runs it, or its status says why not.
// An error of the memory port ends it: what no arena covers is ERR_ADDRESS, what memory reports is ERR_UNIT. A result is
// told when all writes are in memory. An abort ends the unit too, and no result comes.
module unit_run
  import abi_types::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        unit_abort,
    // checks are over: one cycle, not busy
    input  logic        start,
    input  logic [7:0]  status,          // OK: it runs
    input  logic        nothing,         // there is nothing to run
    output logic        busy,            // until its result is taken
    // unit
    output logic        abort_valid,
    output logic        command_valid,
    input  logic        command_ready,
    input  logic        done,
    input  logic        bad_index,       // with `done`: it is refused
    input  logic [31:0] nonfinite_count,
    input  logic [31:0] nonfinite_row,   // of the command's rows
    // its memory port
    input  logic        line_refused,    // one cycle each
    input  logic        line_error,
    input  logic        write_refused,
    input  logic        write_error,
    input  logic        write_open,      // a write that was taken is not in memory yet
    // the first row with such values: in the next cycle its number in the step
    output logic        looks,
    output logic [5:0]  look_row,
    input  logic [5:0]  row_number,
    // sequencer
    output logic        result_valid,
    input  logic        result_ready,
    output logic [1:0]  result_state,
    output logic [7:0]  result_status,
    output logic [31:0] result_nonfinite_count,
    output logic [31:0] result_nonfinite_row
);
  typedef enum logic [2:0] {IDLE, TELL, RUN, STOP, STOPPED, SETTLE, LOOK, RESULT} state_t;
  state_t state;
  logic [7:0] found;
  logic refused, failed, stops;
  assign refused = line_refused || write_refused;
  assign failed = line_error || write_error;
  assign busy = state != IDLE;
  assign command_valid = state == TELL && !stops;
  assign abort_valid = unit_abort || state == STOP;
  assign stops = found != 8'(LORA_OK);
  assign looks = state == SETTLE || state == LOOK;
  assign look_row = nonfinite_row[5:0];
  assign result_valid = state == RESULT;
  assign result_state = 2'(stops ? LORA_UNIT_FAILED : LORA_UNIT_DONE);
  assign result_status = found;
  always_ff @(posedge clk) begin
    if ((refused || failed) && !stops && state != RESULT)
      found <= refused ? 8'(LORA_ERR_ADDRESS) : 8'(LORA_ERR_UNIT);
    unique case (state)
      TELL:
      if (stops) state <= STOP;
      else if (command_ready) state <= RUN;
      RUN:
      if (done) begin
        if (bad_index && !stops && !refused && !failed) found <= 8'(LORA_ERR_SIZE);
        state <= SETTLE;
      end else if (stops) state <= STOP;
      STOP: state <= STOPPED;
      STOPPED: if (command_ready) state <= SETTLE;  // not in this cycle: it takes the abort first
      SETTLE: if (!write_open) state <= LOOK;
      LOOK: begin
        result_nonfinite_count <= stops ? 32'd0 : nonfinite_count;
        result_nonfinite_row <= stops || nonfinite_count == 32'd0 ? 32'hffff_ffff : {26'd0, row_number};
        state <= RESULT;
      end
      RESULT: if (result_ready) state <= IDLE;
      default:
      if (start) begin
        found <= status;
        state <= TELL;
        if (nothing || status != 8'(LORA_OK)) begin
          state <= RESULT;
          result_nonfinite_count <= 32'd0;
          result_nonfinite_row <= 32'hffff_ffff;
        end
      end
    endcase
    if (rst || unit_abort) state <= IDLE;
  end
endmodule
