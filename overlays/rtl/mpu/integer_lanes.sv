// SPDX-License-Identifier: Apache-2.0
// Sixteen columns times DEPTH rows of weights a cycle, for ROWS rows of x: exact sums (docs/numbers.md,
// 6.2 and 6.3). The two halves of a column tile take turns. DEPTH is 8 with 4-bit weights, of which a
// line has eight rows, or 4 for W8A8 alone. DSP58 1: products are a Versal device's (dot_dsp58); DSP48 1: a chain of
// DSP48E2s adds them up (dot_dsp48).
module integer_lanes
  import mpu_types::*;
#(
    parameter int ROWS = 1,
    parameter int DEPTH = 8,
    parameter int DSP58 = 0,
    parameter int DSP48 = 0
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  four_bit,
    input  line_use_t             line_use,
    input  logic [511:0]          stream_line,
    input  logic [ROWS-1:0][511:0] x_line,
    // scales of the group whose sum comes next
    output logic                  scales_valid,
    output logic [SUMS_LOG-1:0]   scales_sum,
    // sums of half a tile, four cycles after their last line, with DSP58s LATER more
    output logic                  sum_valid,
    output logic [SUMS_LOG:0]     sum_where,  // sum, then half
    output logic                  sum_segment_end,
    output logic [ROWS-1:0][511:0] sums
);
  localparam int LATER = DSP58 != 0 ? (DEPTH + 2) / 3 - 1 : 0;
  line_use_t use_1, use_2, use_late[LATER+1], use_3;  // use_3: when the sum of a line's products is there
  logic [511:0] zero_points;
  assign scales_valid = line_use.take == TAKE_SCALES;
  assign scales_sum = line_use.sum;
  always_ff @(posedge clk) begin
    use_1 <= line_use;
    use_2 <= use_1;
    use_late[0] <= use_2;
    for (int i = 0; i < LATER; i++) use_late[i+1] <= use_late[i];
    if (line_use.take == TAKE_ZEROS) zero_points <= stream_line;
    if (rst) begin
      use_1.take <= TAKE_NOTHING;
      use_2.take <= TAKE_NOTHING;
      for (int i = 0; i <= LATER; i++) use_late[i].take <= TAKE_NOTHING;
    end
  end
  assign use_3 = use_late[LATER];

  // 1: operands, less their zero points
  logic [63:0] zeros;  // of these sixteen columns
  logic enable, enable_1, enable_2;
  assign zeros = zero_points[{line_use.group, line_use.half, 6'd0}+:64];
  assign enable = line_use.take == TAKE_WEIGHTS;
  assign enable_1 = use_1.take == TAKE_WEIGHTS;
  assign enable_2 = use_2.take == TAKE_WEIGHTS;
  for (genvar pair = 0; pair < 8; pair++) begin : columns
    logic [31:0] low, high;
    logic [3:0] low_zero, high_zero;
    assign low = stream_line[64*pair+:32];
    assign high = stream_line[64*pair+32+:32];
    assign low_zero = zeros[8*pair+:4];
    assign high_zero = zeros[8*pair+4+:4];
    // What a DSP48E2 subtracts, of both columns. Signed bytes of the low one become offsets from -128.
    logic [26:0] offset;
    assign offset = four_bit ? {5'd0, high_zero, 14'd0, low_zero} : 27'd128;
    for (genvar i = 0; i < DEPTH; i++) begin : tap
      // one operand for two columns, or two of 9 bits for DSP58s
      int narrow, whole, w;
      logic [7:0] high_byte, low_byte;
      logic [26:0] packed_w;
      assign high_byte = high[8*(i%4)+:8];
      assign low_byte = low[8*(i%4)+:8];
      if (i >= 4) begin : upper_bits
        assign packed_w = {5'd0, high_byte[7:4], 14'd0, low_byte[7:4]};
      end else begin : lower_bits
        assign packed_w = {{5{!four_bit}} & {high_byte[7], high_byte[7:4]}, high_byte[3:0], 10'd0,
                           {4{!four_bit}} & {!low_byte[7], low_byte[6:4]}, low_byte[3:0]};
      end
      if (DSP58 != 0) begin : versal
        assign narrow = DEPTH == 4 ? 0
            : {14'd0, {5'd0, high[8*(i%4)+4*(i/4)+:4]} - {5'd0, high_zero},
               {5'd0, low[8*(i%4)+4*(i/4)+:4]} - {5'd0, low_zero}};
        assign whole = i >= 4 ? 0 : {14'd0, 9'($signed(high[8*(i%4)+:8])), 9'($signed(low[8*(i%4)+:8]))};
      end else begin : ultrascale
        assign narrow = DEPTH == 4 ? 0
            : (({28'd0, high[8*(i%4)+4*(i/4)+:4]} - {28'd0, high_zero}) << 18) +
              ({28'd0, low[8*(i%4)+4*(i/4)+:4]} - {28'd0, low_zero});
        assign whole = i >= 4 ? 0
            : (32'($signed(high[8*(i%4)+:8])) << 18) + 32'($signed(low[8*(i%4)+:8]));
      end
      always_ff @(posedge clk) if (enable && (i < 4 || four_bit)) w <= four_bit ? narrow : whole;
    end
  end

  for (genvar row = 0; row < ROWS; row++) begin : rows
    logic [63:0] eight;
    logic [31:0] four;
    // eight rows of x, or of W8A8 four of them
    logic [2:0] part;
    assign part = four_bit ? line_use.x_part[2:0] : line_use.x_part[3:1];
    assign eight = x_line[row][64*part+:64];
    assign four = line_use.x_part[0] ? eight[63:32] : eight[31:0];
    for (genvar i = 0; i < DEPTH; i++) begin : tap
      int quarter, x;
      logic signed [7:0] next_x;
      assign quarter = i < 4 && line_use.x_keep[i%4] ? 32'($signed(four[8*(i%4)+:8])) : 0;
      assign next_x = four_bit ? eight[8*i+:8] : quarter[7:0];
      always_ff @(posedge clk)
        if (enable && (i < 4 || four_bit)) x <= four_bit ? 32'($signed(eight[8*i+:8])) : quarter;
    end
    for (genvar pair = 0; pair < 8; pair++) begin : pairs
      int even_0, odd_0, even_1, odd_1;
      if (DSP48 != 0) begin : chains
        logic [26:0] d[8];
        logic signed [7:0] operand[8];
        logic [47:0] first_sum, second_sum;
        logic [35:0] sum;
        for (genvar i = 0; i < 8; i++) begin : taps
          assign d[i] = i < DEPTH ? columns[pair].tap[i%DEPTH].packed_w : 27'd0;
          assign operand[i] = i < DEPTH ? tap[i%DEPTH].next_x : 8'd0;
        end
        dot_dsp48 first_rows (
            .clk(clk),
            .enable(enable),
            .enable_1(enable_1),
            .enable_2(enable_2),
            .clear(1'b0),
            .d(d[0:3]),
            .a(columns[pair].offset),
            .x(operand[0:3]),
            .sum(first_sum)
        );
        if (DEPTH == 8) begin : more  // of 4-bit weights alone
          dot_dsp48 more_rows (
              .clk(clk),
              .enable(enable),
              .enable_1(enable_1),
              .enable_2(enable_2),
              .clear(!four_bit),
              .d(d[4:7]),
              .a(columns[pair].offset),
              .x(operand[4:7]),
              .sum(second_sum)
          );
          assign sum = first_sum[35:0] + second_sum[35:0];
        end else begin : no_more
          assign second_sum = 48'd0;
          assign sum = first_sum[35:0];
        end
        assign even_0 = 32'($signed(sum[17:0]));
        assign odd_0 = 32'($signed(sum[35:18]));
        assign even_1 = 0;
        assign odd_1 = {31'd0, sum[17]};
      end else if (DSP58 != 0) begin : versal
        logic signed [8:0] low[DEPTH], high[DEPTH];
        logic signed [7:0] operand[DEPTH];
        for (genvar i = 0; i < DEPTH; i++) begin : taps
          assign low[i] = columns[pair].tap[i].w[8:0];
          assign high[i] = columns[pair].tap[i].w[17:9];
          assign operand[i] = i < 4 || four_bit ? tap[i].x[7:0] : 8'd0;
        end
        dot_dsp58 #(
            .TAPS(DEPTH)
        ) even_column (
            .clk(clk),
            .w(low),
            .x(operand),
            .sum(even_0)
        );
        dot_dsp58 #(
            .TAPS(DEPTH)
        ) odd_column (
            .clk(clk),
            .w(high),
            .x(operand),
            .sum(odd_0)
        );
        assign even_1 = 0;
        assign odd_1 = 0;
      end else begin : ultrascale
        integer_pair first_rows (
            .clk(clk),
            .enable(enable_1),
            .enable_2(enable_2),
            .weights_0(columns[pair].tap[0].w),
            .weights_1(columns[pair].tap[1].w),
            .weights_2(columns[pair].tap[2].w),
            .weights_3(columns[pair].tap[3].w),
            .x_0(tap[0].x),
            .x_1(tap[1].x),
            .x_2(tap[2].x),
            .x_3(tap[3].x),
            .low_sum(even_0),
            .high_sum(odd_0)
        );
        if (DEPTH == 8) begin : more  // of 4-bit weights alone
          int low_sum, high_sum;
          integer_pair more_rows (
              .clk(clk),
              .enable(enable_1 && four_bit),
              .enable_2(enable_2 && four_bit),
              .weights_0(columns[pair].tap[4].w),
              .weights_1(columns[pair].tap[5].w),
              .weights_2(columns[pair].tap[6].w),
              .weights_3(columns[pair].tap[7].w),
              .x_0(tap[4].x),
              .x_1(tap[5].x),
              .x_2(tap[6].x),
              .x_3(tap[7].x),
              .low_sum(low_sum),
              .high_sum(high_sum)
          );
          assign even_1 = four_bit ? low_sum : 0;
          assign odd_1 = four_bit ? high_sum : 0;
        end else begin : no_more
          assign even_1 = 0;
          assign odd_1 = 0;
        end
      end
      // the two halves of the tile
      int lower_even, lower_odd, upper_even, upper_odd, even, odd;
      int so_far_even, so_far_odd;
      assign so_far_even = use_3.first ? 0 : use_3.half ? upper_even : lower_even;
      assign so_far_odd = use_3.first ? 0 : use_3.half ? upper_odd : lower_odd;
      if (DSP48 != 0) begin : borrow  // given back by the adder's carry
        logic carried;
        assign even = so_far_even + even_0;
        assign {odd, carried} = {so_far_odd, odd_1[0]} + {odd_0, 1'b1};
      end else begin : three
        assign even = so_far_even + even_0 + even_1;
        assign odd = so_far_odd + odd_0 + odd_1;
      end
      always_ff @(posedge clk) begin
        if (use_3.take == TAKE_WEIGHTS && !use_3.half) begin
          lower_even <= even;
          lower_odd <= odd;
        end
        if (use_3.take == TAKE_WEIGHTS && use_3.half) begin
          upper_even <= even;
          upper_odd <= odd;
        end
      end
      assign sums[row][64*pair+:64] = {odd, even};
    end
  end
  assign sum_valid = use_3.take == TAKE_WEIGHTS && use_3.last;
  assign sum_where = {use_3.sum, use_3.half};
  assign sum_segment_end = use_3.segment_end;
endmodule
