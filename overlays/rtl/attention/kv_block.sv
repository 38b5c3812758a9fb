// SPDX-License-Identifier: Apache-2.0
// A block of K or V, and 32 values of it from any of its elements on, three cycles after the address. Lines
// lie in two memories by turns, so that values may cross a line. Those of KV_INT8_HEADS become FP16: of K each
// column has a scale, of V the whole row.
module kv_block
  import attention_types::*;
(
    input  logic         clk,
    input  layout_t      layout,
    input  logic         line_valid,  // a line of the block
    input  logic [8:0]   line_where,
    input  logic [511:0] line_data,
    input  logic         values,      // V
    input  logic [13:0]  address,     // byte of the first value, even
    input  logic [4:0]   row,         // of V
    output logic [511:0] w            // FP16, or INT8 in the lower half
);
  logic [511:0] even[128], odd[128];
  logic [511:0] scales;
  logic [511:0] even_1, odd_1, shifted_2, wide_3, plain_3;
  logic [7:0] next;
  logic second_1;  // begins in an odd line
  logic [4:0] place_1, row_1, row_2;
  logic is_scale;
  assign next = address[13:6] + 8'd1;
  assign is_scale = layout.kind == KV_INT8_HEADS && line_where == value_lines(layout);
  always_ff @(posedge clk) begin
    if (line_valid && !is_scale) begin
      if (line_where[0]) odd[line_where[7:1]] <= line_data;
      else even[line_where[7:1]] <= line_data;
    end
    if (line_valid && is_scale) scales <= line_data;
    even_1 <= even[next[7:1]];
    odd_1 <= odd[address[13:7]];
    second_1 <= address[6];
    place_1 <= address[5:1];
    row_1 <= row;
    shifted_2 <= 512'((second_1 ? {even_1, odd_1} : {odd_1, even_1}) >> {place_1, 4'd0});
    row_2 <= row_1;
    plain_3 <= shifted_2;
  end
  for (genvar i = 0; i < 32; i++) begin : wide
    logic [4:0] place;  // of the scale
    assign place = values ? row_2 : 5'(i);
    kv_weight one (
        .clk(clk),
        .value(shifted_2[8*i+:8]),
        .scale(scales[16*place+:16]),
        .made(wide_3[16*i+:16])
    );
  end
  assign w = layout.kind == KV_INT8_HEADS ? wide_3 : plain_3;
endmodule
