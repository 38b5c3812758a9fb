// SPDX-License-Identifier: Apache-2.0
// Turns units of 4-bit blocks into FP16 lines, a line a cycle. A unit of 32 columns comes as ten
// lines: eight of values, its group's scales, and the zero points of the block. Two units have room:
// one arrives while the other is turned.
module w4_unpack (
    input  logic         clk,
    input  logic         rst,
    input  logic         restart,      // one cycle: nothing is under way
    // units, in the order in which they are asked for
    input  logic         unit_valid,
    input  logic [3:0]   unit_where,   // side and segment
    input  logic [1:0]   unit_group,   // of the block
    output logic         unit_free,    // there is room for a unit
    input  logic         pause,        // make no line: somebody else writes
    // their lines
    input  logic         line_valid,
    input  logic         line_room,
    input  logic [3:0]   line_index,   // 0..7 values, 8 scales, 9 zero points
    input  logic [511:0] line_data,
    // FP16 lines
    output logic         weights_valid,
    output logic [8:0]   weights_to,
    output logic [511:0] weights
);
  logic [511:0] values[16], scales[2];
  logic [127:0] zeros[2];  // of the unit's group
  logic [1:0][3:0] where, arrived;
  logic [1:0][1:0] group;
  logic [1:0] taken;
  logic ask_room, turn_room, turning;
  logic [4:0] column;
  assign unit_free = !taken[ask_room];
  assign turning = taken[turn_room] && arrived[turn_room] == 4'd10 && !pause;

  // cycle 1: the two lines that hold the column; cycle 2: its weights
  logic [511:0] low_line, high_line, scale_line;
  logic [127:0] zero_points;
  logic [2:0] place_1;  // of the column among the eight of two lines
  logic valid_1;
  logic [8:0] to_1;
  always_ff @(posedge clk) begin
    if (line_valid) begin
      if (line_index == 4'd8) scales[line_room] <= line_data;
      else if (line_index == 4'd9) zeros[line_room] <= line_data[{group[line_room], 7'd0}+:128];
      else values[{line_room, line_index[2:0]}] <= line_data;
    end
    low_line <= values[{turn_room, column[4:3], 1'b0}];
    high_line <= values[{turn_room, column[4:3], 1'b1}];
    scale_line <= scales[turn_room];
    zero_points <= zeros[turn_room];
    place_1 <= column[2:0];
    to_1 <= {where[turn_room], column};
    weights_to <= to_1;
  end

  logic [1023:0] both;
  assign both = {high_line, low_line};
  for (genvar n = 0; n < 32; n++) begin : lane
    logic [31:0] four;  // bytes: low halves of columns 0..3, high ones of 4..7
    logic [7:0] pair;
    assign four = both[32*n+:32];
    assign pair = four[{place_1[1:0], 3'd0}+:8];
    w4_weight weight (
        .clk(clk),
        .value(place_1[2] ? pair[7:4] : pair[3:0]),
        .zero(zero_points[4*n+:4]),
        .scale(scale_line[16*n+:16]),
        .made(weights[16*n+:16])
    );
  end

  always_ff @(posedge clk) begin
    valid_1 <= turning;
    weights_valid <= valid_1;
    if (unit_valid) begin
      taken[ask_room] <= 1'b1;
      where[ask_room] <= unit_where;
      group[ask_room] <= unit_group;
      arrived[ask_room] <= 4'd0;
      ask_room <= !ask_room;
    end
    if (line_valid) arrived[line_room] <= arrived[line_room] + 4'd1;
    if (turning) begin
      column <= column + 5'd1;
      if (column == 5'd31) begin
        taken[turn_room] <= 1'b0;
        turn_room <= !turn_room;
      end
    end
    if (rst || restart) begin
      taken <= 2'b00;
      ask_room <= 1'b0;
      turn_room <= 1'b0;
      column <= 5'd0;
      valid_1 <= 1'b0;
      weights_valid <= 1'b0;
    end
  end
endmodule
