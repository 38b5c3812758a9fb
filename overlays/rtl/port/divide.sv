// SPDX-License-Identifier: Apache-2.0
// Quotient and remainder, a bit a cycle.
module divide #(
    parameter int BITS = 32
) (
    input  logic            clk,
    input  logic            rst,
    input  logic            start,      // one cycle; the divisor is held until `done`, and is not 0
    input  logic [BITS-1:0] dividend,
    input  logic [BITS-1:0] divisor,
    output logic            done,       // one cycle; results stay until the next start
    output logic [BITS-1:0] quotient,
    output logic [BITS-1:0] remainder
);
  localparam int COUNT_BITS = $clog2(BITS + 1);
  logic [COUNT_BITS-1:0] left;
  logic [BITS:0] next, less;
  assign next = {remainder, quotient[BITS-1]};
  assign less = next - {1'b0, divisor};
  always_ff @(posedge clk) begin
    done <= left == COUNT_BITS'(1);
    if (left != '0) begin
      left <= left - 1'b1;
      remainder <= less[BITS] ? next[BITS-1:0] : less[BITS-1:0];
      quotient <= {quotient[BITS-2:0], !less[BITS]};
    end
    if (start) begin
      left <= COUNT_BITS'(BITS);
      remainder <= '0;
      quotient <= dividend;
      done <= 1'b0;
    end
    if (rst) begin
      left <= '0;
      done <= 1'b0;
    end
  end
endmodule
