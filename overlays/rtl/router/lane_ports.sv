// SPDX-License-Identifier: Apache-2.0
// Two lanes at one memory port. What is on offer stays until it is taken.
module lane_ports (
    input  logic              clk,
    input  logic              rst,
    // lanes
    input  logic [1:0]        lane_read_valid,
    output logic [1:0]        lane_read_ready,
    input  logic [1:0][20:0]  lane_read_line,
    input  logic [1:0][2:0]   lane_read_tag,
    output logic [1:0]        lane_line_valid,
    input  logic [1:0]        lane_write_valid,
    output logic [1:0]        lane_write_ready,
    input  logic [1:0][20:0]  lane_write_line,
    input  logic [1:0][63:0]  lane_write_bytes,
    input  logic [1:0][511:0] lane_write_data,
    // memory
    output logic              read_valid,
    input  logic              read_ready,
    output logic [20:0]       read_line,
    output logic [3:0]        read_tag,
    input  logic              line_valid,
    input  logic [3:0]        line_tag,
    output logic              write_valid,
    input  logic              write_ready,
    output logic [20:0]       write_line,
    output logic [63:0]       write_bytes,
    output logic [511:0]      write_data
);
  // the lane whose turn it is, unless it wants nothing; it keeps its turn until it is taken
  logic read_turn, write_turn, read_lane, write_lane;
  assign read_lane = read_turn ^ !lane_read_valid[read_turn];
  assign write_lane = write_turn ^ !lane_write_valid[write_turn];
  assign read_valid = lane_read_valid[read_lane];
  assign read_line = lane_read_line[read_lane];
  assign read_tag = {read_lane, lane_read_tag[read_lane]};
  assign lane_read_ready = {read_lane, !read_lane} & {2{read_ready}};
  assign lane_line_valid = {line_tag[3], !line_tag[3]} & {2{line_valid}};
  assign write_valid = lane_write_valid[write_lane];
  assign write_line = lane_write_line[write_lane];
  assign write_bytes = lane_write_bytes[write_lane];
  assign write_data = lane_write_data[write_lane];
  assign lane_write_ready = {write_lane, !write_lane} & {2{write_ready}};
  always_ff @(posedge clk) begin
    if (read_valid) read_turn <= read_lane ^ read_ready;
    if (write_valid) write_turn <= write_lane ^ write_ready;
    if (rst) {read_turn, write_turn} <= 2'b00;
  end
endmodule
