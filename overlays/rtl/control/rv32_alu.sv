// SPDX-License-Identifier: Apache-2.0
// Sums, comparisons, bits and shifts; whether a branch is taken comes from the same subtraction.
module rv32_alu
  import rv32_types::*;
(
    input  alu_t        operation,
    input  logic [2:0]  condition,  // of a branch
    input  logic [31:0] a,
    input  logic [31:0] b,
    output logic [31:0] result,
    output logic        taken
);
  logic subtract, equal, less, less_unsigned;
  logic [32:0] sum;
  assign subtract = operation != ADD;
  assign sum = {1'b0, a} + {1'b0, subtract ? ~b : b} + 33'(subtract);
  assign equal = a == b;
  assign less_unsigned = !sum[32];
  assign less = a[31] != b[31] ? a[31] : less_unsigned;

  // One shifter to the right; a shift to the left is one of the reversed bits.
  logic [31:0] reversed, into, outcome, shifted;
  logic filled;
  for (genvar bit_of = 0; bit_of < 32; bit_of++) begin : reverse
    assign reversed[bit_of] = a[31-bit_of];
    assign shifted[bit_of] = operation == SLL ? outcome[31-bit_of] : outcome[bit_of];
  end
  assign into = operation == SLL ? reversed : a;
  assign filled = operation == SRA && a[31];
  assign outcome = 32'($signed({filled, into}) >>> b[4:0]);

  always_comb begin
    case (operation)
      ADD, SUB: result = sum[31:0];
      SLT: result = {31'd0, less};
      SLTU: result = {31'd0, less_unsigned};
      XOR: result = a ^ b;
      OR: result = a | b;
      AND: result = a & b;
      SLL, SRL, SRA: result = shifted;
      default: result = b;
    endcase
    case (condition[2:1])
      2'b00: taken = equal;
      2'b10: taken = less;
      default: taken = less_unsigned;
    endcase
    taken = taken != condition[0];
  end
endmodule
