// SPDX-License-Identifier: Apache-2.0
// Positions of all heads, one head after another: rows of the on-chip buffer into their lanes of a page, or lanes of
// one page into those of another. Every block must lie in one arena. K is a line a column, so of one position each
// value is a piece; V is moved as one run. K goes last, so the next head's blocks are looked up while its lines move.
module kv_heads
  import abi_types::*;
  import dma_types::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        start,         // one cycle; the inputs are held
    input  move_t       move,
    input  layout_t     layout,
    input  logic [31:0] stride,        // of rows, and of their scales
    input  logic [31:0] scale_stride,
    output logic [5:0]  row,           // of the step; in the next cycle:
    input  logic [4:0]  row_lane,
    output logic        look,
    output range_t      range,
    input  logic        look_over,
    input  logic        covered,
    output logic        copy_valid,
    input  logic        copy_ready,
    output copy_t       copy,
    output logic        done,          // one cycle; copies may be under way
    output logic        failed
);
  typedef enum logic [3:0] {IDLE, PLACE, PLACING, LOOK, ANSWER, ROW, LANE, COPY, NEXT} state_t;
  state_t state;
  typedef struct packed {
    bank_t    bank;
    address_t at;
  } place_t;

  logic next, from_busy, to_busy;
  bank_t from_bank, to_bank;
  logic [49:0] from_line, to_line;
  page_walk from_page (
      .clk(clk),
      .rst(rst),
      .start(state == PLACE),
      .layout(layout),
      .page(move.from.page),
      .index(move.index),
      .next(next),
      .busy(from_busy),
      .bank(from_bank),
      .line(from_line)
  );
  page_walk to_page (
      .clk(clk),
      .rst(rst),
      .start(state == PLACE),
      .layout(layout),
      .page(move.to.page),
      .index(move.index),
      .next(next),
      .busy(to_busy),
      .bank(to_bank),
      .line(to_line)
  );

  logic values, target;  // which block is looked at: V, that where bytes go
  place_t from_k, from_v, to_k, to_v;
  logic [31:0] left;
  logic [5:0] number;    // of the row
  logic [4:0] from_lane, to_lane;
  address_t row_reach, scale_reach, head_reach, scale_head;
  logic [1:0] part;      // V, and the scales
  logic ends;
  logic [16:0] bytes, each;
  logic [21:0] value_bytes;
  assign bytes = head_bytes(layout);
  assign value_bytes = {bytes, 5'd0};
  assign next = state == ANSWER && look_over && target;
  assign look = state == LOOK;
  assign range = '{
      bank: {2'd0, target ? to_bank : from_bank},
      first: {target ? to_line : from_line, 6'd0},
      bytes: {17'd0, block_lines(layout), 6'd0}
  };
  assign row = move.row + number;

  // --- a copy ----------------------------------------------------------------------------------------
  logic of_v, of_scales;
  logic [6:0] width;     // bytes of a value
  place_t from_block, to_block;
  address_t source, target_at, from_part, to_part;
  logic [5:0] positions;
  assign {of_scales, of_v} = part;
  assign width = wide_values(layout) ? 7'd2 : 7'd1;
  assign from_block = of_v ? from_v : from_k;
  assign to_block = of_v ? to_v : to_k;
  assign each = of_scales ? 17'd2 : of_v ? bytes : {10'd0, width};
  assign positions = move.store ? 6'd1 : move.count;
  function automatic address_t lane_part(input logic [4:0] lane);
    if (of_scales) return 38'(value_bytes) + 38'({lane, 1'b0});
    return of_v ? 38'(lane) * 38'(bytes) : 38'(lane) << width[1];
  endfunction
  assign from_part = lane_part(from_lane);
  assign to_part = lane_part(to_lane);
  always_comb begin
    unique case (part)
      2'd0: source = move.k + head_reach + row_reach;
      2'd1: source = move.v + head_reach + row_reach;
      2'd2: source = move.k_scales + scale_head + scale_reach;
      default: source = move.v_scales + scale_head + scale_reach;
    endcase
    if (!move.store) source = from_block.at + from_part;
  end
  assign target_at = to_block.at + to_part;
  assign copy_valid = state == COPY;
  assign copy = '{
      from_bank: move.store ? bank_t'(LORA_BANK_ONCHIP) : from_block.bank,
      from: source,
      from_step: move.store ? width : width << 5,
      to_bank: to_block.bank,
      to: target_at,
      to_step: width << 5,
      rows: part == 2'd0 ? {1'b0, layout.head_dim} : 17'd1,
      bytes: 32'(positions) * 32'(each),
      backward: 1'b0,
      sums: 1'b0
  };
  assign ends = part == 2'd0;

  always_ff @(posedge clk) begin
    done <= 1'b0;
    unique case (state)
      PLACE: begin
        state <= PLACING;
        if (move.to.page >= layout.page_count || (!move.store && move.from.page >= layout.page_count)) begin
          failed <= 1'b1;
          done <= 1'b1;
          state <= IDLE;
        end
      end
      PLACING: if (!from_busy && !to_busy) state <= LOOK;
      LOOK: state <= ANSWER;
      ANSWER:
      if (look_over) begin
        if (target && values) to_v <= {to_bank, to_line[31:0], 6'd0};
        if (target && !values) to_k <= {to_bank, to_line[31:0], 6'd0};
        if (!target && values) from_v <= {from_bank, from_line[31:0], 6'd0};
        if (!target && !values) from_k <= {from_bank, from_line[31:0], 6'd0};
        target <= !target || move.store;
        values <= values || target;
        state <= target && values ? ROW : LOOK;
        if (!covered) begin
          failed <= 1'b1;
          done <= 1'b1;
          state <= IDLE;
        end
        number <= 6'd0;
        row_reach <= '0;
        scale_reach <= '0;
      end
      ROW: state <= LANE;
      LANE: begin
        from_lane <= move.from.lane;
        to_lane <= move.store ? row_lane : move.to.lane;
        part <= has_scales(layout) ? 2'd3 : 2'd1;
        state <= COPY;
      end
      COPY:
      if (copy_ready) begin
        part <= part - 2'd1;
        if (ends) begin
          number <= number + 6'd1;
          row_reach <= row_reach + 38'(stride);
          scale_reach <= scale_reach + 38'(scale_stride);
          state <= move.store && number + 6'd1 != move.count ? ROW : NEXT;
        end
      end
      NEXT: begin
        head_reach <= head_reach + 38'(bytes);
        scale_head <= scale_head + 38'd2;
        left <= left - 32'd1;
        values <= 1'b0;
        target <= move.store;
        state <= LOOK;
        if (left == 32'd1) begin
          done <= 1'b1;
          state <= IDLE;
        end
      end
      default:
      if (start) begin
        left <= move.heads;
        values <= 1'b0;
        target <= move.store;
        head_reach <= '0;
        scale_head <= '0;
        failed <= 1'b0;
        state <= PLACE;
        if (move.heads == 32'd0) begin
          done <= 1'b1;
          state <= IDLE;
        end
      end
    endcase
    if (rst) begin
      state <= IDLE;
      done <= 1'b0;
    end
  end
endmodule
