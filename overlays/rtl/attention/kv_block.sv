// SPDX-License-Identifier: Apache-2.0
// 1,024 lines of K and V, a ring, and 64 bytes of them from any even byte on, three cycles after the address. Lines
// lie in two memories by turns, so that values may cross a line. Those of KV_INT8_HEADS become FP16: of K each
// column has a scale, of V the whole row. A block of them has its line of scales by number.
module kv_block (
    input  logic         clk,
    input  logic         heads,       // KV_INT8_HEADS
    input  logic         line_valid,
    input  logic [9:0]   line_where,
    input  logic         scale_valid,
    input  logic [4:0]   scale_where,
    input  logic [511:0] line_data,
    input  logic         values,      // V
    input  logic [15:0]  address,     // byte of the first value, even
    input  logic [4:0]   scale_read,  // the block's number
    input  logic [4:0]   row,         // of V
    output logic [511:0] w            // FP16, or INT8
);
  logic [511:0] even[512], odd[512];
  logic [511:0] scales[32];
  logic [511:0] even_1, odd_1, shifted_2, wide_3, plain_3, scales_2;
  logic [9:0] next;
  logic second_1, values_1, values_2;  // begins in an odd line
  logic [4:0] place_1, row_1, row_2, scale_1;
  assign next = address[15:6] + 10'd1;
  always_ff @(posedge clk) begin
    if (line_valid && line_where[0]) odd[line_where[9:1]] <= line_data;
    if (line_valid && !line_where[0]) even[line_where[9:1]] <= line_data;
    if (scale_valid) scales[scale_where] <= line_data;
    even_1 <= even[next[9:1]];
    odd_1 <= odd[address[15:7]];
    second_1 <= address[6];
    place_1 <= address[5:1];
    row_1 <= row;
    scale_1 <= scale_read;
    values_1 <= values;
    shifted_2 <= 512'((second_1 ? {even_1, odd_1} : {odd_1, even_1}) >> {place_1, 4'd0});
    row_2 <= row_1;
    values_2 <= values_1;
    if (heads) scales_2 <= scales[scale_1];
    plain_3 <= shifted_2;
  end
  for (genvar i = 0; i < 32; i++) begin : wide
    logic [4:0] place;  // of the scale
    assign place = values_2 ? row_2 : 5'(i);
    kv_weight one (
        .clk(clk),
        .value(heads ? shifted_2[8*i+:8] : 8'd0),
        .scale(scales_2[16*place+:16]),
        .made(wide_3[16*i+:16])
    );
  end
  assign w = heads ? wide_3 : plain_3;
endmodule
