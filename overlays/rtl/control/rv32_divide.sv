// SPDX-License-Identifier: Apache-2.0
// Quotient or remainder, a bit a cycle.
module rv32_divide (
    input  logic        clk,
    input  logic        rst,
    input  logic        request,  // held until `done`, with its operands
    input  logic [1:0]  which,    // div, divu, rem, remu
    input  logic [31:0] a,
    input  logic [31:0] b,
    output logic        done,
    output logic [31:0] result
);
  logic running, negative_a, negative_b, negate;
  logic [4:0] left;
  logic [31:0] quotient, remainder, divisor, chosen;
  logic [32:0] difference;
  assign negative_a = !which[0] && a[31];
  assign negative_b = !which[0] && b[31];
  assign difference = {remainder, quotient[31]} - {1'b0, divisor};

  always_ff @(posedge clk) begin
    if (!running) begin
      quotient <= negative_a ? -a : a;
      divisor <= negative_b ? -b : b;
      remainder <= 32'd0;
      left <= 5'd31;
      running <= request && !done;
    end else begin
      quotient <= {quotient[30:0], !difference[32]};
      remainder <= difference[32] ? {remainder[30:0], quotient[31]} : difference[31:0];
      left <= left - 5'd1;
      if (left == 5'd0) running <= 1'b0;
    end
    done <= running && left == 5'd0;
    if (rst) {running, done} <= 2'b00;
  end
  // A division by zero has the quotient -1 and leaves the dividend.
  assign negate = which[1] ? negative_a : negative_a != negative_b && b != 32'd0;
  assign chosen = which[1] ? remainder : quotient;
  assign result = negate ? -chosen : chosen;
endmodule
