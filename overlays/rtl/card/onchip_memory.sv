// SPDX-License-Identifier: Apache-2.0
// The on-chip buffer: lines in UltraRAM, one port to read and one to write. A read is answered STAGES + 1 cycles later,
// which registers between the blocks of a deep memory take; a write the cycle after it. What is `failed` is not of this
// memory: it is answered as an error, and nothing happens.
module onchip_memory #(
    parameter int BYTES    = 16 << 20,
    parameter int TAG_BITS = 20,
    parameter int ID_BITS  = 5,
    parameter int STAGES   = 4
) (
    input  logic                clk,
    input  logic                rst,
    input  logic                read_valid,
    input  logic                read_failed,
    input  logic [41:0]         read_line,
    input  logic [TAG_BITS-1:0] read_tag,
    output logic                line_valid,
    output logic [TAG_BITS-1:0] line_tag,
    output logic [511:0]        line_data,
    output logic                line_error,
    input  logic                write_valid,
    input  logic                write_failed,
    input  logic [41:0]         write_line,
    input  logic [63:0]         write_bytes,
    input  logic [511:0]        write_data,
    input  logic [ID_BITS-1:0]  write_id,
    output logic                written,
    output logic [ID_BITS-1:0]  written_id,
    output logic                written_error
);
  localparam int LINES = BYTES / 64, LINE_BITS = $clog2(LINES);
  typedef struct packed {
    logic                error;
    logic [TAG_BITS-1:0] tag;
  } answer_t;
  // the arbiter lets no read meet a write of its line
  (* ram_style = "ultra", rw_addr_collision = "no", no_rw_check *) logic [511:0] lines[LINES];
  logic [STAGES:0][511:0] found;
  logic [STAGES:0] valid;
  answer_t [STAGES:0] answer;
  logic writes;
  assign writes = write_valid && !write_failed;
  always_ff @(posedge clk)
    for (int i = 0; i < 64; i++)
      if (writes && write_bytes[i]) lines[write_line[LINE_BITS-1:0]][8*i+:8] <= write_data[8*i+:8];
  always_ff @(posedge clk) begin
    found[0] <= lines[read_line[LINE_BITS-1:0]];
    answer[0] <= '{read_failed, read_tag};
    for (int s = 0; s < STAGES; s++) begin
      found[s+1] <= found[s];
      answer[s+1] <= answer[s];
    end
    valid <= {valid[STAGES-1:0], read_valid};
    written <= write_valid;
    written_id <= write_id;
    written_error <= write_failed;
    if (rst) {valid, written} <= '0;
  end
  assign line_valid = valid[STAGES];
  assign line_data = found[STAGES];
  assign line_tag = answer[STAGES].tag;
  assign line_error = answer[STAGES].error;
endmodule
