// SPDX-License-Identifier: Apache-2.0
// Two masters at one AXI4 port: what is on offer stays, of a write both halves are the same master's, and answers go to
// whom the ID names.
module prove_axi_share (
    input logic       clk,
    input logic       rst,
    input logic       a_arvalid, b_arvalid, a_writes, b_writes,
    input logic       a_rready, b_rready, a_bready, b_bready,
    input logic       arready, awready, wready, rvalid, bvalid,
    input logic [1:0] rid, bid,
    input logic       a_id, b_id
);
  logic a_arready, b_arready, a_awready, a_wready, b_awready, b_wready;
  logic a_rvalid, b_rvalid, a_bvalid, b_bvalid, arvalid, awvalid, wvalid, rready, bready;
  logic [1:0] arid, awid;
  logic [41:0] arline, awline;
  logic [7:0] arlen;
  logic [63:0] wstrb;
  logic [511:0] wdata;
  axi_share #(
      .ID_BITS(1)
  ) share (
      .clk(clk), .rst(rst),
      .a_arvalid(a_arvalid), .a_arready(a_arready), .a_arline(42'd1), .a_arlen(8'd0), .a_arid(1'b0),
      .a_rvalid(a_rvalid), .a_rready(a_rready), .a_awvalid(a_writes), .a_awready(a_awready),
      .a_wvalid(a_writes), .a_wready(a_wready), .a_line(42'd1), .a_bytes(64'd1), .a_data(512'd1), .a_id(a_id),
      .a_bvalid(a_bvalid), .a_bready(a_bready),
      .b_arvalid(b_arvalid), .b_arready(b_arready), .b_arline(42'd2), .b_arlen(8'd3),
      .b_rvalid(b_rvalid), .b_rready(b_rready), .b_awvalid(b_writes), .b_awready(b_awready),
      .b_wvalid(b_writes), .b_wready(b_wready), .b_line(42'd2), .b_bytes(64'd2), .b_data(512'd2), .b_id(b_id),
      .b_bvalid(b_bvalid), .b_bready(b_bready),
      .arvalid(arvalid), .arready(arready), .arid(arid), .arline(arline), .arlen(arlen),
      .rvalid(rvalid), .rready(rready), .rid(rid), .awvalid(awvalid), .awready(awready), .awid(awid),
      .awline(awline), .wvalid(wvalid), .wready(wready), .wstrb(wstrb), .wdata(wdata),
      .bvalid(bvalid), .bready(bready), .bid(bid)
  );
  logic ar_stays, aw_stays, w_stays;
  logic [1:0] was_arid, was_awid;
  logic [2:0] owed_addresses, owed_data;  // taken from masters, not yet by memory
  always_ff @(posedge clk) begin
    ar_stays <= arvalid && !arready && !rst;
    aw_stays <= awvalid && !awready && !rst;
    w_stays <= wvalid && !wready && !rst;
    {was_arid, was_awid} <= {arid, awid};
    owed_addresses <= rst ? 3'd0 : owed_addresses + 3'(a_awready || b_awready) - 3'(awvalid && awready);
    owed_data <= rst ? 3'd0 : owed_data + 3'(a_wready || b_wready) - 3'(wvalid && wready);
    if (!rst) begin
      if (ar_stays) assert (arvalid && arid == was_arid);
      if (aw_stays) assert (awvalid && awid == was_awid);
      if (w_stays) assert (wvalid);
      if (arvalid) assert (arline == (arid[1] ? 42'd2 : 42'd1) && arlen == (arid[1] ? 8'd3 : 8'd0));
      if (awvalid) assert (awline == (awid[1] ? 42'd2 : 42'd1));
      if (awvalid && wvalid) assert (wdata == (awid[1] ? 512'd2 : 512'd1) && wstrb == (awid[1] ? 64'd2 : 64'd1));
      assert (owed_addresses == 3'(awvalid) && owed_data == 3'(wvalid));
      assert (!(a_arready && a_arvalid && b_arready && b_arvalid) && !(a_awready && b_awready));
      assert (a_rvalid == (rvalid && !rid[1]) && b_rvalid == (rvalid && rid[1]));
      assert (a_bvalid == (bvalid && !bid[1]) && b_bvalid == (bvalid && bid[1]));
      if (rvalid) assert (rready == (rid[1] ? b_rready : a_rready));
      if (bvalid) assert (bready == (bid[1] ? b_bready : a_bready));
    end
  end
endmodule
