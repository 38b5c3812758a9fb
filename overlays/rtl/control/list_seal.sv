// SPDX-License-Identifier: Apache-2.0
// The seal of a chunk, as fw_seal has it: eight lanes over its words, then one word of all. It takes
// 32 bytes a cycle; after the last `seal` is there in eight cycles.
module list_seal (
    input  logic         clk,
    input  logic         rst,
    input  logic         restart,
    input  logic         valid,
    input  logic [255:0] half,    // of a line, the lower one first
    input  logic         finish,  // one cycle, after the last half
    output logic         done,    // one cycle
    output logic [31:0]  seal
);
  localparam logic [31:0] PRIME = 32'h0100_0193;
  logic [7:0][31:0] lanes;
  logic [3:0] left;  // lanes to be joined

  always_ff @(posedge clk) begin
    done <= 1'b0;
    if (restart) begin
      for (int i = 0; i < 8; i++) lanes[i] <= 32'(i + 1);
      seal <= 32'd0;
    end else if (valid) begin
      for (int i = 0; i < 8; i++)
        lanes[i] <= (lanes[i] ^ half[32*i+:32]) + ((lanes[i] ^ half[32*i+:32]) << 5);
    end
    if (finish) left <= 4'd8;
    else if (left != 4'd0) begin
      seal <= (seal ^ lanes[0]) * PRIME;  // in the order 0, 4, 1, 5, ..
      lanes <= {lanes[0], lanes[3:1], lanes[7:4]};
      left <= left - 4'd1;
      done <= left == 4'd1;
    end
    if (rst) begin
      left <= 4'd0;
      done <= 1'b0;
    end
  end
endmodule
