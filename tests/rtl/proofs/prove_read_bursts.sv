// SPDX-License-Identifier: Apache-2.0
// An AXI4 master's reads: what is on offer stays; bursts keep inside 4 KiB and have the lines that were asked for, once
// and in order; lines under way have room; tags come in order.
module prove_read_bursts (
    input logic        clk,
    input logic        rst,
    input logic        in_valid,
    input logic [7:0]  low_line,  // four times 4 KiB of lines are enough
    input logic        arready,
    input logic        taken
);
  logic in_ready, arvalid;
  logic [41:0] in_line;
  assign in_line = {34'd0, low_line};
  logic [41:0] arline;
  logic [7:0] arlen;
  logic [2:0] tag;
  logic [3:0] put, got;     // lines: each one's number is its tag
  logic [3:0] addressed;    // lines whose burst memory has
  logic was_offered, unanswered;
  logic [41:0] was_line;
  logic [7:0] was_length;
  read_bursts #(
      .TAG_BITS(3),
      .DEPTH_BITS(2),
      .MOST(3),
      .GAP(1),
      .HOLD(2)
  ) bursts (
      .clk(clk),
      .rst(rst),
      .in_valid(in_valid),
      .in_ready(in_ready),
      .in_line(in_line),
      .in_tag(put[2:0]),
      .arvalid(arvalid),
      .arready(arready),
      .arline(arline),
      .arlen(arlen),
      .taken(taken),
      .tag(tag)
  );
  // one line's place, to see that a burst has it
  logic [7:0] lines[8];
  assign unanswered = addressed != 4'd0;
  always_ff @(posedge clk) begin
    was_offered <= arvalid && !arready && !rst;
    {was_line, was_length} <= {arline, arlen};
    if (in_valid && in_ready) begin
      put <= put + 4'd1;
      lines[put[2:0]] <= low_line;
    end
    got <= got + 4'(taken);
    addressed <= addressed + (arvalid && arready ? 4'(arlen) + 4'd1 : 4'd0) - 4'(taken);
    if (rst) {put, got, addressed} <= '0;
    if (!rst) begin
      assume (!taken || unanswered);
      if (was_offered) assert (arvalid && arline == was_line && arlen == was_length);
      if (arvalid) begin
        assert (arlen < 8'd3);
        assert ({1'b0, arline[5:0]} + 7'(arlen) < 7'd64);
        // addressed lines are those behind `got`, so the burst's are the next
        assert (arline == {34'd0, lines[3'(got + addressed)]});
        assert (arline[7:0] + arlen == lines[3'(got + addressed + 4'(arlen))]);
      end
      assert (4'(put - got) <= 4'd4);
      if (put != got) assert (tag == got[2:0]);
    end
  end
endmodule
