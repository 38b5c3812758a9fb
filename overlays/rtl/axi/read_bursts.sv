// SPDX-License-Identifier: Apache-2.0
// Reads of lines as AXI4 bursts of one ID: lines that follow each other are joined, MOST at most and never across
// 4 KiB. A burst waits for its next line no longer than GAP cycles and HOLD in all, while the one before it has not
// been taken longer. Memory answers in order, so tags lie in a queue.
module read_bursts #(
    parameter int TAG_BITS   = 20,
    parameter int DEPTH_BITS = 6,   // of lines under way
    parameter int MOST       = 16,
    parameter int GAP        = 3,
    parameter int HOLD       = 8
) (
    input  logic                clk,
    input  logic                rst,
    input  logic                in_valid,
    output logic                in_ready,
    input  logic [41:0]         in_line,
    input  logic [TAG_BITS-1:0] in_tag,
    output logic                arvalid,
    input  logic                arready,
    output logic [41:0]         arline,
    output logic [7:0]          arlen,
    // of the line that memory gives now
    input  logic                taken,
    output logic [TAG_BITS-1:0] tag
);
  localparam int COUNT_BITS = $clog2(MOST + 1), AGE_BITS = $clog2(HOLD + 1);
  typedef logic [COUNT_BITS-1:0] count_t;
  typedef logic [AGE_BITS-1:0] age_t;

  // --- the burst that grows --------------------------------------------------------------------------
  logic grows, full, follows, waited, sends, takes, has_room;
  logic [41:0] first, next;
  count_t count;
  age_t age, quiet;
  assign full = count == count_t'(MOST) || next[5:0] == 6'd0;
  assign follows = in_line == next && !full;
  assign waited = age == age_t'(HOLD) || quiet == age_t'(GAP);
  assign sends = grows && (!arvalid || arready) && (full || waited || (in_valid && !follows));
  assign in_ready = has_room && (!grows || follows || sends);
  assign takes = in_valid && in_ready;
  always_ff @(posedge clk) begin
    if (arready) arvalid <= 1'b0;
    if (sends) begin
      arvalid <= 1'b1;
      arline <= first;
      arlen <= 8'(count) - 8'd1;
      grows <= 1'b0;
    end
    if (age != age_t'(HOLD)) age <= age + 1'b1;
    if (quiet != age_t'(GAP)) quiet <= quiet + 1'b1;
    if (takes) begin
      next <= in_line + 42'd1;
      quiet <= age_t'(1);
      count <= count + 1'b1;
      if (!grows || sends) begin
        grows <= 1'b1;
        first <= in_line;
        count <= count_t'(1);
        age <= age_t'(1);
      end
    end
    if (rst) {arvalid, grows} <= '0;
  end

  // --- tags of lines under way -----------------------------------------------------------------------
  logic [TAG_BITS-1:0] tags[1 << DEPTH_BITS];
  logic [DEPTH_BITS:0] put, got;
  assign has_room = put - got != {1'b1, DEPTH_BITS'(0)};
  assign tag = tags[got[DEPTH_BITS-1:0]];
  always_ff @(posedge clk) begin
    if (takes) tags[put[DEPTH_BITS-1:0]] <= in_tag;
    put <= put + (DEPTH_BITS + 1)'(takes);
    got <= got + (DEPTH_BITS + 1)'(taken);
    if (rst) {put, got} <= '0;
  end
endmodule
