// SPDX-License-Identifier: Apache-2.0
// Blocks of a page, one after another: bank and line of each, as kv_layout.h has it. The first one takes a division
// by the banks, a cycle a bit; blocks of a page are numbered without a gap, so the others take a step each.
module page_walk
  import dma_types::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        start,   // one cycle; the layout is held
    input  layout_t     layout,
    input  logic [16:0] page,
    input  logic [31:0] index,   // of the first block within its page
    input  logic        next,    // one cycle, not busy
    output logic        busy,
    output bank_t       bank,
    output logic [49:0] line
);
  logic spills;
  logic [31:0] stride, from_index, number, quotient;
  logic [16:0] pool_page;
  logic [31:0] first_line;
  logic [6:0] banks, rest;
  bank_t first_bank;
  logic [7:0] trial;
  logic [5:0] left;
  logic [2:0] step;
  assign spills = layout.spill_bank_count != 8'd0 && {15'd0, page} >= layout.spill_page;
  assign trial = {rest, number[31]} - {1'b0, banks};
  assign busy = step != 3'd0;
  always_ff @(posedge clk) begin
    unique case (step)
      3'd1: begin
        number <= {15'd0, pool_page} * stride + from_index;
        left <= 6'd32;
        rest <= 7'd0;
        step <= 3'd2;
      end
      3'd2: begin
        number <= number << 1;
        quotient <= {quotient[30:0], !trial[7]};
        rest <= trial[7] ? {rest[5:0], number[31]} : trial[6:0];
        left <= left - 6'd1;
        if (left == 6'd1) step <= 3'd3;
      end
      3'd3: begin
        line <= 50'(quotient) * 50'(block_lines(layout));
        step <= 3'd4;
      end
      3'd4: begin
        line <= line + 50'(first_line);
        step <= 3'd0;
      end
      default: ;
    endcase
    if (start) begin
      pool_page <= spills ? page - layout.spill_page[16:0] : page;
      banks <= 7'(spills ? layout.spill_bank_count : layout.bank_count);
      first_bank <= 6'(spills ? layout.spill_bank_first : layout.bank_first);
      first_line <= spills ? layout.spill_line : layout.line;
      stride <= (({16'd0, layout.layers} * {16'd0, layout.heads}) << 1) | 32'd1;
      from_index <= index;
      step <= 3'd1;
    end else if (next) begin
      rest <= rest + 7'd1;
      if (rest + 7'd1 == banks) begin
        rest <= 7'd0;
        line <= line + 50'(block_lines(layout));
      end
    end
    if (rst) step <= 3'd0;
  end
  assign bank = first_bank + rest[5:0];
endmodule
