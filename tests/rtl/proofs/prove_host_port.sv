// SPDX-License-Identifier: Apache-2.0
// The AXI4-Lite slave, both clocks the same one: an answer comes for each access that was taken and for no other, and
// stays until it is taken; reads and writes reach the registers as they were asked for.
module prove_host_port (
    input logic        clk,
    input logic        rst,
    input logic        awvalid, wvalid, arvalid, bready, rready,
    input logic [12:0] awaddr, araddr,
    input logic [31:0] wdata,
    input logic [3:0]  wstrb
);
  logic awready, wready, arready, bvalid, rvalid, host_valid, host_write;
  logic [1:0] bresp, rresp;
  logic [31:0] rdata, host_stored, host_data;
  logic [10:0] host_word, read_word, write_word, asked;
  logic [31:0] word;
  host_port port (
      .host_clk(clk), .host_rst(rst), .awvalid(awvalid), .awready(awready), .awaddr(awaddr), .wvalid(wvalid),
      .wready(wready), .wdata(wdata), .wstrb(wstrb), .bvalid(bvalid), .bready(bready), .bresp(bresp),
      .arvalid(arvalid), .arready(arready), .araddr(araddr), .rvalid(rvalid), .rready(rready), .rdata(rdata),
      .rresp(rresp), .clk(clk), .rst(rst), .host_valid(host_valid), .host_write(host_write), .host_word(host_word),
      .host_stored(host_stored), .host_data(host_data)
  );
  assign host_data = {21'h12345, asked};  // of the word that was asked for a cycle before
  logic [1:0] addresses, words, reads;  // taken, not answered
  logic b_stays, r_stays;
  always_ff @(posedge clk) begin
    asked <= host_word;
    b_stays <= bvalid && !bready && !rst;
    r_stays <= rvalid && !rready && !rst;
    addresses <= rst ? 2'd0 : addresses + 2'(awvalid && awready) - 2'(bvalid && bready);
    words <= rst ? 2'd0 : words + 2'(wvalid && wready) - 2'(bvalid && bready);
    reads <= rst ? 2'd0 : reads + 2'(arvalid && arready) - 2'(rvalid && rready);
    if (awvalid && awready) write_word <= awaddr[12:2];
    if (wvalid && wready) word <= wdata;
    if (arvalid && arready) read_word <= araddr[12:2];
    if (!rst) begin
      assert (addresses <= 2'd1 && words <= 2'd1 && reads <= 2'd1);
      if (bvalid) assert (addresses == 2'd1 && words == 2'd1);
      if (rvalid) assert (reads == 2'd1);
      if (b_stays) assert (bvalid);
      if (r_stays) assert (rvalid);
      if (rvalid && rresp == 2'd0) assert (rdata == {21'h12345, read_word});
      if (host_valid && host_write) assert (addresses == 2'd1 && host_word == write_word && host_stored == word);
      if (host_valid && !host_write) assert (reads == 2'd1 && host_word == read_word);
    end
  end
endmodule
