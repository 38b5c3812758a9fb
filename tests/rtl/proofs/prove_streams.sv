// SPDX-License-Identifier: Apache-2.0
// A stream from wide words to halves and back: words, keeps and ends as they were, in order; what is on offer stays.
module prove_streams (
    input logic       clk,
    input logic       rst,
    input logic       in_valid,
    input logic       in_last,
    input logic       in_short,  // a last word of one half
    input logic       pause,
    input logic       out_ready
);
  logic in_ready, half_valid, half_ready, half_keep, half_last, out_valid, out_last;
  logic [7:0] half;
  logic [15:0] out_data;
  logic [1:0] out_keep;
  logic [3:0] came, left;
  logic [1:0] ends[16];  // last, short
  stream_narrow #(
      .BYTES(1)
  ) narrow (
      .clk(clk),
      .rst(rst),
      .in_valid(in_valid),
      .in_ready(in_ready),
      .in_data({4'ha, came, 4'h5, came}),
      .in_keep({!(in_last && in_short), 1'b1}),
      .in_last(in_last),
      .out_valid(half_valid),
      .out_ready(half_ready && !pause),
      .out_data(half),
      .out_keep(half_keep),
      .out_last(half_last)
  );
  stream_widen #(
      .BYTES(1)
  ) widen (
      .clk(clk),
      .rst(rst),
      .in_valid(half_valid && !pause),
      .in_ready(half_ready),
      .in_data(half),
      .in_keep(half_keep),
      .in_last(half_last),
      .out_valid(out_valid),
      .out_ready(out_ready),
      .out_data(out_data),
      .out_keep(out_keep),
      .out_last(out_last)
  );
  logic stays, half_stays;
  logic [15:0] was;
  logic [7:0] was_half;
  always_ff @(posedge clk) begin
    stays <= out_valid && !out_ready && !rst;
    half_stays <= half_valid && (!half_ready || pause) && !rst;
    {was, was_half} <= {out_data, half};
    if (in_valid && in_ready) begin
      came <= came + 4'd1;
      ends[came] <= {in_last, in_last && in_short};
    end
    if (out_valid && out_ready) left <= left + 4'd1;
    if (rst) {came, left} <= '0;
    if (!rst) begin
      if (stays) assert (out_valid && out_data == was);
      if (half_stays) assert (half_valid && half == was_half);
      if (out_valid) begin
        assert (came != left);
        assert (out_last == ends[left][1] && out_keep == {!ends[left][0], 1'b1});
        assert (out_data[7:0] == {4'h5, left});
        if (out_keep[1]) assert (out_data[15:8] == {4'ha, left});
      end
      assert (4'(came - left) <= 4'd3);
    end
  end
endmodule
