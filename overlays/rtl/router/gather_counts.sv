// SPDX-License-Identifier: Apache-2.0
// Bytes of each row group and segment that have not come yet, and how many row groups of a segment are complete.
module gather_counts
  import router_types::*;
(
    input  logic             clk,
    input  logic             rst,
    input  logic             clear,           // one cycle: the next gather begins
    input  gather_t          gather,
    input  logic [8:0][26:0] segment_start,
    // of the plan
    input  logic             missing_write,
    input  logic [4:0]       missing_where,   // row group, segment
    input  size_t            missing_value,
    // what the lanes have filed: held until ready, which comes once it is counted
    input  logic [1:0]       filed_valid,
    output logic [1:0]       filed_ready,
    input  block_t           filed_block0,
    input  block_t           filed_block1,
    input  logic [4:0]       filed_where0,
    input  logic [4:0]       filed_where1,
    input  logic [12:0]      filed_bytes0,
    input  logic [12:0]      filed_bytes1,
    output logic             complete,
    output done_t            done
);
  typedef enum logic [1:0] {IDLE, OVERLAP, SIZE, TAKE} state_t;
  state_t state;
  logic lane;
  block_t block;
  logic [4:0] where;
  logic [12:0] bytes;
  size_t missing[32], total, columns, size, left, from, until_column;
  logic [3:0] segments;  // to go
  logic single;

  assign complete = total == '0;
  assign filed_ready = {lane, !lane} & {2{state == TAKE && segments == 4'd1}};
  assign from = block.column > segment_start[where[2:0]] ? block.column : segment_start[where[2:0]];
  assign until_column = block.column + block.columns < segment_start[4'(where[2:0])+4'd1] ?
      block.column + block.columns : segment_start[4'(where[2:0])+4'd1];
  assign left = missing[where] - size;

  always_ff @(posedge clk) begin
    if (missing_write) begin
      missing[missing_where] <= missing_value;
      total <= total + missing_value;
      if (missing_value == '0) done[missing_where[2:0]] <= done[missing_where[2:0]] + 3'd1;
    end
    unique case (state)
      IDLE: begin
        lane <= !filed_valid[0];
        block <= filed_valid[0] ? filed_block0 : filed_block1;
        where <= filed_valid[0] ? filed_where0 : filed_where1;
        bytes <= filed_valid[0] ? filed_bytes0 : filed_bytes1;
        segments <= filed_valid[0] ? filed_block0.segments : filed_block1.segments;
        single <= (filed_valid[0] ? filed_block0.segments : filed_block1.segments) == 4'd1;
        if (filed_valid != 2'b00) state <= OVERLAP;
      end
      OVERLAP: begin
        columns <= until_column > from ? until_column - from : '0;
        state <= SIZE;
      end
      SIZE: begin
        size <= single ? size_t'(bytes) :
            (columns << gather.shift) * size_t'(group_rows(gather.rows, where[4:3]));
        state <= TAKE;
      end
      default: begin
        missing[where] <= left;
        total <= total - size;
        if (size != '0 && left == '0) done[where[2:0]] <= done[where[2:0]] + 3'd1;
        where[2:0] <= where[2:0] + 3'd1;
        segments <= segments - 4'd1;
        state <= segments == 4'd1 ? IDLE : OVERLAP;
      end
    endcase
    if (clear) begin
      total <= '0;
      done <= '0;
    end
    if (rst) begin
      state <= IDLE;
      total <= '0;
    end
  end
endmodule
