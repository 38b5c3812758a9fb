// SPDX-License-Identifier: Apache-2.0
// Several units on one memory port that serves one unit of port_arbiter: reads and writes in turns, each on offer until
// memory takes it. Lines go by their tags to the unit that asked. Writes are not told apart behind it.
module shared_port #(
    parameter int UNITS     = 4,
    parameter int TAG_BITS  = 16,
    parameter int UNIT_BITS = $clog2(UNITS)
) (
    input  logic                           clk,
    input  logic                           rst,  // of all units and memory too
    // units
    input  logic [UNITS-1:0]               unit_read_valid,
    output logic [UNITS-1:0]               unit_read_ready,
    input  logic [UNITS-1:0][5:0]          unit_read_bank,
    input  logic [UNITS-1:0][31:0]         unit_read_line,
    input  logic [UNITS-1:0][TAG_BITS-1:0] unit_read_tag,
    output logic [UNITS-1:0]               unit_line_valid,
    output logic [UNITS-1:0]               unit_line_refused,
    output logic [UNITS-1:0]               unit_line_error,
    input  logic [UNITS-1:0]               unit_write_valid,
    output logic [UNITS-1:0]               unit_write_ready,
    input  logic [UNITS-1:0][5:0]          unit_write_bank,
    input  logic [UNITS-1:0][31:0]         unit_write_line,
    input  logic [UNITS-1:0][63:0]         unit_write_bytes,
    input  logic [UNITS-1:0][511:0]        unit_write_data,
    // memory; a line's data and the rest of its tag go to all units
    output logic                           read_valid,
    input  logic                           read_ready,
    output logic [5:0]                     read_bank,
    output logic [31:0]                    read_line,
    output logic [UNIT_BITS+TAG_BITS-1:0]  read_tag,
    input  logic                           line_valid,
    input  logic                           line_refused,
    input  logic                           line_error,
    input  logic [UNIT_BITS-1:0]           line_unit,  // of its tag
    output logic                           write_valid,
    input  logic                           write_ready,
    output logic [5:0]                     write_bank,
    output logic [31:0]                    write_line,
    output logic [63:0]                    write_bytes,
    output logic [511:0]                   write_data
);
  logic [UNIT_BITS-1:0] reader, writer;
  unit_turns #(
      .UNITS(UNITS)
  ) reads (
      .clk(clk),
      .rst(rst),
      .asks(unit_read_valid),
      .ready(read_ready),
      .unit(reader)
  );
  unit_turns #(
      .UNITS(UNITS)
  ) writes (
      .clk(clk),
      .rst(rst),
      .asks(unit_write_valid),
      .ready(write_ready),
      .unit(writer)
  );
  typedef struct packed {
    logic [5:0]   bank;
    logic [31:0]  line;
    logic [63:0]  bytes;
    logic [511:0] data;
  } write_t;
  write_t write;
  assign read_valid = unit_read_valid != '0;
  assign write_valid = unit_write_valid != '0;
  assign {write_bank, write_line, write_bytes, write_data} = write;
  always_comb begin
    {read_bank, read_line, read_tag} = {unit_read_bank[0], unit_read_line[0], reader, unit_read_tag[0]};
    write = '{unit_write_bank[0], unit_write_line[0], unit_write_bytes[0], unit_write_data[0]};
    for (int u = 1; u < UNITS; u++) begin
      if (reader == UNIT_BITS'(u))
        {read_bank, read_line, read_tag} = {unit_read_bank[u], unit_read_line[u], reader, unit_read_tag[u]};
      if (writer == UNIT_BITS'(u))
        write = '{unit_write_bank[u], unit_write_line[u], unit_write_bytes[u], unit_write_data[u]};
    end
  end
  always_comb begin
    {unit_read_ready, unit_write_ready, unit_line_valid, unit_line_refused, unit_line_error} = '0;
    unit_read_ready[reader] = read_ready;
    unit_write_ready[writer] = write_ready;
    unit_line_valid[line_unit] = line_valid;
    unit_line_refused[line_unit] = line_refused;
    unit_line_error[line_unit] = line_error;
  end
endmodule
