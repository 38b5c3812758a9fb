// SPDX-License-Identifier: Apache-2.0
// Several units on one memory port, in turns. Lines may come back in any order: a read's tag carries its unit. A read
// or write to a line waits for each write to it that was taken before, of any unit, until memory has it. What is
// on offer to memory comes from registers and stays until it is taken.
module port_arbiter #(
    parameter int UNITS     = 3,
    parameter int TAG_BITS  = 16,
    parameter int WRITES    = 32,  // that may be on their way to memory
    parameter int UNIT_BITS = $clog2(UNITS),
    parameter int ID_BITS   = $clog2(WRITES)
) (
    input  logic                            clk,
    input  logic                            rst,             // of all units and memory too
    // units
    input  logic [UNITS-1:0]                unit_read_valid,
    output logic [UNITS-1:0]                unit_read_ready,
    input  logic [UNITS-1:0][5:0]           unit_read_bank,
    input  logic [UNITS-1:0][31:0]          unit_read_line,
    input  logic [UNITS-1:0][TAG_BITS-1:0]  unit_read_tag,
    output logic [UNITS-1:0]                unit_line_valid,
    output logic [TAG_BITS-1:0]             unit_line_tag,
    output logic [511:0]                    unit_line_data,
    output logic [UNITS-1:0]                unit_line_refused,  // with the line, that is none then
    output logic [UNITS-1:0]                unit_line_error,
    input  logic [UNITS-1:0]                unit_write_valid,
    output logic [UNITS-1:0]                unit_write_ready,
    input  logic [UNITS-1:0][5:0]           unit_write_bank,
    input  logic [UNITS-1:0][31:0]          unit_write_line,
    input  logic [UNITS-1:0][63:0]          unit_write_bytes,
    input  logic [UNITS-1:0][511:0]         unit_write_data,
    output logic [UNITS-1:0]                unit_write_open,    // some that were taken are not in memory
    output logic [UNITS-1:0]                unit_write_refused, // one cycle each, at the latest when that falls
    output logic [UNITS-1:0]                unit_write_error,
    // memory
    output logic                            read_valid,
    input  logic                            read_ready,
    output logic [5:0]                      read_bank,
    output logic [31:0]                     read_line,
    output logic [UNIT_BITS+TAG_BITS-1:0]   read_tag,
    input  logic                            line_valid,
    input  logic [UNIT_BITS+TAG_BITS-1:0]   line_tag,
    input  logic [511:0]                    line_data,
    input  logic                            line_refused,
    input  logic                            line_error,
    output logic                            write_valid,
    input  logic                            write_ready,
    output logic [5:0]                      write_bank,
    output logic [31:0]                     write_line,
    output logic [63:0]                     write_bytes,
    output logic [511:0]                    write_data,
    output logic [ID_BITS-1:0]              write_id,
    input  logic                            written,         // the write of this number is over
    input  logic [ID_BITS-1:0]              written_id,
    input  logic                            written_refused,
    input  logic                            written_error
);
  typedef logic [UNIT_BITS-1:0] unit_t;
  typedef struct packed {
    logic [5:0]                    bank;
    logic [31:0]                   line;
    logic [UNIT_BITS+TAG_BITS-1:0] tag;
  } read_t;
  typedef struct packed {
    logic [5:0]         bank;
    logic [31:0]        line;
    logic [63:0]        bytes;
    logic [511:0]       data;
    logic [ID_BITS-1:0] id;
  } write_t;

  // The first that asks behind the one that was served last.
  function automatic unit_t choose(input logic [UNITS-1:0] asks, input unit_t last);
    unit_t found;
    found = '0;
    for (int u = UNITS - 1; u >= 0; u--) if (asks[u]) found = unit_t'(u);
    for (int u = UNITS - 1; u >= 0; u--) if (asks[u] && u > int'(last)) found = unit_t'(u);
    return found;
  endfunction

  // --- writes that memory does not have yet ----------------------------------------------------------
  logic [WRITES-1:0] open, over, read_meets, write_meets;
  logic [5:0] open_bank[WRITES];
  logic [31:0] open_line[WRITES];
  unit_t open_unit[WRITES];
  logic [ID_BITS-1:0] free;
  unit_t reader, writer, last_reader, last_writer;
  always_comb begin
    over = '0;
    over[written_id] = written;
    free = '0;
    for (int i = WRITES - 1; i >= 0; i--) if (!open[i]) free = ID_BITS'(i);
    for (int i = 0; i < WRITES; i++) begin
      read_meets[i] = open[i] && !over[i] && open_line[i] == unit_read_line[reader] &&
          open_bank[i] == unit_read_bank[reader];
      write_meets[i] = open[i] && !over[i] && open_line[i] == unit_write_line[writer] &&
          open_bank[i] == unit_write_bank[writer];
    end
    unit_write_open = '0;
    for (int i = 0; i < WRITES; i++) if (open[i]) unit_write_open[open_unit[i]] = 1'b1;
  end

  // --- what was taken: one waits here for older writes, one is on offer ------------------------------
  logic read_waits, read_moves, reads, write_waits, write_moves, writes;
  logic [WRITES-1:0] read_behind, write_behind;
  read_t next_read, read;
  write_t next_write, write;
  assign reader = choose(unit_read_valid, last_reader);
  assign writer = choose(unit_write_valid, last_writer);
  assign reads = unit_read_valid != '0 && (!read_waits || read_moves);
  assign writes = unit_write_valid != '0 && (!write_waits || write_moves) && !(&open);
  assign read_moves = read_waits && read_behind == '0 && (!read_valid || read_ready);
  assign write_moves = write_waits && write_behind == '0 && (!write_valid || write_ready);
  always_comb begin
    unit_read_ready = '0;
    unit_write_ready = '0;
    unit_read_ready[reader] = reads;
    unit_write_ready[writer] = writes;
  end
  always_ff @(posedge clk) begin
    if (read_ready) read_valid <= 1'b0;
    if (read_moves) begin
      read_valid <= 1'b1;
      read <= next_read;
      read_waits <= 1'b0;
    end
    read_behind <= read_behind & ~over;
    if (reads) begin
      read_waits <= 1'b1;
      read_behind <= read_meets;
      next_read <= '{unit_read_bank[reader], unit_read_line[reader], {reader, unit_read_tag[reader]}};
      last_reader <= reader;
    end
    if (write_ready) write_valid <= 1'b0;
    if (write_moves) begin
      write_valid <= 1'b1;
      write <= next_write;
      write_waits <= 1'b0;
    end
    write_behind <= write_behind & ~over;
    open <= open & ~over;
    if (writes) begin
      write_waits <= 1'b1;
      write_behind <= write_meets;
      next_write <= '{unit_write_bank[writer], unit_write_line[writer], unit_write_bytes[writer],
                      unit_write_data[writer], free};
      last_writer <= writer;
      open[free] <= 1'b1;
      open_bank[free] <= unit_write_bank[writer];
      open_line[free] <= unit_write_line[writer];
      open_unit[free] <= writer;
    end
    unit_write_refused <= '0;
    unit_write_error <= '0;
    unit_write_refused[open_unit[written_id]] <= written && written_refused;
    unit_write_error[open_unit[written_id]] <= written && written_error;
    unit_line_valid <= '0;
    unit_line_refused <= '0;
    unit_line_error <= '0;
    unit_line_valid[line_tag[TAG_BITS+:UNIT_BITS]] <= line_valid;
    unit_line_refused[line_tag[TAG_BITS+:UNIT_BITS]] <= line_valid && line_refused;
    unit_line_error[line_tag[TAG_BITS+:UNIT_BITS]] <= line_valid && line_error;
    unit_line_tag <= line_tag[TAG_BITS-1:0];
    unit_line_data <= line_data;
    if (rst) begin
      {read_valid, read_waits, write_valid, write_waits, open} <= '0;
      {unit_line_valid, unit_line_refused, unit_line_error, unit_write_refused, unit_write_error} <= '0;
      {last_reader, last_writer} <= '0;
    end
  end
  assign {read_bank, read_line, read_tag} = read;
  assign {write_bank, write_line, write_bytes, write_data, write_id} = write;
endmodule
