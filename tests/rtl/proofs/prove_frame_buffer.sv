// SPDX-License-Identifier: Apache-2.0
// Frames leave in the order in which they came; as many as there are places, while the user writes only into free ones.
module prove_frame_buffer (
    input logic clk,
    input logic rst,
    input logic commit,
    input logic pop
);
  logic [2:0] free;
  logic head_valid;
  logic [3:0] head_note;
  logic [3:0] came, left;
  frame_buffer #(
      .NOTE_BITS(4)
  ) buffer (
      .clk(clk),
      .rst(rst),
      .free(free),
      .write_valid(1'b0),
      .write_line(7'd0),
      .write_data(512'd0),
      .commit(commit),
      .write_note(came),
      .head_valid(head_valid),
      .head_note(head_note),
      .read_enable(1'b0),
      .read_line(7'd0),
      // verilator lint_off PINCONNECTEMPTY
      .read_data(),
      // verilator lint_on PINCONNECTEMPTY
      .pop(pop)
  );
  always_ff @(posedge clk) begin
    came <= rst ? 4'd0 : came + 4'(commit);
    left <= rst ? 4'd0 : left + 4'(pop);
    if (!rst) begin
      assume (!commit || free != 3'd0);
      assume (!pop || head_valid);
      assert (head_valid == (came != left));
      assert (4'(free) == 4'd7 - (came - left));
      if (head_valid) assert (head_note == left);
    end
  end
endmodule
