// SPDX-License-Identifier: Apache-2.0
// The commands that units may look at, and for each chunk which of them are a unit's. A line is there
// two cycles after it is asked for.
module command_window
  import abi_types::*;
  import sequencer_types::*;
(
    input  logic                                            clk,
    input  logic                                            write,
    input  logic [8:0]                                      write_where,
    input  logic [511:0]                                    write_line,
    input  logic                                            publish,
    input  logic [4:0]                                      publish_chunk,
    input  logic [UNITS-1:0][LORA_CHUNK_COMMANDS-1:0]       publish_marks,
    input  logic [UNITS-1:0][4:0]                           look_chunk,
    output logic [UNITS-1:0][LORA_CHUNK_COMMANDS-1:0]       marks,
    input  logic [8:0]                                      read_where,
    output logic [511:0]                                    line
);
  logic [511:0] lines[LORA_WINDOW_CHUNKS*LORA_CHUNK_COMMANDS], read;
  always_ff @(posedge clk) begin
    if (write) lines[write_where] <= write_line;
    read <= lines[read_where];
    line <= read;
  end

  for (genvar u = 0; u < UNITS; u++) begin : unit
    logic [LORA_CHUNK_COMMANDS-1:0] of_chunk[LORA_WINDOW_CHUNKS];
    always_ff @(posedge clk) if (publish) of_chunk[publish_chunk] <= publish_marks[u];
    assign marks[u] = of_chunk[look_chunk[u]];
  end
endmodule
