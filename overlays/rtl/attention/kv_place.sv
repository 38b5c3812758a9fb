// SPDX-License-Identifier: Apache-2.0
// Where a block of K or V of a page and head lies: csrc/include/lora/kv_layout.h. The division by the
// banks takes a cycle for two bits.
module kv_place
  import attention_types::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        start,   // one cycle; what follows is held
    input  layout_t     layout,
    input  logic [15:0] page,
    input  logic [15:0] head,
    input  logic        values,  // V
    output logic        busy,
    output logic [5:0]  bank,
    output logic [31:0] line
);
  logic spills;
  logic [31:0] stride, of_page, number, quotient, first_line;
  logic [15:0] pool_page;
  logic [5:0] count, first_bank, rest;
  logic [6:0] trial, next_rest, second;
  logic [5:0] second_rest;
  logic [5:0] left;
  logic [1:0] step;
  assign spills = layout.spill_bank_count != 6'd0 && {1'b0, page} >= layout.spill_page;
  assign trial = {rest, number[31]} - {1'b0, count};
  assign next_rest = trial[6] ? {rest, number[31]} : trial;
  assign second = {next_rest[5:0], number[30]} - {1'b0, count};
  assign second_rest = second[6] ? {next_rest[4:0], number[30]} : second[5:0];
  assign busy = step != 2'd0;
  always_ff @(posedge clk) begin
    unique case (step)
      2'd1: begin
        number <= {16'd0, pool_page} * stride + of_page;
        step <= 2'd2;
        left <= 6'd16;
        rest <= 6'd0;
      end
      2'd2: begin
        number <= number << 2;
        quotient <= {quotient[29:0], !trial[6], !second[6]};
        rest <= second_rest;
        left <= left - 6'd1;
        if (left == 6'd1) step <= 2'd3;
      end
      2'd3: begin
        bank <= first_bank + rest;
        line <= first_line + quotient * {23'd0, block_lines(layout)};
        step <= 2'd0;
      end
      default: ;
    endcase
    if (start) begin
      pool_page <= spills ? 16'({1'b0, page} - layout.spill_page) : page;
      count <= spills ? layout.spill_bank_count : layout.bank_count;
      first_bank <= spills ? layout.spill_bank_first : layout.bank_first;
      first_line <= spills ? layout.spill_line : layout.line;
      stride <= ({16'd0, layout.layers} * {16'd0, layout.heads} * 32'd2) | 32'd1;
      of_page <= ({16'd0, layout.layer} * {16'd0, layout.heads} + {16'd0, head}) * 32'd2 + {31'd0, values};
      step <= 2'd1;
    end
    if (rst) step <= 2'd0;
  end
endmodule
