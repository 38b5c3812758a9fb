// SPDX-License-Identifier: Apache-2.0
// A board's control as a kernel of the vendor's shells: registers and interrupt, board memory by one port, the
// control program in a ROM beside it. Units and links are absent: their commands fail. All of it is in ap_clk;
// ap_rst_n is the shell's, synchronous to it and at least 16 cycles long. What is the board's own comes by parameters.
module control_kernel
  import abi_types::*;
  import rv32_types::*;
  import sequencer_types::*;
#(
    parameter logic [31:0] BOARD_KIND     = LORA_BOARD_U280,
    parameter logic [31:0] SERIAL         = 32'd0,
    parameter int          ONCHIP_BYTES   = 16 << 20,
    parameter int          CYCLES_PER_MS  = 200_000,
    parameter int          FIRMWARE_WORDS = 1
) (
    input  logic                  ap_clk,
    input  logic                  ap_rst_n,
    output logic                  interrupt_out,
    input  logic                  s_axi_control_awvalid,
    output logic                  s_axi_control_awready,
    input  logic [15:0]           s_axi_control_awaddr,
    input  logic                  s_axi_control_wvalid,
    output logic                  s_axi_control_wready,
    input  logic [31:0]           s_axi_control_wdata,
    input  logic [3:0]            s_axi_control_wstrb,
    output logic                  s_axi_control_bvalid,
    input  logic                  s_axi_control_bready,
    output logic [1:0]            s_axi_control_bresp,
    input  logic                  s_axi_control_arvalid,
    output logic                  s_axi_control_arready,
    input  logic [15:0]           s_axi_control_araddr,
    output logic                  s_axi_control_rvalid,
    input  logic                  s_axi_control_rready,
    output logic [31:0]           s_axi_control_rdata,
    output logic [1:0]            s_axi_control_rresp,
    // the control bank
    output logic                  m_axi_arvalid,
    input  logic                  m_axi_arready,
    output logic                  m_axi_arid,
    output logic [63:0]           m_axi_araddr,
    output logic [7:0]            m_axi_arlen,
    output logic [2:0]            m_axi_arsize,
    output logic [1:0]            m_axi_arburst,
    input  logic                  m_axi_rvalid,
    output logic                  m_axi_rready,
    input  logic                  m_axi_rid,
    input  logic [511:0]          m_axi_rdata,
    input  logic [1:0]            m_axi_rresp,
    input  logic                  m_axi_rlast,
    output logic                  m_axi_awvalid,
    input  logic                  m_axi_awready,
    output logic                  m_axi_awid,
    output logic [63:0]           m_axi_awaddr,
    output logic [7:0]            m_axi_awlen,
    output logic [2:0]            m_axi_awsize,
    output logic [1:0]            m_axi_awburst,
    output logic                  m_axi_wvalid,
    input  logic                  m_axi_wready,
    output logic [511:0]          m_axi_wdata,
    output logic [63:0]           m_axi_wstrb,
    output logic                  m_axi_wlast,
    input  logic                  m_axi_bvalid,
    output logic                  m_axi_bready,
    input  logic                  m_axi_bid,
    input  logic [1:0]            m_axi_bresp,
    // the control program
    output logic [LOCAL_BITS-3:0] rom_word,
    input  logic [31:0]           rom_data
);
  localparam int LINKS = 2;

  logic rst;
  kernel_reset reset (
      .clk(ap_clk),
      .rst_n(ap_rst_n),
      .rst(rst)
  );

  logic restart, load_valid, load_ready;
  logic [3:0] load_write;
  logic [LOCAL_BITS-3:0] load_word;
  logic [31:0] load_stored, crc;
  firmware_loader #(
      .WORDS(FIRMWARE_WORDS)
  ) loader (
      .clk(ap_clk),
      .rst(rst),
      .rom_word(rom_word),
      .rom_data(rom_data),
      .load_valid(load_valid),
      .load_ready(load_ready),
      .load_write(load_write),
      .load_word(load_word),
      .load_stored(load_stored),
      .restart(restart),
      .crc(crc)
  );

  logic awvalid, awready, wvalid, wready, arvalid, arready;
  logic [12:0] port_awaddr, port_araddr;
  logic [31:0] rdata;
  register_guard guard (
      .clk(ap_clk),
      .rst(rst),
      .restart(restart),
      .awvalid(s_axi_control_awvalid),
      .awready(s_axi_control_awready),
      .awaddr(s_axi_control_awaddr),
      .wvalid(s_axi_control_wvalid),
      .wready(s_axi_control_wready),
      .arvalid(s_axi_control_arvalid),
      .arready(s_axi_control_arready),
      .araddr(s_axi_control_araddr),
      .rdata(s_axi_control_rdata),
      .port_awvalid(awvalid),
      .port_awready(awready),
      .port_awaddr(port_awaddr),
      .port_wvalid(wvalid),
      .port_wready(wready),
      .port_arvalid(arvalid),
      .port_arready(arready),
      .port_araddr(port_araddr),
      .port_rdata(rdata)
  );

  logic unit_write, unit_abort;
  logic [2:0] unit_which;
  logic [5:0] unit_word;
  logic [31:0] unit_stored;
  logic [LORA_UNITS-1:0] mail_start, mail_abort;
  logic [UNITS-1:0] unit_start, unit_idle, result_valid, result_ready;
  logic [UNITS-1:0][1:0] result_state;
  logic [UNITS-1:0][7:0] result_status;
  absent_units units (
      .clk(ap_clk),
      .rst(rst || restart),
      .unit_start(unit_start),
      .unit_abort(unit_abort),
      .unit_idle(unit_idle),
      .result_valid(result_valid),
      .result_ready(result_ready),
      .result_state(result_state),
      .result_status(result_status),
      .mail_start(mail_start),
      .mail_abort(mail_abort),
      .unit_write(unit_write),
      .unit_which(unit_which),
      .unit_word(unit_word),
      .unit_stored(unit_stored)
  );

  logic [LINKS-1:0] link_test_start, link_test_failed;
  always_ff @(posedge ap_clk) link_test_failed <= link_test_start & {LINKS{!rst}};

  logic [47:0] araddr, awaddr;
  assign m_axi_araddr = {16'd0, araddr};
  assign m_axi_awaddr = {16'd0, awaddr};
  // verilator lint_off PINCONNECTEMPTY
  control_clocks #(
      .ONCHIP_BYTES(ONCHIP_BYTES),
      .CYCLES_PER_MS(CYCLES_PER_MS),
      .LINKS(LINKS)
  ) its_control (
      .clk(ap_clk),
      .rst(rst),
      .restart(restart),
      .host_clk(ap_clk),
      .host_rst(rst),
      .s_axi_control_awvalid(awvalid),
      .s_axi_control_awready(awready),
      .s_axi_control_awaddr(port_awaddr),
      .s_axi_control_wvalid(wvalid),
      .s_axi_control_wready(wready),
      .s_axi_control_wdata(s_axi_control_wdata),
      .s_axi_control_wstrb(s_axi_control_wstrb),
      .s_axi_control_bvalid(s_axi_control_bvalid),
      .s_axi_control_bready(s_axi_control_bready),
      .s_axi_control_bresp(s_axi_control_bresp),
      .s_axi_control_arvalid(arvalid),
      .s_axi_control_arready(arready),
      .s_axi_control_araddr(port_araddr),
      .s_axi_control_rvalid(s_axi_control_rvalid),
      .s_axi_control_rready(s_axi_control_rready),
      .s_axi_control_rdata(rdata),
      .s_axi_control_rresp(s_axi_control_rresp),
      // verilator lint_off SYMRSVDWORD
      .interrupt(interrupt_out),
      // verilator lint_on SYMRSVDWORD
      .memory_clk(ap_clk),
      .memory_rst(rst),
      .m_axi_arvalid(m_axi_arvalid),
      .m_axi_arready(m_axi_arready),
      .m_axi_arid(m_axi_arid),
      .m_axi_araddr(araddr),
      .m_axi_arlen(m_axi_arlen),
      .m_axi_arsize(m_axi_arsize),
      .m_axi_arburst(m_axi_arburst),
      .m_axi_rvalid(m_axi_rvalid),
      .m_axi_rready(m_axi_rready),
      .m_axi_rid(m_axi_rid),
      .m_axi_rdata(m_axi_rdata),
      .m_axi_rresp(m_axi_rresp),
      .m_axi_rlast(m_axi_rlast),
      .m_axi_awvalid(m_axi_awvalid),
      .m_axi_awready(m_axi_awready),
      .m_axi_awid(m_axi_awid),
      .m_axi_awaddr(awaddr),
      .m_axi_awlen(m_axi_awlen),
      .m_axi_awsize(m_axi_awsize),
      .m_axi_awburst(m_axi_awburst),
      .m_axi_wvalid(m_axi_wvalid),
      .m_axi_wready(m_axi_wready),
      .m_axi_wdata(m_axi_wdata),
      .m_axi_wstrb(m_axi_wstrb),
      .m_axi_wlast(m_axi_wlast),
      .m_axi_bvalid(m_axi_bvalid),
      .m_axi_bready(m_axi_bready),
      .m_axi_bid(m_axi_bid),
      .m_axi_bresp(m_axi_bresp),
      .link_clk({LINKS{ap_clk}}),
      .link_rst({LINKS{rst}}),
      .link_epoch(),
      .link_poison(),
      .link_list(),
      .link_state(),
      .link_test_start(link_test_start),
      .link_test(),
      .link_test_done('0),
      .link_test_failed(link_test_failed),
      .identity({crc, SERIAL, BOARD_KIND}),
      .load_valid(load_valid),
      .load_ready(load_ready),
      .load_write(load_write),
      .load_word(load_word),
      .load_stored(load_stored),
      .load_data(),
      .mail_start(mail_start),
      .mail_abort(mail_abort),
      .unit_write(unit_write),
      .unit_which(unit_which),
      .unit_word(unit_word),
      .unit_stored(unit_stored),
      .unit_data(),
      .trace_valid(),
      .trace_index(),
      .trace_rows(),
      .trace_end(),
      .stopped(),
      .stopped_cause(),
      .stopped_pc(),
      .retired(),
      .retired_pc(),
      .retired_writes(),
      .retired_rd(),
      .retired_value(),
      .unit_announce(),
      .unit_line(),
      .unit_rows(),
      .unit_list(),
      .unit_state(),
      .run_start(),
      .hold_units(1'b0),
      .unit_start(unit_start),
      .unit_abort(unit_abort),
      .run_index(),
      .run_rows(),
      .unit_idle(unit_idle),
      .result_valid(result_valid),
      .result_ready(result_ready),
      .result_state(result_state),
      .result_status(result_status),
      .result_nonfinite_count('0),
      .result_nonfinite_row('0),
      .result_port('0),
      .result_sum('0),
      .result_frames('0),
      .segments('0)
  );
  // verilator lint_on PINCONNECTEMPTY
endmodule
