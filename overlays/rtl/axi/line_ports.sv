// SPDX-License-Identifier: Apache-2.0
// Lines of board memory by several AXI4 ports, one a bank: FIRST_LINES and SPAN_BITS say which lines a port leads to, and
// those of none are answered as failed. Reads are bursts with ID {1, 0}; a write is of one line and has its number as
// ID, {1, id}, so memory answers writes in any order. The on-chip buffer answers in the same way and first. IDs that
// begin with 0 are others'.
module line_ports #(
    parameter int                  PORTS       = 2,
    parameter int                  TAG_BITS    = 20,
    parameter int                  ID_BITS     = 5,
    parameter logic [42*PORTS-1:0] FIRST_LINES = '0,
    parameter logic [6*PORTS-1:0]  SPAN_BITS   = '0   // log2 of the lines
) (
    input  logic                           clk,
    input  logic                           rst,
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
    // the on-chip buffer: takes a read and a write a cycle; `failed` is not for it, and answered as an error
    output logic                           onchip_read,
    output logic                           onchip_read_failed,
    output logic [41:0]                    onchip_read_line,
    output logic [TAG_BITS-1:0]            onchip_read_tag,
    input  logic                           onchip_line_valid,
    input  logic [TAG_BITS-1:0]            onchip_line_tag,
    input  logic [511:0]                   onchip_line_data,
    input  logic                           onchip_line_error,
    output logic                           onchip_write,
    output logic                           onchip_write_failed,
    input  logic                           onchip_written,
    input  logic [ID_BITS-1:0]             onchip_written_id,
    input  logic                           onchip_written_error,
    // AXI4: lines are addresses / 64
    output logic [PORTS-1:0]               arvalid,
    input  logic [PORTS-1:0]               arready,
    output logic [PORTS-1:0][41:0]         arline,
    output logic [PORTS-1:0][7:0]          arlen,
    input  logic [PORTS-1:0]               rvalid,
    output logic [PORTS-1:0]               rready,
    input  logic [PORTS-1:0][511:0]        rdata,
    input  logic [PORTS-1:0][1:0]          rresp,
    output logic [PORTS-1:0]               awvalid,
    input  logic [PORTS-1:0]               awready,
    output logic [PORTS-1:0]               wvalid,
    input  logic [PORTS-1:0]               wready,
    output logic [41:0]                    out_line,   // of all ports: one write is on offer
    output logic [63:0]                    out_bytes,
    output logic [511:0]                   out_data,
    output logic [ID_BITS-1:0]             out_id,
    input  logic [PORTS-1:0]               bvalid,
    output logic [PORTS-1:0]               bready,
    input  logic [PORTS-1:0][ID_BITS-1:0]  bid,
    input  logic [PORTS-1:0][1:0]          bresp
);
  localparam int PORT_BITS = $clog2(PORTS);
  typedef logic [PORTS-1:0] ports_t;

  // Whether a port leads to the line; none does to the on-chip buffer's.
  ports_t read_leads, write_leads;
  for (genvar p = 0; p < PORTS; p++) begin : banks
    localparam int SPAN = int'(SPAN_BITS[6*p+:6]);
    localparam logic [41:0] FIRST = FIRST_LINES[42*p+:42];
    assign read_leads[p] = !read_onchip && read_line[41:SPAN] == FIRST[41:SPAN];
    assign write_leads[p] = !write_onchip && write_line[41:SPAN] == FIRST[41:SPAN];
  end

  // --- reads -----------------------------------------------------------------------------------------
  logic reads, read_here, read_moves;
  ports_t read_at, burst_ready, line_taken;
  logic [41:0] its_line;
  logic [TAG_BITS-1:0] its_tag;
  logic [PORTS-1:0][TAG_BITS-1:0] tags;
  assign read_moves = reads && (read_at == '0 || (read_at & burst_ready) != '0);
  assign read_ready = !reads || read_moves;
  assign onchip_read = reads && read_at == '0;
  assign onchip_read_failed = !read_here;
  assign onchip_read_line = its_line;
  assign onchip_read_tag = its_tag;
  always_ff @(posedge clk) begin
    if (read_moves) reads <= 1'b0;
    if (read_valid && read_ready) begin
      reads <= 1'b1;
      read_here <= read_onchip;
      read_at <= read_leads;
      its_line <= read_line;
      its_tag <= read_tag;
    end
    if (rst) reads <= 1'b0;
  end
  for (genvar p = 0; p < PORTS; p++) begin : ports
    read_bursts #(
        .TAG_BITS(TAG_BITS)
    ) bursts (
        .clk(clk),
        .rst(rst),
        .in_valid(reads && read_at[p]),
        .in_ready(burst_ready[p]),
        .in_line(its_line),
        .in_tag(its_tag),
        .arvalid(arvalid[p]),
        .arready(arready[p]),
        .arline(arline[p]),
        .arlen(arlen[p]),
        .taken(line_taken[p]),
        .tag(tags[p])
    );
  end
  logic has_line;
  logic [PORT_BITS-1:0] line_port;
  port_choice #(
      .PORTS(PORTS)
  ) lines (
      .clk(clk),
      .rst(rst),
      .hold(onchip_line_valid),
      .valid(rvalid),
      .ready(rready),
      .any(has_line),
      .port(line_port)
  );
  assign line_taken = rvalid & rready;
  always_ff @(posedge clk) begin
    line_valid <= has_line || onchip_line_valid;
    line_tag <= onchip_line_valid ? onchip_line_tag : tags[line_port];
    line_data <= onchip_line_valid ? onchip_line_data : rdata[line_port];
    line_error <= onchip_line_valid ? onchip_line_error : rresp[line_port][1];
    if (rst) line_valid <= 1'b0;
  end

  // --- writes: address and data of one are on offer --------------------------------------------------
  logic write_waits, write_here, address_waits, data_waits, write_moves;
  ports_t write_at;
  assign awvalid = write_at & {PORTS{write_waits && address_waits}};
  assign wvalid = write_at & {PORTS{write_waits && data_waits}};
  assign write_moves = write_waits && (!address_waits || write_at == '0 || (write_at & awready) != '0) &&
                       (!data_waits || write_at == '0 || (write_at & wready) != '0);
  assign write_ready = !write_waits || write_moves;
  assign onchip_write = write_waits && write_at == '0;
  assign onchip_write_failed = !write_here;
  always_ff @(posedge clk) begin
    if ((write_at & awready) != '0) address_waits <= 1'b0;
    if ((write_at & wready) != '0) data_waits <= 1'b0;
    if (write_moves) write_waits <= 1'b0;
    if (write_valid && write_ready) begin
      {write_waits, address_waits, data_waits} <= '1;
      write_here <= write_onchip;
      write_at <= write_leads;
      out_line <= write_line;
      out_bytes <= write_bytes;
      out_data <= write_data;
      out_id <= write_id;
    end
    if (rst) write_waits <= 1'b0;
  end
  logic has_answer;
  logic [PORT_BITS-1:0] answer_port;
  port_choice #(
      .PORTS(PORTS)
  ) answers (
      .clk(clk),
      .rst(rst),
      .hold(onchip_written),
      .valid(bvalid),
      .ready(bready),
      .any(has_answer),
      .port(answer_port)
  );
  always_ff @(posedge clk) begin
    written <= has_answer || onchip_written;
    written_id <= onchip_written ? onchip_written_id : bid[answer_port];
    written_error <= onchip_written ? onchip_written_error : bresp[answer_port][1];
    if (rst) written <= 1'b0;
  end
endmodule
