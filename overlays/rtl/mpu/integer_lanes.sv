// Sixteen columns times DEPTH rows of weights a cycle, for ROWS rows of x: exact sums (docs/numbers.md,
// 6.2 and 6.3). The two halves of a column tile take turns. DEPTH is 8 with 4-bit weights, of which a
// line has eight rows, or 4 for W8A8 alone. DSP58 1: products are a Versal device's (dot_dsp58).
module integer_lanes
  import mpu_types::*;
#(
    parameter int ROWS = 1,
    parameter int DEPTH = 8,
    parameter int DSP58 = 0
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  four_bit,
    input  line_use_t             line_use,
    input  logic [511:0]          stream_line,
    input  logic [511:0]          x_line[ROWS],
    // scales of the group whose sum comes next
    output logic                  scales_valid,
    output logic [SUMS_LOG-1:0]   scales_sum,
    // sums of half a tile, four cycles after their last line, with DSP58s LATER more
    output logic                  sum_valid,
    output logic [SUMS_LOG:0]     sum_where,  // sum, then half
    output logic                  sum_segment_end,
    output logic [511:0]          sums[ROWS]
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
    for (genvar i = 0; i < DEPTH; i++) begin : tap
      // one operand for two columns, or two of 9 bits for DSP58s
      int narrow, whole, w;
      if (DSP58 != 0) begin : versal
        assign narrow = DEPTH == 4 ? 0
            : {14'd0, {5'd0, high[8*(i%4)+4*(i/4)+:4]} - {5'd0, high_zero},
               {5'd0, low[8*(i%4)+4*(i/4)+:4]} - {5'd0, low_zero}};
        assign whole = i >= 4 ? 0 : {14'd0, 9'($signed(high[8*(i%4)+:8])), 9'($signed(low[8*(i%4)+:8]))};
      end else begin : ultrascale
        assign narrow = DEPTH == 4 ? 0
            : ({28'd0, high[8*(i%4)+4*(i/4)+:4]} - {28'd0, high_zero} << 18) +
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
    assign eight = x_line[row][64*line_use.x_part[2:0]+:64];
    assign four = x_line[row][32*line_use.x_part+:32];
    for (genvar i = 0; i < DEPTH; i++) begin : tap
      int quarter, x;
      assign quarter = i < 4 && line_use.x_keep[i%4] ? 32'($signed(four[8*(i%4)+:8])) : 0;
      always_ff @(posedge clk)
        if (enable && (i < 4 || four_bit)) x <= four_bit ? 32'($signed(eight[8*i+:8])) : quarter;
    end
    for (genvar pair = 0; pair < 8; pair++) begin : pairs
      int even_0, odd_0, even_1, odd_1;
      if (DSP58 != 0) begin : versal
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
      assign even = (use_3.first ? 0 : use_3.half ? upper_even : lower_even) + even_0 + even_1;
      assign odd = (use_3.first ? 0 : use_3.half ? upper_odd : lower_odd) + odd_0 + odd_1;
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
