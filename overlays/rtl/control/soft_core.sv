// SPDX-License-Identifier: Apache-2.0
// The core and its local memory. `load_*` is how the control program comes in, while `rst` holds the core,
// and how units read a command's list and state.
module soft_core
  import rv32_types::*;
(
    input  logic                  clk,
    input  logic                  rst,
    // others at local memory
    input  logic                  load_valid,
    output logic                  load_ready,     // the word read is there a cycle later
    input  logic [3:0]            load_write,     // bytes; none: read
    input  logic [LOCAL_BITS-3:0] load_word,
    input  logic [31:0]           load_stored,
    output logic [31:0]           load_data,
    // all beyond local memory, as rv32_core has it
    output logic                  bus_valid,
    output logic [31:0]           bus_address,
    output logic [3:0]            bus_write,
    output logic [31:0]           bus_stored,
    input  logic                  bus_ready,
    input  logic                  bus_error,
    input  logic [31:0]           bus_data,
    output logic                  stopped,
    output logic [3:0]            stopped_cause,
    output logic [31:0]           stopped_pc,
    // what is done, in order, for simulation
    output logic                  retired,
    output logic [31:0]           retired_pc,
    output logic                  retired_writes,
    output logic [4:0]            retired_rd,
    output logic [31:0]           retired_value
);
  logic fetch_read, local_reads;
  logic [LOCAL_BITS-3:0] fetch_word, local_word;
  logic [31:0] fetch_data, local_stored, local_data;
  logic [3:0] local_write;
  rv32_core core (
      .clk(clk),
      .rst(rst),
      .fetch_read(fetch_read),
      .fetch_word(fetch_word),
      .fetch_data(fetch_data),
      .local_reads(local_reads),
      .local_write(local_write),
      .local_word(local_word),
      .local_stored(local_stored),
      .local_data(local_data),
      .bus_valid(bus_valid),
      .bus_address(bus_address),
      .bus_write(bus_write),
      .bus_stored(bus_stored),
      .bus_ready(bus_ready),
      .bus_error(bus_error),
      .bus_data(bus_data),
      .stopped(stopped),
      .stopped_cause(stopped_cause),
      .stopped_pc(stopped_pc),
      .retired(retired),
      .retired_pc(retired_pc),
      .retired_writes(retired_writes),
      .retired_rd(retired_rd),
      .retired_value(retired_value)
  );
  local_memory memory (
      .clk(clk),
      .fetch_read(fetch_read),
      .fetch_word(fetch_word),
      .fetch_data(fetch_data),
      .core_uses(local_reads && !rst),
      .core_write(local_write),
      .core_word(local_word),
      .core_stored(local_stored),
      .other_valid(load_valid),
      .other_ready(load_ready),
      .other_write(load_write),
      .other_word(load_word),
      .other_stored(load_stored),
      .data(local_data)
  );
  assign load_data = local_data;
endmodule
