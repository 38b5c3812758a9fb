// SPDX-License-Identifier: Apache-2.0
// Two masters at one AXI4 port: `a` has IDs that begin with 0, `b` with 1. A write is of one line; its address and data
// are taken together. `a` goes first.
module axi_share #(
    parameter int ID_BITS = 5  // of each
) (
    input  logic               clk,
    input  logic               rst,
    input  logic               a_arvalid,
    output logic               a_arready,
    input  logic [41:0]        a_arline,
    input  logic [7:0]         a_arlen,
    input  logic [ID_BITS-1:0] a_arid,
    output logic               a_rvalid,
    input  logic               a_rready,
    input  logic               a_awvalid,
    output logic               a_awready,
    input  logic               a_wvalid,
    output logic               a_wready,
    input  logic [41:0]        a_line,
    input  logic [63:0]        a_bytes,
    input  logic [511:0]       a_data,
    input  logic [ID_BITS-1:0] a_id,
    output logic               a_bvalid,
    input  logic               a_bready,
    input  logic               b_arvalid,
    output logic               b_arready,
    input  logic [41:0]        b_arline,
    input  logic [7:0]         b_arlen,
    output logic               b_rvalid,
    input  logic               b_rready,
    input  logic               b_awvalid,
    output logic               b_awready,
    input  logic               b_wvalid,
    output logic               b_wready,
    input  logic [41:0]        b_line,
    input  logic [63:0]        b_bytes,
    input  logic [511:0]       b_data,
    input  logic [ID_BITS-1:0] b_id,
    output logic               b_bvalid,
    input  logic               b_bready,
    output logic               arvalid,
    input  logic               arready,
    output logic [ID_BITS:0]   arid,
    output logic [41:0]        arline,
    output logic [7:0]         arlen,
    input  logic               rvalid,
    output logic               rready,
    input  logic [ID_BITS:0]   rid,
    output logic               awvalid,
    input  logic               awready,
    output logic [ID_BITS:0]   awid,
    output logic [41:0]        awline,
    output logic               wvalid,
    input  logic               wready,
    output logic [63:0]        wstrb,
    output logic [511:0]       wdata,
    input  logic               bvalid,
    output logic               bready,
    input  logic [ID_BITS:0]   bid
);
  logic read_free, write_free, a_writes, b_writes;
  assign read_free = !arvalid || arready;
  assign a_arready = read_free;
  assign b_arready = read_free && !a_arvalid;
  assign write_free = (!awvalid || awready) && (!wvalid || wready);
  assign a_writes = a_awvalid && a_wvalid && write_free;
  assign b_writes = b_awvalid && b_wvalid && write_free && !a_writes;
  assign {a_awready, a_wready} = {2{a_writes}};
  assign {b_awready, b_wready} = {2{b_writes}};
  always_ff @(posedge clk) begin
    if (arready) arvalid <= 1'b0;
    if (read_free && (a_arvalid || b_arvalid)) begin
      arvalid <= 1'b1;
      arid <= a_arvalid ? {1'b0, a_arid} : {1'b1, ID_BITS'(0)};
      arline <= a_arvalid ? a_arline : b_arline;
      arlen <= a_arvalid ? a_arlen : b_arlen;
    end
    if (awready) awvalid <= 1'b0;
    if (wready) wvalid <= 1'b0;
    if (a_writes || b_writes) begin
      {awvalid, wvalid} <= '1;
      awid <= a_writes ? {1'b0, a_id} : {1'b1, b_id};
      awline <= a_writes ? a_line : b_line;
      wstrb <= a_writes ? a_bytes : b_bytes;
      wdata <= a_writes ? a_data : b_data;
    end
    if (rst) {arvalid, awvalid, wvalid} <= '0;
  end
  assign a_rvalid = rvalid && !rid[ID_BITS];
  assign b_rvalid = rvalid && rid[ID_BITS];
  assign rready = rid[ID_BITS] ? b_rready : a_rready;
  assign a_bvalid = bvalid && !bid[ID_BITS];
  assign b_bvalid = bvalid && bid[ID_BITS];
  assign bready = bid[ID_BITS] ? b_bready : a_bready;
endmodule
