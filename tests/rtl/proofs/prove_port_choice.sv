// SPDX-License-Identifier: Apache-2.0
// One port at most is ready, and only one that is valid; who asks is served within a round.
module prove_port_choice (
    input logic       clk,
    input logic       rst,
    input logic       hold,
    input logic [3:0] valid,
    input logic [1:0] which  // any port, the same one throughout
);
  logic [3:0] ready;
  logic any;
  logic [1:0] port, was;
  logic [2:0] others;  // served while `which` waits
  port_choice #(
      .PORTS(4)
  ) choice (
      .clk(clk),
      .rst(rst),
      .hold(hold),
      .valid(valid),
      .ready(ready),
      .any(any),
      .port(port)
  );
  always_ff @(posedge clk) begin
    was <= which;
    others <= rst || !valid[which] || ready[which] ? 3'd0 : others + 3'(any);
    if (!rst) begin
      assume (was == which);
      assert ($onehot0(ready));
      assert ((ready & ~valid) == 4'd0);
      assert (any == (valid != 4'd0 && !hold));
      assert (any == (ready != 4'd0));
      assert (others <= 3'd4);
    end
  end
endmodule
