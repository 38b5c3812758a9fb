// SPDX-License-Identifier: Apache-2.0
// CRC-32 of a gather's rows, one after another, from the CRCs of runs in any order: each times x to the power of the
// bits behind it, four factors a run, and all added up.
module gather_sum
  import router_types::*;
(
    input  logic           clk,
    input  logic           rst,
    input  logic           start,       // one cycle: the next gather
    input  size_t          bytes,       // of all rows
    input  logic [1:0]     run_valid,
    output logic [1:0]     run_ready,
    input  logic [31:0]    run_crc0,
    input  logic [31:0]    run_crc1,
    input  behind_t        run_behind0,
    input  behind_t        run_behind1,
    output logic           idle,
    output logic [31:0]    sum
);
  logic busy, last, lane;  // last: whose run was taken last
  logic [2:0] step;
  logic [31:0] value, factor, product, total;
  behind_t behind;

  // runs are as if 64 bytes more were behind each
  assign sum = ~crc_back(total, 3'd6);
  assign idle = !busy;
  assign lane = last ^ run_valid[!last];
  assign run_ready = {lane, !lane} & {2{!busy && !start}};
  assign product = crc_product(value, factor);
  always_ff @(posedge clk) begin
    factor <= POWERS[{step[1:0], behind[6:0]}];
    if (busy) begin
      step <= step + 3'd1;
      behind <= behind >> 7;
      if (step != 3'd0) value <= product;
      if (step == 3'd4) begin
        total <= total ^ product;
        busy <= 1'b0;
      end
    end else begin
      step <= 3'd0;
      value <= lane ? run_crc1 : run_crc0;
      behind <= lane ? run_behind1 : run_behind0;
      if (run_valid != 2'b00) begin
        last <= lane;
        busy <= 1'b1;
      end
    end
    if (start) begin  // a message begins with a state of ones
      total <= '0;
      value <= '1;
      behind <= behind_t'(bytes) + behind_t'(64);
      step <= 3'd0;
      busy <= 1'b1;
    end
    if (rst) busy <= 1'b0;
  end
endmodule
