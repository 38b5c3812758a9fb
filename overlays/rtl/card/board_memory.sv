// SPDX-License-Identifier: Apache-2.0
// All memory of a board for a card: the on-chip buffer, and an AXI4 port a bank. At the port of the control bank the
// control's own reads and writes go first, and units wait until what the control has written is there: the core starts a
// unit without waiting for its own writes. With CHANNELS, channel i, the attention units and all units' port take turns at
// port i. All of it is in one clock.
module board_memory #(
    parameter int                  PORTS        = 2,
    parameter int                  CONTROL_PORT = 0,
    parameter logic [42*PORTS-1:0] FIRST_LINES  = '0,        // of line_ports
    parameter logic [6*PORTS-1:0]  SPAN_BITS    = '0,
    parameter int                  ONCHIP_BYTES = 16 << 20,
    parameter int                  TAG_BITS     = 20,
    parameter int                  ID_BITS      = 5,         // of a write; AXI's have one more
    parameter int                  CHANNELS     = 0,         // below the control's port
    parameter int                  BANKS        = CHANNELS > 0 ? CHANNELS : 1,
    parameter int                  ATTENTIONS   = 1,         // more read lines of channels' banks, with CHANNELS
    parameter int                  PER          = CHANNELS >= 4 ? 4 : 2,  // of read_cross, by which their lines come
    parameter int                  KV_TAG_BITS  = 13
) (
    input  logic                           clk,
    input  logic                           rst,
    // units, as the card has them
    input  logic                           read_valid,
    output logic                           read_ready,
    input  logic                           read_onchip,
    input  logic [41:0]                    read_line,
    input  logic [TAG_BITS-1:0]            read_tag,
    output logic                           line_valid,
    output logic [TAG_BITS-1:0]            line_tag,
    output logic [511:0]                   line_data,
    output logic                           line_error,
    input  logic                           write_valid,
    output logic                           write_ready,
    input  logic                           write_onchip,
    input  logic [41:0]                    write_line,
    input  logic [63:0]                    write_bytes,
    input  logic [511:0]                   write_data,
    input  logic [ID_BITS-1:0]             write_id,
    output logic                           written,
    output logic [ID_BITS-1:0]             written_id,
    output logic                           written_error,
    // channels and attention units, as the card has them
    /* verilator lint_off UNUSEDSIGNAL */  // without CHANNELS
    input  logic [BANKS-1:0]               channel_read_valid,
    output logic [BANKS-1:0]               channel_read_ready,
    input  logic [41:0]                    channel_read_line[BANKS],
    output logic [BANKS-1:0]               channel_line_valid,
    output logic [BANKS-1:0]               channel_line_error,
    output logic [511:0]                   channel_line_data[BANKS],
    input  logic [ATTENTIONS-1:0]          kv_read_valid,
    output logic [ATTENTIONS-1:0]          kv_read_ready,
    input  logic [41:0]                    kv_read_line[ATTENTIONS],
    input  logic [KV_TAG_BITS-1:0]         kv_read_tag[ATTENTIONS],
    output logic [ATTENTIONS-1:0]          kv_line_valid,
    input  logic [ATTENTIONS-1:0]          kv_line_ready,
    output logic [KV_TAG_BITS-1:0]         kv_line_tag[ATTENTIONS],
    output logic [ATTENTIONS-1:0]          kv_line_error,
    output logic [511:0]                   kv_line_data[ATTENTIONS],
    /* verilator lint_on UNUSEDSIGNAL */
    // the control, as memory_port has it
    input  logic                           memory_valid,
    output logic                           memory_ready,
    input  logic [47:0]                    memory_address,
    input  logic [3:0]                     memory_write,
    input  logic [31:0]                    memory_stored,
    output logic                           memory_answers,
    output logic [511:0]                   memory_line,
    output logic                           memory_error,
    input  logic                           ar_valid,
    output logic                           ar_ready,
    input  logic [41:0]                    ar_line,
    input  logic [3:0]                     ar_beats,
    output logic                           r_valid,
    input  logic                           r_ready,
    output logic [511:0]                   r_data,
    output logic                           r_last,
    output logic                           r_error,
    // AXI4
    output logic [PORTS-1:0]               m_axi_arvalid,
    input  logic [PORTS-1:0]               m_axi_arready,
    output logic [PORTS-1:0][ID_BITS:0]    m_axi_arid,
    output logic [PORTS-1:0][63:0]         m_axi_araddr,
    output logic [PORTS-1:0][7:0]          m_axi_arlen,
    output logic [PORTS-1:0][2:0]          m_axi_arsize,
    output logic [PORTS-1:0][1:0]          m_axi_arburst,
    input  logic [PORTS-1:0]               m_axi_rvalid,
    output logic [PORTS-1:0]               m_axi_rready,
    input  logic [PORTS-1:0][ID_BITS:0]    m_axi_rid,
    input  logic [PORTS-1:0][511:0]        m_axi_rdata,
    input  logic [PORTS-1:0][1:0]          m_axi_rresp,
    input  logic [PORTS-1:0]               m_axi_rlast,
    output logic [PORTS-1:0]               m_axi_awvalid,
    input  logic [PORTS-1:0]               m_axi_awready,
    output logic [PORTS-1:0][ID_BITS:0]    m_axi_awid,
    output logic [PORTS-1:0][63:0]         m_axi_awaddr,
    output logic [PORTS-1:0][7:0]          m_axi_awlen,
    output logic [PORTS-1:0][2:0]          m_axi_awsize,
    output logic [PORTS-1:0][1:0]          m_axi_awburst,
    output logic [PORTS-1:0]               m_axi_wvalid,
    input  logic [PORTS-1:0]               m_axi_wready,
    output logic [PORTS-1:0][511:0]        m_axi_wdata,
    output logic [PORTS-1:0][63:0]         m_axi_wstrb,
    output logic [PORTS-1:0]               m_axi_wlast,
    input  logic [PORTS-1:0]               m_axi_bvalid,
    output logic [PORTS-1:0]               m_axi_bready,
    input  logic [PORTS-1:0][ID_BITS:0]    m_axi_bid,
    input  logic [PORTS-1:0][1:0]          m_axi_bresp
);
  localparam int CP = CONTROL_PORT;

  // --- the on-chip buffer ----------------------------------------------------------------------------
  logic onchip_read, onchip_read_failed, onchip_line_valid, onchip_line_error, onchip_write, onchip_write_failed,
      onchip_written, onchip_written_error;
  logic [41:0] onchip_read_line, out_line;
  logic [TAG_BITS-1:0] onchip_read_tag, onchip_line_tag;
  logic [511:0] onchip_line_data, out_data;
  logic [63:0] out_bytes;
  logic [ID_BITS-1:0] onchip_written_id, out_id;
  onchip_memory #(
      .BYTES(ONCHIP_BYTES),
      .TAG_BITS(TAG_BITS),
      .ID_BITS(ID_BITS)
  ) onchip (
      .clk(clk),
      .rst(rst),
      .read_valid(onchip_read),
      .read_failed(onchip_read_failed),
      .read_line(onchip_read_line),
      .read_tag(onchip_read_tag),
      .line_valid(onchip_line_valid),
      .line_tag(onchip_line_tag),
      .line_data(onchip_line_data),
      .line_error(onchip_line_error),
      .write_valid(onchip_write),
      .write_failed(onchip_write_failed),
      .write_line(out_line),
      .write_bytes(out_bytes),
      .write_data(out_data),
      .write_id(out_id),
      .written(onchip_written),
      .written_id(onchip_written_id),
      .written_error(onchip_written_error)
  );

  // --- units -----------------------------------------------------------------------------------------
  logic [PORTS-1:0] arvalid, arready, rvalid, rready, awvalid, awready, wvalid, wready, bvalid, bready;
  logic [PORTS-1:0][41:0] arline;
  logic [PORTS-1:0][7:0] arlen;
  logic [PORTS-1:0][ID_BITS-1:0] bid;
  line_ports #(
      .PORTS(PORTS),
      .TAG_BITS(TAG_BITS),
      .ID_BITS(ID_BITS),
      .FIRST_LINES(FIRST_LINES),
      .SPAN_BITS(SPAN_BITS)
  ) units (
      .clk(clk),
      .rst(rst),
      .read_valid(read_valid),
      .read_ready(read_ready),
      .read_onchip(read_onchip),
      .read_line(read_line),
      .read_tag(read_tag),
      .line_valid(line_valid),
      .line_tag(line_tag),
      .line_data(line_data),
      .line_error(line_error),
      .write_valid(write_valid),
      .write_ready(write_ready),
      .write_onchip(write_onchip),
      .write_line(write_line),
      .write_bytes(write_bytes),
      .write_data(write_data),
      .write_id(write_id),
      .written(written),
      .written_id(written_id),
      .written_error(written_error),
      .onchip_read(onchip_read),
      .onchip_read_failed(onchip_read_failed),
      .onchip_read_line(onchip_read_line),
      .onchip_read_tag(onchip_read_tag),
      .onchip_line_valid(onchip_line_valid),
      .onchip_line_tag(onchip_line_tag),
      .onchip_line_data(onchip_line_data),
      .onchip_line_error(onchip_line_error),
      .onchip_write(onchip_write),
      .onchip_write_failed(onchip_write_failed),
      .onchip_written(onchip_written),
      .onchip_written_id(onchip_written_id),
      .onchip_written_error(onchip_written_error),
      .arvalid(arvalid),
      .arready(arready),
      .arline(arline),
      .arlen(arlen),
      .rvalid(rvalid),
      .rready(rready),
      .rdata(m_axi_rdata),
      .rresp(m_axi_rresp),
      .awvalid(awvalid),
      .awready(awready),
      .wvalid(wvalid),
      .wready(wready),
      .out_line(out_line),
      .out_bytes(out_bytes),
      .out_data(out_data),
      .out_id(out_id),
      .bvalid(bvalid),
      .bready(bready),
      .bid(bid),
      .bresp(m_axi_bresp)
  );

  // --- the control -----------------------------------------------------------------------------------
  logic arvalid_c, arready_c, arid_c, rvalid_c, rready_c, awvalid_c, awready_c, wvalid_c, wready_c, bvalid_c, bready_c;
  logic [47:0] araddr_c, awaddr_c;
  logic [7:0] arlen_c;
  logic [511:0] wdata_c;
  logic [63:0] wstrb_c;
  memory_port control (
      .clk(clk),
      .rst(rst),
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
      .axi_clk(clk),
      .axi_rst(rst),
      .arvalid(arvalid_c),
      .arready(arready_c),
      .arid(arid_c),
      .araddr(araddr_c),
      .arlen(arlen_c),
      .rvalid(rvalid_c),
      .rready(rready_c),
      .rid(m_axi_rid[CP][0]),
      .rdata(m_axi_rdata[CP]),
      .rresp(m_axi_rresp[CP]),
      .rlast(m_axi_rlast[CP]),
      .awvalid(awvalid_c),
      .awready(awready_c),
      .awaddr(awaddr_c),
      .wvalid(wvalid_c),
      .wready(wready_c),
      .wdata(wdata_c),
      .wstrb(wstrb_c),
      .bvalid(bvalid_c),
      .bready(bready_c),
      .bresp(m_axi_bresp[CP])
  );

  // --- writes of the control that have no response yet -----------------------------------------------
  localparam int OWED_BITS = 5;  // memory_port has less
  logic [OWED_BITS-1:0] owed;
  logic settled, shared_arready, shared_awready, shared_wready;
  assign settled = owed == '0;
  always_ff @(posedge clk) begin
    owed <= owed + OWED_BITS'(memory_valid && memory_ready && memory_write != 4'd0) -
            OWED_BITS'(bvalid_c && bready_c);
    if (rst) owed <= '0;
  end
  assign arready[CP] = shared_arready && settled;
  assign awready[CP] = shared_awready && settled;
  assign wready[CP] = shared_wready && settled;

  // --- attention units -------------------------------------------------------------------------------
  /* verilator lint_off UNUSEDSIGNAL */  // without channels
  logic [BANKS-1:0] page_valid, page_ready, page_line_valid, page_line_ready, page_line_error;
  logic [41:0] page_line[BANKS];
  logic [511:0] page_line_data[BANKS];
  /* verilator lint_on UNUSEDSIGNAL */
  if (ATTENTIONS > 1) begin : of_pages
    read_cross #(
        .READERS(ATTENTIONS),
        .PORTS(BANKS),
        .PER(PER),
        .TAG_BITS(KV_TAG_BITS),
        .FIRST_LINES(FIRST_LINES[42*BANKS-1:0]),
        .SPAN_BITS(SPAN_BITS[6*BANKS-1:0])
    ) pages (
        .clk(clk),
        .rst(rst),
        .read_valid(kv_read_valid),
        .read_ready(kv_read_ready),
        .read_line(kv_read_line),
        .read_tag(kv_read_tag),
        .line_valid(kv_line_valid),
        .line_ready(kv_line_ready),
        .line_tag(kv_line_tag),
        .line_error(kv_line_error),
        .line_data(kv_line_data),
        .port_valid(page_valid),
        .port_ready(page_ready),
        .port_line(page_line),
        .port_line_valid(page_line_valid),
        .port_line_ready(page_line_ready),
        .port_line_error(page_line_error),
        .port_line_data(page_line_data)
    );
  end else begin : no_pages
    assign {kv_read_ready, kv_line_valid, kv_line_error} = '0;
    assign {kv_line_tag[0], kv_line_data[0]} = '0;
    assign {page_valid, page_line_ready} = '0;
    for (genvar b = 0; b < BANKS; b++) begin : none
      assign page_line[b] = '0;
    end
  end

  // --- ports -----------------------------------------------------------------------------------------
  logic [41:0] shared_arline, shared_awline;
  for (genvar p = 0; p < PORTS; p++) begin : ports
    assign bid[p] = m_axi_bid[p][ID_BITS-1:0];
    assign {m_axi_arsize[p], m_axi_awsize[p]} = {2{3'd6}};  // 64 bytes
    assign {m_axi_arburst[p], m_axi_awburst[p]} = {2{2'd1}};  // INCR
    assign {m_axi_awlen[p], m_axi_wlast[p]} = {8'd0, 1'b1};
    if (p < CHANNELS) begin : with_channel
      logic [41:0] shared_line;
      read_share #(
          .ID_BITS(ID_BITS)
      ) readers (
          .clk(clk),
          .rst(rst),
          .a_arvalid(arvalid[p]),
          .a_arready(arready[p]),
          .a_arline(arline[p]),
          .a_arlen(arlen[p]),
          .a_rvalid(rvalid[p]),
          .a_rready(rready[p]),
          .b_valid(channel_read_valid[p]),
          .b_ready(channel_read_ready[p]),
          .b_line(channel_read_line[p]),
          .b_line_valid(channel_line_valid[p]),
          .c_valid(page_valid[p]),
          .c_ready(page_ready[p]),
          .c_line(page_line[p]),
          .c_line_valid(page_line_valid[p]),
          .c_line_ready(page_line_ready[p]),
          .arvalid(m_axi_arvalid[p]),
          .arready(m_axi_arready[p]),
          .arid(m_axi_arid[p]),
          .arline(shared_line),
          .arlen(m_axi_arlen[p]),
          .rvalid(m_axi_rvalid[p]),
          .rready(m_axi_rready[p]),
          .of_a(m_axi_rid[p][ID_BITS]),
          .of_c(m_axi_rid[p][0])
      );
      assign page_line_error[p] = m_axi_rresp[p][1];
      assign page_line_data[p] = m_axi_rdata[p];
      assign m_axi_araddr[p] = {16'd0, shared_line, 6'd0};
      assign channel_line_error[p] = m_axi_rresp[p][1];
      assign channel_line_data[p] = m_axi_rdata[p];
    end else if (p != CP) begin : alone
      assign {m_axi_arvalid[p], arready[p]} = {arvalid[p], m_axi_arready[p]};
      assign {m_axi_araddr[p], m_axi_arlen[p]} = {16'd0, arline[p], 6'd0, arlen[p]};
      assign m_axi_arid[p] = {1'b1, ID_BITS'(0)};
      assign {rvalid[p], m_axi_rready[p]} = {m_axi_rvalid[p], rready[p]};
    end
    if (p != CP) begin : writers
      assign {m_axi_awvalid[p], awready[p]} = {awvalid[p], m_axi_awready[p]};
      assign {m_axi_awaddr[p], m_axi_awid[p]} = {16'd0, out_line, 6'd0, 1'b1, out_id};
      assign {m_axi_wvalid[p], wready[p]} = {wvalid[p], m_axi_wready[p]};
      assign {m_axi_wdata[p], m_axi_wstrb[p]} = {out_data, out_bytes};
      assign {bvalid[p], m_axi_bready[p]} = {m_axi_bvalid[p], bready[p]};
    end
  end
  if (CHANNELS > CP) begin : wrong_ports
    $error("CHANNELS: at most CONTROL_PORT, as the control reads by a port of its own");
  end
  if (CHANNELS == 0) begin : no_channels
    assign {channel_read_ready, channel_line_valid, channel_line_error} = '0;
    assign channel_line_data[0] = '0;
    assign {page_ready, page_line_valid, page_line_error} = '0;
    assign page_line_data[0] = '0;
  end
  if (ATTENTIONS > 1 && CHANNELS == 0) begin : no_banks
    $error("ATTENTIONS: more than one needs CHANNELS");
  end
  assign m_axi_araddr[CP] = {16'd0, shared_arline, 6'd0};
  assign m_axi_awaddr[CP] = {16'd0, shared_awline, 6'd0};
  axi_share #(
      .ID_BITS(ID_BITS)
  ) shared (
      .clk(clk),
      .rst(rst),
      .a_arvalid(arvalid_c),
      .a_arready(arready_c),
      .a_arline(araddr_c[47:6]),
      .a_arlen(arlen_c),
      .a_arid(ID_BITS'(arid_c)),
      .a_rvalid(rvalid_c),
      .a_rready(rready_c),
      .a_awvalid(awvalid_c),
      .a_awready(awready_c),
      .a_wvalid(wvalid_c),
      .a_wready(wready_c),
      .a_line(awaddr_c[47:6]),
      .a_bytes(wstrb_c),
      .a_data(wdata_c),
      .a_id(ID_BITS'(1)),
      .a_bvalid(bvalid_c),
      .a_bready(bready_c),
      .b_arvalid(arvalid[CP] && settled),
      .b_arready(shared_arready),
      .b_arline(arline[CP]),
      .b_arlen(arlen[CP]),
      .b_rvalid(rvalid[CP]),
      .b_rready(rready[CP]),
      .b_awvalid(awvalid[CP] && settled),
      .b_awready(shared_awready),
      .b_wvalid(wvalid[CP] && settled),
      .b_wready(shared_wready),
      .b_line(out_line),
      .b_bytes(out_bytes),
      .b_data(out_data),
      .b_id(out_id),
      .b_bvalid(bvalid[CP]),
      .b_bready(bready[CP]),
      .arvalid(m_axi_arvalid[CP]),
      .arready(m_axi_arready[CP]),
      .arid(m_axi_arid[CP]),
      .arline(shared_arline),
      .arlen(m_axi_arlen[CP]),
      .rvalid(m_axi_rvalid[CP]),
      .rready(m_axi_rready[CP]),
      .rid(m_axi_rid[CP]),
      .awvalid(m_axi_awvalid[CP]),
      .awready(m_axi_awready[CP]),
      .awid(m_axi_awid[CP]),
      .awline(shared_awline),
      .wvalid(m_axi_wvalid[CP]),
      .wready(m_axi_wready[CP]),
      .wstrb(m_axi_wstrb[CP]),
      .wdata(m_axi_wdata[CP]),
      .bvalid(m_axi_bvalid[CP]),
      .bready(m_axi_bready[CP]),
      .bid(m_axi_bid[CP])
  );
endmodule
