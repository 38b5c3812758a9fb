// SPDX-License-Identifier: Apache-2.0
// Between port_arbiter and memory: lines of banks become lines of the on-chip buffer or of board memory, by the arenas
// that the host has written. Reads and writes each pass a line a cycle. A line of no arena does not reach memory: it is
// answered as refused, when memory answers nothing. What memory reports as failed is passed on. Each line is a transfer
// of its own, so none crosses 4 KiB.
module arena_port
  import abi_types::*;
  import arena_types::*;
#(
    parameter int TAG_BITS = 18,
    parameter int ID_BITS  = 5
) (
    input  logic                clk,
    input  logic                rst,
    // what the host writes to registers
    input  logic                arena_write,
    input  logic [10:0]         arena_word,
    input  logic [31:0]         arena_stored,
    input  logic [31:0]         onchip_bytes,
    // arbiter
    input  logic                read_valid,
    output logic                read_ready,
    input  logic [5:0]          read_bank,
    input  logic [31:0]         read_line,
    input  logic [TAG_BITS-1:0] read_tag,
    output logic                line_valid,
    output logic [TAG_BITS-1:0] line_tag,
    output logic [511:0]        line_data,
    output logic                line_refused,
    output logic                line_error,
    input  logic                write_valid,
    output logic                write_ready,
    input  logic [5:0]          write_bank,
    input  logic [31:0]         write_line,
    input  logic [63:0]         write_bytes,
    input  logic [511:0]        write_data,
    input  logic [ID_BITS-1:0]  write_id,
    output logic                written,
    output logic [ID_BITS-1:0]  written_id,
    output logic                written_refused,
    output logic                written_error,
    // memory: a line is address / 64, or the on-chip buffer's
    output logic                memory_read_valid,
    input  logic                memory_read_ready,
    output logic                memory_read_onchip,
    output logic [41:0]         memory_read_line,
    output logic [TAG_BITS-1:0] memory_read_tag,
    input  logic                memory_line_valid,
    input  logic [TAG_BITS-1:0] memory_line_tag,
    input  logic [511:0]        memory_line_data,
    input  logic                memory_line_error,
    output logic                memory_write_valid,
    input  logic                memory_write_ready,
    output logic                memory_write_onchip,
    output logic [41:0]         memory_write_line,
    output logic [63:0]         memory_write_bytes,
    output logic [511:0]        memory_write_data,
    output logic [ID_BITS-1:0]  memory_write_id,
    input  logic                memory_written,
    input  logic [ID_BITS-1:0]  memory_written_id,
    input  logic                memory_written_error
);
  // --- the arenas: misses of reads and writes share a table ------------------------------------------
  logic changed, asks, busy, whose, over, covered;
  logic [1:0] look, look_ready;
  range_t [1:0] range;
  arena_t arena;
  assign changed = arena_write && (arena_word >= 11'(LORA_REG_ARENAS / 4) ||
                                   arena_word == 11'(LORA_REG_ARENA_COUNT / 4));
  assign look_ready = busy ? 2'b00 : look[0] ? 2'b01 : 2'b10;
  assign asks = (look & look_ready) != 2'b00;
  always_ff @(posedge clk) begin
    if (over) busy <= 1'b0;
    if (asks) begin
      busy <= 1'b1;
      whose <= look_ready[1];
    end
    if (rst) busy <= 1'b0;
  end
  range_table arenas (
      .clk(clk),
      .rst(rst),
      .clear(rst),
      .write(arena_write),
      .word(arena_word),
      .stored(arena_stored),
      .onchip_bytes(onchip_bytes),
      .look(asks),
      .range(look_ready[1] ? range[1] : range[0]),
      .over(over),
      .covered(covered),
      .arena(arena)
  );

  // --- reads -----------------------------------------------------------------------------------------
  logic [31:0] onchip_lines;
  logic read_out, read_out_ready, read_refused, write_out, write_out_ready, write_refused;
  assign onchip_lines = {6'd0, onchip_bytes[31:6]};
  line_address #(
      .REST_BITS(TAG_BITS)
  ) reads (
      .clk(clk),
      .rst(rst),
      .changed(changed),
      .onchip_lines(onchip_lines),
      .in_valid(read_valid),
      .in_ready(read_ready),
      .in_bank(read_bank),
      .in_line(read_line),
      .in_rest(read_tag),
      .out_valid(read_out),
      .out_ready(read_out_ready),
      .out_refused(read_refused),
      .out_onchip(memory_read_onchip),
      .out_line(memory_read_line),
      .out_rest(memory_read_tag),
      .look(look[0]),
      .look_ready(look_ready[0]),
      .range(range[0]),
      .over(over && !whose),
      .covered(covered),
      .arena(arena)
  );
  assign memory_read_valid = read_out && !read_refused;
  assign read_out_ready = read_refused ? !memory_line_valid : memory_read_ready;
  assign line_refused = !memory_line_valid;
  assign line_valid = memory_line_valid || (read_out && read_refused);
  assign line_tag = memory_line_valid ? memory_line_tag : memory_read_tag;
  assign line_data = memory_line_data;
  assign line_error = memory_line_valid && memory_line_error;

  // --- writes ----------------------------------------------------------------------------------------
  line_address #(
      .REST_BITS(ID_BITS + 64 + 512)
  ) writes (
      .clk(clk),
      .rst(rst),
      .changed(changed),
      .onchip_lines(onchip_lines),
      .in_valid(write_valid),
      .in_ready(write_ready),
      .in_bank(write_bank),
      .in_line(write_line),
      .in_rest({write_id, write_bytes, write_data}),
      .out_valid(write_out),
      .out_ready(write_out_ready),
      .out_refused(write_refused),
      .out_onchip(memory_write_onchip),
      .out_line(memory_write_line),
      .out_rest({memory_write_id, memory_write_bytes, memory_write_data}),
      .look(look[1]),
      .look_ready(look_ready[1]),
      .range(range[1]),
      .over(over && whose),
      .covered(covered),
      .arena(arena)
  );
  assign memory_write_valid = write_out && !write_refused;
  assign write_out_ready = write_refused ? !memory_written : memory_write_ready;
  assign written = memory_written || (write_out && write_refused);
  assign written_id = memory_written ? memory_written_id : memory_write_id;
  assign written_refused = !memory_written;
  assign written_error = memory_written && memory_written_error;
endmodule
