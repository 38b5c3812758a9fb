// SPDX-License-Identifier: Apache-2.0
// Between readers and memory: lines of banks become lines of board memory, by the arenas that the host has written, a line
// a cycle and reader. A line of no arena does not reach memory: it is answered as refused, when memory answers nothing.
module bank_ports
  import abi_types::*;
  import arena_types::*;
#(
    parameter int READERS  = 4,
    parameter int TAG_BITS = 1,
    parameter int BANKS    = 64  // of each reader: all, or 1
) (
    input  logic                clk,
    input  logic                rst,
    // what the host writes to registers
    input  logic                arena_write,
    input  logic [10:0]         arena_word,
    input  logic [31:0]         arena_stored,
    // readers
    input  logic [READERS-1:0]  bank_read_valid,
    output logic [READERS-1:0]  bank_read_ready,
    input  logic [5:0]          bank_read_bank[READERS],
    input  logic [31:0]         bank_read_line[READERS],
    input  logic [TAG_BITS-1:0] bank_read_tag[READERS],
    output logic [READERS-1:0]  bank_line_valid,
    input  logic [READERS-1:0]  bank_line_ready,
    output logic [TAG_BITS-1:0] bank_line_tag[READERS],
    output logic [511:0]        bank_line_data[READERS],
    output logic [READERS-1:0]  bank_line_refused,
    output logic [READERS-1:0]  bank_line_error,
    // memory: a line is address / 64
    output logic [READERS-1:0]  read_valid,
    input  logic [READERS-1:0]  read_ready,
    output logic [41:0]         read_line[READERS],
    output logic [TAG_BITS-1:0] read_tag[READERS],
    input  logic [READERS-1:0]  line_valid,
    output logic [READERS-1:0]  line_ready,
    input  logic [TAG_BITS-1:0] line_tag[READERS],
    input  logic [READERS-1:0]  line_error,
    input  logic [511:0]        line_data[READERS]
);
  localparam int LOG = READERS > 1 ? $clog2(READERS) : 1;

  // --- the arenas: misses of all readers share a table ----------------------------------------------
  logic changed, asks, busy, over, covered;
  logic [LOG-1:0] whose, next;
  logic [READERS-1:0] look, look_ready;
  range_t range[READERS];
  arena_t arena;
  assign changed = arena_write && (arena_word >= 11'(LORA_REG_ARENAS / 4) ||
                                   arena_word == 11'(LORA_REG_ARENA_COUNT / 4));
  always_comb begin
    next = '0;
    for (int i = READERS - 1; i >= 0; i--) if (look[i]) next = i[LOG-1:0];
    look_ready = '0;
    look_ready[next] = !busy && look[next];
  end
  assign asks = look_ready != '0;
  always_ff @(posedge clk) begin
    if (over) busy <= 1'b0;
    if (asks) begin
      busy <= 1'b1;
      whose <= next;
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
      .onchip_bytes(32'd0),
      .look(asks),
      .range(range[next]),
      .over(over),
      .covered(covered),
      .arena(arena)
  );

  // --- lines -----------------------------------------------------------------------------------------
  for (genvar i = 0; i < READERS; i++) begin : readers
    logic out, out_refused;
    /* verilator lint_off UNUSEDSIGNAL */
    logic no_onchip;
    /* verilator lint_on UNUSEDSIGNAL */
    line_address #(
        .REST_BITS(TAG_BITS),
        .BANKS(BANKS)
    ) address (
        .clk(clk),
        .rst(rst),
        .changed(changed),
        .onchip_lines(32'd0),
        .in_valid(bank_read_valid[i]),
        .in_ready(bank_read_ready[i]),
        .in_bank(bank_read_bank[i]),
        .in_line(bank_read_line[i]),
        .in_rest(bank_read_tag[i]),
        .out_valid(out),
        .out_ready(out_refused ? !line_valid[i] && bank_line_ready[i] : read_ready[i]),
        .out_refused(out_refused),
        .out_onchip(no_onchip),
        .out_line(read_line[i]),
        .out_rest(read_tag[i]),
        .look(look[i]),
        .look_ready(look_ready[i]),
        .range(range[i]),
        .over(over && whose == i[LOG-1:0]),
        .covered(covered),
        .arena(arena)
    );
    assign read_valid[i] = out && !out_refused;
    assign bank_line_refused[i] = !line_valid[i];
    assign bank_line_valid[i] = line_valid[i] || (out && out_refused);
    assign bank_line_error[i] = line_valid[i] && line_error[i];
    assign bank_line_tag[i] = line_valid[i] ? line_tag[i] : read_tag[i];
    assign bank_line_data[i] = line_data[i];
    assign line_ready[i] = bank_line_ready[i];
  end
endmodule
