// SPDX-License-Identifier: Apache-2.0
// Which blocks a gather consists of, as every board works it out for itself: shares and segments in whole units,
// then for each source and row group blocks of consecutive segments, as many as one frame holds.
module gather_plan
  import abi_types::*;
  import router_types::*;
(
    input  logic             clk,
    input  logic             rst,
    input  logic             start,          // one cycle
    input  gather_t          gather,
    input  size_t            columns,
    input  logic [15:0]      share_unit,
    input  logic [15:0]      segment_unit,
    input  logic [6:0]       owners,
    output logic             done,           // one cycle
    output logic [8:0][26:0] segment_start,
    output logic             block_write,
    output logic [10:0]      block_where,    // source, row group, segment
    output block_t           block_value,
    output size_t            block_bytes,
    output logic             missing_write,
    output logic [4:0]       missing_where,  // row group, segment
    output size_t            missing_value
);
  typedef enum logic [3:0] {
    IDLE, DIVIDE, UNITS, SHARES, BLOCKS, SEGMENTS, SHARE, OVERLAP, SIZE, JOIN, CLOSE
  } state_t;
  state_t state, after;  // after a division
  logic [26:0] quotient, rest, quot_units, units_of_segments, units_at;
  logic [15:0] divisor;
  logic [4:0] bit_left;
  logic [6:0] rest_units, rest_at, source;
  logic [3:0] segment;
  logic [1:0] group, final_group;
  logic [27:0] difference;
  size_t share_begin, share_end, from, until_column, over, column, size, missing;
  logic [42:0] place;
  logic turn_of_units;
  logic [29:0] eighths;

  // a block that may grow
  logic open;
  block_t block, grown;
  logic [2:0] block_first;
  logic [4:0] number;
  logic joins;

  assign difference = {rest, quotient[26]} - {12'd0, divisor};
  assign final_group = last_group(gather.rows);
  assign eighths = {3'd0, units_of_segments} * {26'd0, segment};
  assign place = state == SEGMENTS ? {13'd0, 3'd0, eighths[29:3]} * {27'd0, segment_unit} :
      {16'd0, units_at} * {27'd0, share_unit};
  assign turn_of_units = {1'b0, rest_at} + {1'b0, rest_units} >= {1'b0, owners};
  assign from = share_begin > segment_start[segment] ? share_begin : segment_start[segment];
  assign until_column = share_end < segment_start[segment+4'd1] ? share_end : segment_start[segment+4'd1];
  assign joins = open && block_bytes + size <= size_t'(LORA_FRAME_PAYLOAD);
  always_comb begin
    grown = block;
    grown.segments = segment - {1'b0, block_first} + 4'd1;
    grown.columns = block.columns + over;
  end

  assign block_write = (state == OVERLAP) || (state == JOIN && over != '0 && open && !joins) ||
      (state == CLOSE && open);
  assign block_where = {source[5:0], group, state == OVERLAP ? segment[2:0] : block_first};
  assign block_value = state == OVERLAP ? '0 : block;
  assign missing_write = state == JOIN && source == gather.rank;
  assign missing_where = {group, segment[2:0]};
  assign missing_value = missing;
  assign done = state == CLOSE && source + 7'd1 == 7'(gather.boards) && group == final_group;

  function automatic size_t at_most(logic [42:0] value, size_t most);
    return value > 43'(most) ? most : size_t'(value);
  endfunction

  always_ff @(posedge clk) begin
    unique case (state)
      DIVIDE: begin
        rest <= difference[27] ? {rest[25:0], quotient[26]} : difference[26:0];
        quotient <= {quotient[25:0], !difference[27]};
        bit_left <= bit_left - 5'd1;
        if (bit_left == 5'd1) state <= after;
      end
      UNITS: begin  // of shares, to be divided among the owners
        divisor <= 16'(owners);
        rest <= '0;
        bit_left <= 5'd27;
        after <= SHARES;
        state <= DIVIDE;
      end
      SHARES: begin
        quot_units <= quotient;
        rest_units <= 7'(rest);
        quotient <= columns + size_t'(segment_unit) - size_t'(1);
        divisor <= segment_unit;
        rest <= '0;
        bit_left <= 5'd27;
        after <= BLOCKS;
        state <= DIVIDE;
      end
      BLOCKS: begin
        units_of_segments <= quotient;
        segment <= 4'd0;
        state <= SEGMENTS;
      end
      SEGMENTS: begin
        segment_start[segment] <= at_most(place, columns);
        segment <= segment + 4'd1;
        source <= 7'd0;
        share_end <= '0;
        units_at <= quot_units;
        rest_at <= rest_units;
        if (segment == 4'd8) state <= SHARE;
      end
      SHARE: begin
        share_begin <= share_end;
        share_end <= at_most(place, columns);
        if (turn_of_units) units_at <= units_at + quot_units + 27'd1;
        else units_at <= units_at + quot_units;
        rest_at <= turn_of_units ? rest_at + rest_units - owners : rest_at + rest_units;
        if (source + 7'd1 >= owners) share_end <= columns;
        group <= 2'd0;
        segment <= 4'd0;
        number <= 5'd0;
        open <= 1'b0;
        state <= OVERLAP;
      end
      OVERLAP: begin
        over <= until_column > from ? until_column - from : '0;
        column <= from;
        state <= SIZE;
      end
      SIZE: begin
        size <= (over << gather.shift) * size_t'(group_rows(gather.rows, group));
        missing <= ((segment_start[segment+4'd1] - segment_start[segment] - over) << gather.shift) *
            size_t'(group_rows(gather.rows, group));
        state <= JOIN;
      end
      JOIN: begin
        if (over != '0) begin
          open <= 1'b1;
          if (joins) begin
            block <= grown;
            block_bytes <= block_bytes + size;
          end else begin
            block <= '{valid: 1'b1, odd: number[0], segments: 4'd1, column: column, columns: over};
            block_first <= segment[2:0];
            block_bytes <= size;
            number <= number + 5'd1;
          end
        end
        segment <= segment + 4'd1;
        state <= segment == 4'd7 ? CLOSE : OVERLAP;
      end
      CLOSE: begin
        open <= 1'b0;
        segment <= 4'd0;
        group <= group + 2'd1;
        state <= OVERLAP;
        if (group == final_group) begin
          source <= source + 7'd1;
          state <= source + 7'd1 == 7'(gather.boards) ? IDLE : SHARE;
        end
      end
      default:
      if (start) begin
        quotient <= columns + size_t'(share_unit) - size_t'(1);
        divisor <= share_unit;
        rest <= '0;
        bit_left <= 5'd27;
        after <= UNITS;
        state <= DIVIDE;
      end
    endcase
    if (rst) state <= IDLE;
  end
endmodule
