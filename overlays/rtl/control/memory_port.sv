// SPDX-License-Identifier: Apache-2.0
// Board memory as an AXI4 master in the memory's clock: bursts of the list (ID 0) and the window's accesses
// (ID 1), lines of 64 bytes. A read waits until each write before it has its response; a write that has
// failed makes the window's next read fail. When the control is reset, what memory still owes is taken and
// dropped before anything else is asked for.
module memory_port (
    input  logic         clk,
    input  logic         rst,
    // the window, as control has it
    input  logic         memory_valid,
    output logic         memory_ready,
    input  logic [47:0]  memory_address,
    input  logic [3:0]   memory_write,
    input  logic [31:0]  memory_stored,
    output logic         memory_answers,
    output logic [511:0] memory_line,
    output logic         memory_error,
    // the list
    input  logic         ar_valid,
    output logic         ar_ready,
    input  logic [41:0]  ar_line,
    input  logic [3:0]   ar_beats,
    output logic         r_valid,
    input  logic         r_ready,
    output logic [511:0] r_data,
    output logic         r_last,
    output logic         r_error,
    // AXI4: bursts of lines, INCR; nothing else than what is here varies
    input  logic         axi_clk,
    input  logic         axi_rst,
    output logic         arvalid,
    input  logic         arready,
    output logic         arid,
    output logic [47:0]  araddr,
    output logic [7:0]   arlen,
    input  logic         rvalid,
    output logic         rready,
    input  logic         rid,
    input  logic [511:0] rdata,
    input  logic [1:0]   rresp,
    input  logic         rlast,
    output logic         awvalid,
    input  logic         awready,
    output logic [47:0]  awaddr,
    output logic         wvalid,
    input  logic         wready,
    output logic [511:0] wdata,
    output logic [63:0]  wstrb,
    input  logic         bvalid,
    output logic         bready,
    input  logic [1:0]   bresp
);
  localparam int REQUESTS = 3, LINES = 5;  // of FIFOs: log2 of the depth
  localparam int COUNT_BITS = 4;
  typedef struct packed {
    logic        window;
    logic [3:0]  strobe;  // none: read
    logic [41:0] line;
    logic [3:0]  word;    // of the line that is written
    logic [3:0]  beats;   // less one
    logic [31:0] stored;
  } request_t;
  typedef struct packed {
    logic         window;
    logic         last;
    logic         error;
    logic [511:0] line;
  } line_t;

  logic stop, clear, axi_stop, axi_clear;
  reset_pair resets (
      .a_clk(clk),
      .a_rst(rst),
      .a_stop(stop),
      .a_clear(clear),
      .b_clk(axi_clk),
      .b_rst(axi_rst),
      .b_stop(axi_stop),
      .b_clear(axi_clear)
  );
  request_t asks, asked;
  line_t comes, came;
  logic room, has_asked, take, gives, gives_room, has_line, takes_line;
  assign asks = memory_valid ?
      {1'b1, memory_write, memory_address[47:6], memory_address[5:2], 4'd0, memory_stored} :
      {1'b0, 4'd0, ar_line, 4'd0, ar_beats, 32'd0};
  assign memory_ready = room;
  assign ar_ready = room && !memory_valid;
  async_fifo #(
      .WIDTH($bits(request_t)),
      .DEPTH_BITS(REQUESTS)
  ) requests (
      .from_clk(clk),
      .from_stop(stop),
      .from_clear(clear),
      .in_valid(memory_valid || ar_valid),
      .in_ready(room),
      .in_word(asks),
      .to_clk(axi_clk),
      .to_stop(axi_stop),
      .to_clear(axi_clear),
      .out_valid(has_asked),
      .out_ready(take),
      .out_word(asked)
  );
  async_fifo #(
      .WIDTH($bits(line_t)),
      .DEPTH_BITS(LINES)
  ) lines (
      .from_clk(axi_clk),
      .from_stop(axi_stop),
      .from_clear(axi_clear),
      .in_valid(gives),
      .in_ready(gives_room),
      .in_word(comes),
      .to_clk(clk),
      .to_stop(stop),
      .to_clear(clear),
      .out_valid(has_line),
      .out_ready(takes_line),
      .out_word(came)
  );
  assign takes_line = came.window || r_ready;
  assign memory_answers = has_line && came.window;
  assign memory_line = came.line;
  assign memory_error = came.error;
  assign r_valid = has_line && !came.window;
  assign r_data = came.line;
  assign r_last = came.last;
  assign r_error = came.error;

  // --- the memory's clock ----------------------------------------------------------------------------
  logic [COUNT_BITS-1:0] reading, writing;  // asked for, and not yet answered
  logic idle, reads, drop, write_failed, read_ends;
  assign idle = !arvalid && !awvalid && !wvalid;
  assign reads = asked.strobe == 4'd0;
  assign take = has_asked && idle && !drop && !(&reading) && !(&writing) && (!reads || writing == '0);
  assign rready = drop || axi_stop || gives_room;
  assign gives = rvalid && !drop && !axi_stop;
  assign comes = {rid, rlast, rresp[1] || (rid && write_failed), rdata};
  assign bready = 1'b1;
  assign read_ends = rvalid && rready && rlast;
  always_ff @(posedge axi_clk) begin
    if (arvalid && arready) arvalid <= 1'b0;
    if (awvalid && awready) awvalid <= 1'b0;
    if (wvalid && wready) wvalid <= 1'b0;
    if (take) begin
      arvalid <= reads;
      {awvalid, wvalid} <= {2{!reads}};
      arid <= asked.window;
      araddr <= {asked.line, 6'd0};
      arlen <= 8'(asked.beats);
      awaddr <= {asked.line, 6'd0};
      wdata <= {16{asked.stored}};
      wstrb <= 64'(asked.strobe) << {asked.word, 2'b00};
    end
    reading <= reading + COUNT_BITS'(take && reads) - COUNT_BITS'(read_ends);
    writing <= writing + COUNT_BITS'(take && !reads) - COUNT_BITS'(bvalid);
    if (gives && gives_room && rid) write_failed <= 1'b0;
    if (bvalid && bresp[1]) write_failed <= 1'b1;
    if (axi_stop) drop <= 1'b1;
    else if (reading == '0 && writing == '0) drop <= 1'b0;
    if (axi_stop || drop) write_failed <= 1'b0;
    if (axi_rst) {arvalid, awvalid, wvalid, reading, writing} <= '0;
  end
endmodule
