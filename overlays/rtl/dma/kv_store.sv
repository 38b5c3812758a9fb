// SPDX-License-Identifier: Apache-2.0
// KV_STORE: the rows' K and V into their scratch slots. Rows that follow each other and have slots of one page are
// checked together, then moved.
module kv_store
  import abi_types::*;
  import dma_types::*;
(
    input  logic             clk,
    input  logic             rst,
    input  logic             start,          // one cycle; the inputs are held
    input  kv_store_record_t command,
    input  layout_t          layout,
    input  logic [31:0]      max_scratch,
    input  logic [31:0]      row_count,
    output logic [5:0]       row,            // of the step; in the next cycle:
    input  logic [31:0]      row_slot,
    output logic             look,
    output range_t           range,
    input  logic             look_over,
    input  logic             covered,
    output logic             move_start,
    output move_t            move,
    input  logic             move_done,
    input  logic             move_failed,
    output logic             done,           // one cycle; copies may be under way
    output logic [7:0]       status
);
  typedef enum logic [2:0] {IDLE, SLOT, SEEN, LOOK, ANSWER, MOVE, MOVING} state_t;
  state_t state;
  logic refused, right, joins;
  logic [6:0] first, count, behind;  // behind those that are found
  logic [16:0] page;
  logic [1:0] part;       // V, scales
  address_t reach, scale_reach, first_reach, first_scale_reach, last_reach, last_scale_reach;
  logic [31:0] columns;
  assign refused = !layout_right(layout) || command.head_dim != layout.head_dim ||
      command.kv_heads > layout.heads || command.kv_layer >= layout.layers || row_count > 32'(LORA_MAX_ROWS);
  assign right = !row_slot[31] && row_slot < max_scratch;
  assign joins = right && (count == 7'd0 || row_slot[21:5] == page);
  assign behind = first + count;
  assign row = behind[5:0];

  logic [31:0] part_offset;
  address_t part_reach;
  assign part_reach = part[1] ? last_scale_reach : last_reach;
  assign columns = 32'(command.kv_heads) * 32'(command.head_dim);
  assign look = state == LOOK;
  always_comb begin
    unique case (part)
      2'd0: part_offset = command.k_offset;
      2'd1: part_offset = command.v_offset;
      2'd2: part_offset = command.k_scales;
      default: part_offset = command.v_scales;
    endcase
  end
  assign range = '{
      bank: 8'(LORA_BANK_ONCHIP),
      first: 56'(part_offset) + 56'(part_reach),
      bytes: part[1] ? 40'({command.kv_heads, 1'b0}) : wide_values(layout) ? 40'({columns, 1'b0}) : 40'(columns)
  };
  assign move_start = state == MOVE;
  assign move = '{
      store: 1'b1,
      index: (32'(command.kv_layer) * 32'(layout.heads)) << 1,
      heads: 32'(command.kv_heads),
      from: '0,
      to: '{page: page, lane: 5'd0},
      count: count[5:0],
      row: first[5:0],
      k: 38'(command.k_offset) + first_reach,
      v: 38'(command.v_offset) + first_reach,
      k_scales: 38'(command.k_scales) + first_scale_reach,
      v_scales: 38'(command.v_scales) + first_scale_reach
  };

  always_ff @(posedge clk) begin
    done <= 1'b0;
    unique case (state)
      SLOT: state <= SEEN;
      SEEN: begin
        if (!right && count == 7'd0) begin
          status <= 8'(LORA_ERR_ROW);
          done <= 1'b1;
          state <= IDLE;
        end else begin
          part <= 2'd0;
          state <= LOOK;
          if (joins) begin
            if (count == 7'd0) begin
              page <= row_slot[21:5];
              first_reach <= reach;
              first_scale_reach <= scale_reach;
            end
            count <= count + 7'd1;
            last_reach <= reach;
            last_scale_reach <= scale_reach;
            reach <= reach + 38'(command.stride);
            scale_reach <= scale_reach + 38'(command.scale_stride);
            if (count + 7'd1 != 7'(LORA_TILE_POSITIONS) && 32'(behind) + 32'd1 != row_count) state <= SLOT;
          end
        end
      end
      LOOK: state <= ANSWER;
      ANSWER:
      if (look_over) begin
        part <= part + 2'd1;
        state <= part == (has_scales(layout) ? 2'd3 : 2'd1) ? MOVE : LOOK;
        if (!covered) begin
          status <= 8'(LORA_ERR_ADDRESS);
          done <= 1'b1;
          state <= IDLE;
        end
      end
      MOVE: state <= MOVING;
      MOVING:
      if (move_done) begin
        first <= behind;
        count <= 7'd0;
        state <= SLOT;
        if (move_failed || 32'(behind) == row_count) begin
          if (move_failed) status <= 8'(LORA_ERR_ADDRESS);
          done <= 1'b1;
          state <= IDLE;
        end
      end
      default:
      if (start) begin
        first <= 7'd0;
        count <= 7'd0;
        reach <= '0;
        scale_reach <= '0;
        status <= refused ? 8'(LORA_ERR_SIZE) : 8'(LORA_OK);
        done <= refused || row_count == 32'd0;
        state <= refused || row_count == 32'd0 ? IDLE : SLOT;
      end
    endcase
    if (rst) begin
      state <= IDLE;
      done <= 1'b0;
    end
  end
endmodule
