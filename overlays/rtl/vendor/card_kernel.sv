// SPDX-License-Identifier: Apache-2.0
// A whole board as a kernel of the vendor's shells: registers and interrupt, a memory port a bank, the on-chip buffer,
// both links' streams, the control program in a ROM beside it. All of it is in ap_clk; ap_rst_n is the shell's,
// synchronous to it and at least 16 cycles long. What is the board's own comes by parameters.
module card_kernel
  import abi_types::*;
  import attention_types::*;
  import rv32_types::*;
#(
    parameter logic [31:0]         BOARD_KIND     = LORA_BOARD_U280,
    parameter logic [31:0]         SERIAL         = 32'd0,
    parameter int                  ONCHIP_BYTES   = 16 << 20,
    parameter int                  CYCLES_PER_MS  = 200_000,
    parameter int                  FIRMWARE_WORDS = 1,
    parameter int                  PORTS          = 2,
    parameter int                  CONTROL_PORT   = 0,
    parameter logic [42*PORTS-1:0] FIRST_LINES    = '0,  // of line_ports
    parameter logic [6*PORTS-1:0]  SPAN_BITS      = '0,
    parameter int                  LANES          = 32,  // of card
    parameter int                  DSP48          = 0,   // 1 for UltraScale+
    parameter int                  DSP58          = 0,   // 1 for Versal
    parameter int                  CHANNELS       = 0,   // of card: the first ports are theirs, too
    parameter int                  ATTENTIONS     = CHANNELS > 0 ? 4 : 1,
    parameter int                  FLOAT_ATTENTIONS = ATTENTIONS > 1 ? 2 : 1,
    localparam int                 BANKS          = CHANNELS > 0 ? CHANNELS : 1,
    localparam int                 LINKS          = 2,
    localparam int                 ID_BITS        = 6
) (
    input  logic                          ap_clk,
    input  logic                          ap_rst_n,
    output logic                          interrupt_out,
    input  logic                          s_axi_control_awvalid,
    output logic                          s_axi_control_awready,
    input  logic [15:0]                   s_axi_control_awaddr,
    input  logic                          s_axi_control_wvalid,
    output logic                          s_axi_control_wready,
    input  logic [31:0]                   s_axi_control_wdata,
    input  logic [3:0]                    s_axi_control_wstrb,
    output logic                          s_axi_control_bvalid,
    input  logic                          s_axi_control_bready,
    output logic [1:0]                    s_axi_control_bresp,
    input  logic                          s_axi_control_arvalid,
    output logic                          s_axi_control_arready,
    input  logic [15:0]                   s_axi_control_araddr,
    output logic                          s_axi_control_rvalid,
    input  logic                          s_axi_control_rready,
    output logic [31:0]                   s_axi_control_rdata,
    output logic [1:0]                    s_axi_control_rresp,
    // board memory, the lowest bank first
    output logic [PORTS-1:0]              m_axi_arvalid,
    input  logic [PORTS-1:0]              m_axi_arready,
    output logic [PORTS-1:0][ID_BITS-1:0] m_axi_arid,
    output logic [PORTS-1:0][63:0]        m_axi_araddr,
    output logic [PORTS-1:0][7:0]         m_axi_arlen,
    output logic [PORTS-1:0][2:0]         m_axi_arsize,
    output logic [PORTS-1:0][1:0]         m_axi_arburst,
    input  logic [PORTS-1:0]              m_axi_rvalid,
    output logic [PORTS-1:0]              m_axi_rready,
    input  logic [PORTS-1:0][ID_BITS-1:0] m_axi_rid,
    input  logic [PORTS-1:0][511:0]       m_axi_rdata,
    input  logic [PORTS-1:0][1:0]         m_axi_rresp,
    input  logic [PORTS-1:0]              m_axi_rlast,
    output logic [PORTS-1:0]              m_axi_awvalid,
    input  logic [PORTS-1:0]              m_axi_awready,
    output logic [PORTS-1:0][ID_BITS-1:0] m_axi_awid,
    output logic [PORTS-1:0][63:0]        m_axi_awaddr,
    output logic [PORTS-1:0][7:0]         m_axi_awlen,
    output logic [PORTS-1:0][2:0]         m_axi_awsize,
    output logic [PORTS-1:0][1:0]         m_axi_awburst,
    output logic [PORTS-1:0]              m_axi_wvalid,
    input  logic [PORTS-1:0]              m_axi_wready,
    output logic [PORTS-1:0][511:0]       m_axi_wdata,
    output logic [PORTS-1:0][63:0]        m_axi_wstrb,
    output logic [PORTS-1:0]              m_axi_wlast,
    input  logic [PORTS-1:0]              m_axi_bvalid,
    output logic [PORTS-1:0]              m_axi_bready,
    input  logic [PORTS-1:0][ID_BITS-1:0] m_axi_bid,
    input  logic [PORTS-1:0][1:0]         m_axi_bresp,
    // frames that leave
    output logic [LINKS-1:0][255:0]       tx_tdata,
    output logic [LINKS-1:0][31:0]        tx_tkeep,
    output logic [LINKS-1:0]              tx_tlast,
    output logic [LINKS-1:0]              tx_tvalid,
    input  logic [LINKS-1:0]              tx_tready,
    // frames that come
    input  logic [LINKS-1:0][255:0]       rx_tdata,
    input  logic [LINKS-1:0][31:0]        rx_tkeep,
    input  logic [LINKS-1:0]              rx_tlast,
    input  logic [LINKS-1:0]              rx_tvalid,
    output logic [LINKS-1:0]              rx_tready,
    // the control program
    output logic [LOCAL_BITS-3:0]         rom_word,
    input  logic [31:0]                   rom_data
);
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

  // --- registers -------------------------------------------------------------------------------------
  logic host_valid, host_write, done, interrupts;
  logic [10:0] host_word;
  logic [31:0] host_stored, host_data, interrupt_data;
  host_port host (
      .host_clk(ap_clk),
      .host_rst(rst),
      .awvalid(awvalid),
      .awready(awready),
      .awaddr(port_awaddr),
      .wvalid(wvalid),
      .wready(wready),
      .wdata(s_axi_control_wdata),
      .wstrb(s_axi_control_wstrb),
      .bvalid(s_axi_control_bvalid),
      .bready(s_axi_control_bready),
      .bresp(s_axi_control_bresp),
      .arvalid(arvalid),
      .arready(arready),
      .araddr(port_araddr),
      .rvalid(s_axi_control_rvalid),
      .rready(s_axi_control_rready),
      .rdata(rdata),
      .rresp(s_axi_control_rresp),
      .clk(ap_clk),
      .rst(rst),
      .host_valid(host_valid),
      .host_write(host_write),
      .host_word(host_word),
      .host_stored(host_stored),
      .host_data(interrupts ? interrupt_data : host_data)
  );
  interrupt_registers interrupt_of (
      .clk(ap_clk),
      .rst(rst || restart),
      .host_valid(host_valid),
      .host_write(host_write),
      .host_word(host_word),
      .host_stored(host_stored),
      .done(done),
      .mine(interrupts),
      .data(interrupt_data),
      // verilator lint_off SYMRSVDWORD
      .interrupt(interrupt_out)
      // verilator lint_on SYMRSVDWORD
  );

  // --- memory ----------------------------------------------------------------------------------------
  logic memory_valid;
  logic memory_ready;
  logic [47:0] memory_address;
  logic [3:0] memory_write;
  logic [31:0] memory_stored;
  logic memory_answers;
  logic [511:0] memory_line;
  logic memory_error;
  logic ar_valid;
  logic ar_ready;
  logic [41:0] ar_line;
  logic [3:0] ar_beats;
  logic r_valid;
  logic r_ready;
  logic [511:0] r_data;
  logic r_last;
  logic r_error;
  logic lines_read_valid;
  logic lines_read_ready;
  logic lines_read_onchip;
  logic [41:0] lines_read_line;
  logic [19:0] lines_read_tag;
  logic lines_line_valid;
  logic [19:0] lines_line_tag;
  logic [511:0] lines_line_data;
  logic lines_line_error;
  logic lines_write_valid;
  logic lines_write_ready;
  logic lines_write_onchip;
  logic [41:0] lines_write_line;
  logic [63:0] lines_write_bytes;
  logic [511:0] lines_write_data;
  logic [4:0] lines_write_id;
  logic lines_written;
  logic [4:0] lines_written_id;
  logic lines_written_error;
  logic [BANKS-1:0] channel_read_valid, channel_read_ready, channel_line_valid, channel_line_error;
  logic [41:0] channel_read_line[BANKS];
  logic [511:0] channel_line_data[BANKS];
  logic [ATTENTIONS-1:0] kv_read_valid, kv_read_ready, kv_line_valid, kv_line_ready, kv_line_error;
  logic [41:0] kv_read_line[ATTENTIONS];
  short_tag_t kv_read_tag[ATTENTIONS], kv_line_tag[ATTENTIONS];
  logic [511:0] kv_line_data[ATTENTIONS];
  board_memory #(
      .PORTS(PORTS),
      .CONTROL_PORT(CONTROL_PORT),
      .FIRST_LINES(FIRST_LINES),
      .SPAN_BITS(SPAN_BITS),
      .ONCHIP_BYTES(ONCHIP_BYTES),
      .ID_BITS(ID_BITS - 1),
      .CHANNELS(CHANNELS),
      .ATTENTIONS(ATTENTIONS),
      .KV_TAG_BITS($bits(short_tag_t))
  ) memory (
      .clk(ap_clk),
      .rst(rst),
      .read_valid(lines_read_valid),
      .read_ready(lines_read_ready),
      .read_onchip(lines_read_onchip),
      .read_line(lines_read_line),
      .read_tag(lines_read_tag),
      .line_valid(lines_line_valid),
      .line_tag(lines_line_tag),
      .line_data(lines_line_data),
      .line_error(lines_line_error),
      .write_valid(lines_write_valid),
      .write_ready(lines_write_ready),
      .write_onchip(lines_write_onchip),
      .write_line(lines_write_line),
      .write_bytes(lines_write_bytes),
      .write_data(lines_write_data),
      .write_id(lines_write_id),
      .written(lines_written),
      .written_id(lines_written_id),
      .written_error(lines_written_error),
      .channel_read_valid(channel_read_valid),
      .channel_read_ready(channel_read_ready),
      .channel_read_line(channel_read_line),
      .channel_line_valid(channel_line_valid),
      .channel_line_error(channel_line_error),
      .channel_line_data(channel_line_data),
      .kv_read_valid(kv_read_valid),
      .kv_read_ready(kv_read_ready),
      .kv_read_line(kv_read_line),
      .kv_read_tag(kv_read_tag),
      .kv_line_valid(kv_line_valid),
      .kv_line_ready(kv_line_ready),
      .kv_line_tag(kv_line_tag),
      .kv_line_error(kv_line_error),
      .kv_line_data(kv_line_data),
      .memory_valid(memory_valid),
      .memory_ready(memory_ready),
      .memory_address(memory_address),
      .memory_write(memory_write),
      .memory_stored(memory_stored),
      .memory_answers(memory_answers),
      .memory_line(memory_line),
      .memory_error(memory_error),
      .ar_valid(ar_valid),
      .ar_ready(ar_ready),
      .ar_line(ar_line),
      .ar_beats(ar_beats),
      .r_valid(r_valid),
      .r_ready(r_ready),
      .r_data(r_data),
      .r_last(r_last),
      .r_error(r_error),
      .m_axi_arvalid(m_axi_arvalid),
      .m_axi_arready(m_axi_arready),
      .m_axi_arid(m_axi_arid),
      .m_axi_araddr(m_axi_araddr),
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
      .m_axi_awaddr(m_axi_awaddr),
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
      .m_axi_bresp(m_axi_bresp)
  );

  // --- links -----------------------------------------------------------------------------------------
  logic [LINKS-1:0] link_up;
  logic [LINKS-1:0] rx_valid;
  logic [LINKS-1:0] rx_ready;
  logic [LINKS-1:0][511:0] rx_data;
  logic [LINKS-1:0][63:0] rx_keep;
  logic [LINKS-1:0] rx_last;
  logic [LINKS-1:0] tx_valid;
  logic [LINKS-1:0] tx_ready;
  logic [LINKS-1:0][511:0] tx_data;
  logic [LINKS-1:0][63:0] tx_keep;
  logic [LINKS-1:0] tx_last;
  for (genvar i = 0; i < LINKS; i++) begin : links
    link_streams streams (
        .clk(ap_clk),
        .rst(rst),
        .tx_valid(tx_valid[i]),
        .tx_ready(tx_ready[i]),
        .tx_data(tx_data[i]),
        .tx_keep(tx_keep[i]),
        .tx_last(tx_last[i]),
        .rx_valid(rx_valid[i]),
        .rx_ready(rx_ready[i]),
        .rx_data(rx_data[i]),
        .rx_keep(rx_keep[i]),
        .rx_last(rx_last[i]),
        .link_up(link_up[i]),
        .link_clk(ap_clk),
        .link_rst(rst),
        .channel_up(1'b1),
        .out_valid(tx_tvalid[i]),
        .out_ready(tx_tready[i]),
        .out_data(tx_tdata[i]),
        .out_keep(tx_tkeep[i]),
        .out_last(tx_tlast[i]),
        .in_valid(rx_tvalid[i]),
        .in_ready(rx_tready[i]),
        .in_data(rx_tdata[i]),
        .in_keep(rx_tkeep[i]),
        .in_last(rx_tlast[i])
    );
  end

  // verilator lint_off PINCONNECTEMPTY
  card #(
      .ONCHIP_BYTES(ONCHIP_BYTES),
      .CYCLES_PER_MS(CYCLES_PER_MS),
      .LANES(LANES),
      .DSP48(DSP48),
      .DSP58(DSP58),
      .CHANNELS(CHANNELS),
      .ATTENTIONS(ATTENTIONS),
      .FLOAT_ATTENTIONS(FLOAT_ATTENTIONS)
  ) its_card (
      .clk(ap_clk),
      .rst(rst),
      .restart(restart),
      .identity({crc, SERIAL, BOARD_KIND}),
      .load_valid(load_valid),
      .load_ready(load_ready),
      .load_write(load_write),
      .load_word(load_word),
      .load_stored(load_stored),
      .load_data(),
      .host_valid(host_valid),
      .host_write(host_write),
      .host_word(host_word),
      .host_stored(host_stored),
      .host_data(host_data),
      .done(done),
      .memory_valid(memory_valid),
      .memory_ready(memory_ready),
      .memory_address(memory_address),
      .memory_write(memory_write),
      .memory_stored(memory_stored),
      .memory_answers(memory_answers),
      .memory_line(memory_line),
      .memory_error(memory_error),
      .ar_valid(ar_valid),
      .ar_ready(ar_ready),
      .ar_line(ar_line),
      .ar_beats(ar_beats),
      .r_valid(r_valid),
      .r_ready(r_ready),
      .r_data(r_data),
      .r_last(r_last),
      .r_error(r_error),
      .lines_read_valid(lines_read_valid),
      .lines_read_ready(lines_read_ready),
      .lines_read_onchip(lines_read_onchip),
      .lines_read_line(lines_read_line),
      .lines_read_tag(lines_read_tag),
      .lines_line_valid(lines_line_valid),
      .lines_line_tag(lines_line_tag),
      .lines_line_data(lines_line_data),
      .lines_line_error(lines_line_error),
      .lines_write_valid(lines_write_valid),
      .lines_write_ready(lines_write_ready),
      .lines_write_onchip(lines_write_onchip),
      .lines_write_line(lines_write_line),
      .lines_write_bytes(lines_write_bytes),
      .lines_write_data(lines_write_data),
      .lines_write_id(lines_write_id),
      .lines_written(lines_written),
      .lines_written_id(lines_written_id),
      .lines_written_error(lines_written_error),
      .channel_read_valid(channel_read_valid),
      .channel_read_ready(channel_read_ready),
      .channel_read_line(channel_read_line),
      .channel_line_valid(channel_line_valid),
      .channel_line_error(channel_line_error),
      .channel_line_data(channel_line_data),
      .kv_read_valid(kv_read_valid),
      .kv_read_ready(kv_read_ready),
      .kv_read_line(kv_read_line),
      .kv_read_tag(kv_read_tag),
      .kv_line_valid(kv_line_valid),
      .kv_line_ready(kv_line_ready),
      .kv_line_tag(kv_line_tag),
      .kv_line_error(kv_line_error),
      .kv_line_data(kv_line_data),
      .link_up(link_up),
      .rx_valid(rx_valid),
      .rx_ready(rx_ready),
      .rx_data(rx_data),
      .rx_keep(rx_keep),
      .rx_last(rx_last),
      .tx_valid(tx_valid),
      .tx_ready(tx_ready),
      .tx_data(tx_data),
      .tx_keep(tx_keep),
      .tx_last(tx_last),
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
      .router_wrote(),
      .router_word(),
      .router_stored(),
      .run_index(),
      .run_rows()
  );
  // verilator lint_on PINCONNECTEMPTY
endmodule
