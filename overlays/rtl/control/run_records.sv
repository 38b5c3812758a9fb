// SPDX-License-Identifier: Apache-2.0
// What a run leaves: the registers LAST_INDEX and UNIT_STATE of each unit, and the sums of the
// completion record. The value that is not finite is the first in the list, not in time.
module run_records
  import abi_types::*;
  import sequencer_types::*;
(
    input  logic                    clk,
    input  logic                    rst,
    input  logic                    start,
    input  logic [UNITS-1:0]        begun,
    input  logic [UNITS-1:0][13:0]  begun_index,
    input  logic [UNITS-1:0]        running,
    input  logic                    aborted,
    // one result
    input  logic                    take,
    input  logic                    good,
    input  logic [2:0]              unit,
    input  logic [1:0]              state,
    input  index_t                  index,
    input  logic [31:0]             new_nonfinite_count,
    input  logic [31:0]             new_nonfinite_row,
    input  logic [2:0][31:0]        new_frames,
    output logic [UNITS-1:0][31:0]  last_index,
    output logic [UNITS-1:0][1:0]   unit_state,
    output logic [31:0]             nonfinite_count,
    output logic [31:0]             nonfinite_index,
    output logic [31:0]             nonfinite_row,
    output logic [2:0][31:0]        frames            // sent, received, dropped
);
  always_ff @(posedge clk) begin
    for (int u = 0; u < UNITS; u++) begin
      if (begun[u]) begin
        last_index[u] <= 32'(begun_index[u]);
        if (u != LORA_UNIT_CONTROL) unit_state[u] <= 2'(LORA_UNIT_BUSY);
      end
      if (aborted && running[u]) unit_state[u] <= 2'(LORA_UNIT_FAILED);
    end
    if (take) begin
      unit_state[unit] <= state;
      for (int i = 0; i < 3; i++) frames[i] <= frames[i] + new_frames[i];
    end
    if (take && good && new_nonfinite_count != 32'd0) begin
      nonfinite_count <= nonfinite_count + new_nonfinite_count;
      if (nonfinite_count == 32'd0 || 32'(index) < nonfinite_index) begin
        nonfinite_index <= 32'(index);
        nonfinite_row <= new_nonfinite_row;
      end
    end
    if (rst || start) begin
      last_index <= '1;
      for (int u = 0; u < UNITS; u++) unit_state[u] <= 2'(LORA_UNIT_IDLE);
      nonfinite_count <= 32'd0;
      nonfinite_index <= '1;
      nonfinite_row <= '1;
      frames <= '0;
    end
  end
endmodule
