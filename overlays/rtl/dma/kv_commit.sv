// SPDX-License-Identifier: Apache-2.0
// KV_COMMIT: of the command's layers the step header's COPY and COMMIT operations, in order, read from the control
// bank. A committed slot goes to the page that the page table has for its position; positions that follow each other in
// both pages go together. What an operation reads begins when all that was written before is there.
module kv_commit
  import abi_types::*;
  import dma_types::*;
(
    input  logic              clk,
    input  logic              rst,
    input  logic              start,         // one cycle; the inputs are held
    input  kv_commit_record_t command,
    input  layout_t           layout,
    input  logic [7:0]        control_bank,
    input  logic [7:0]        table_bank,
    input  logic [31:0]       table_line,
    input  logic [31:0]       max_scratch,
    input  logic [31:0]       max_sequences,
    input  logic [31:0]       max_tiles,
    input  logic [31:0]       op_count,
    input  logic [31:0]       ops_offset,
    input  logic [31:0]       path_count,
    input  logic [31:0]       path_offset,
    output logic              fetch_start,
    output bank_t             fetch_bank,
    output address_t          fetch_address,
    output logic [4:0]        fetch_count,
    input  logic              fetch_busy,
    input  logic [127:0]      fetched,
    output logic              look,
    output range_t            range,
    input  logic              look_over,
    input  logic              covered,
    output logic              move_start,
    output move_t             move,
    input  logic              move_done,
    input  logic              move_failed,
    input  logic              settled,       // no copy is under way
    output logic              done,          // one cycle; copies may be under way
    output logic [7:0]        status
);
  typedef enum logic [4:0] {
    IDLE, OPS, OPS_ANSWER, PATH, PATH_ANSWER, OP, OP_READ, DECODE, SLOT, SLOT_READ, PLACE, ENTRY, ENTRY_ANSWER,
    ENTRY_FETCH, ENTRY_READ, JOIN, MOVE, MOVING
  } state_t;
  state_t state;
  logic refused;
  logic [16:0] layers;
  logic [9:0] op_number;
  logic ops_end;
  kv_op_t op;
  logic [31:0] at;           // positions of the path that are moved
  logic [5:0] count;         // found behind them
  position_t from, to, first_from, first_to;
  logic [31:0] position;
  logic [26:0] tile;
  logic [37:0] row_line;     // of the table
  logic [16:0] tiles_up;
  logic [11:0] table_width;  // lines of a sequence
  address_t entry;
  logic follows, missing, wrong;
  assign layers = command.layers != 16'd0 ? {1'b0, command.layers} : {1'b0, layout.layers} - {1'b0, command.kv_layer};
  assign refused = !layout_right(layout) || command.kv_layer > layout.layers ||
      {1'b0, command.kv_layer} + layers > {1'b0, layout.layers} || op_count > 32'(LORA_MAX_KV_OPS) ||
      path_count > 32'(LORA_MAX_ROWS * LORA_MAX_SEQUENCES);
  assign tiles_up = max_tiles[16:0] + 17'd31;
  assign table_width = tiles_up[16:5];
  assign position = op.a + at + 32'(count);
  assign tile = position[31:5];
  assign entry = {row_line[31:0], 6'd0} + 38'({tile, 1'b0});
  assign follows = from.page == first_from.page && {1'b0, from.lane} == {1'b0, first_from.lane} + count &&
      to.page == first_to.page && {1'b0, to.lane} == {1'b0, first_to.lane} + count;

  logic [31:0] slot;
  assign slot = 32'(fetched[15:0]);

  // --- what is refused -------------------------------------------------------------------------------
  logic of_path, of_page;
  assign of_path = op.kind == 16'(LORA_KV_COMMIT);
  assign of_page = op.kind == 16'(LORA_KV_COPY);
  always_comb begin
    unique case (state)
      SLOT_READ: missing = !fetch_busy && (slot >= max_scratch ||
          32'(op.sequence_number) >= max_sequences || 32'(tile) >= max_tiles);
      ENTRY_ANSWER: missing = look_over && !covered;
      ENTRY_READ: missing = !fetch_busy && {1'b0, fetched[15:0]} >= layout.page_count;
      default: missing = 1'b0;
    endcase
    unique case (state)
      OPS_ANSWER, PATH_ANSWER: wrong = look_over && !covered;
      DECODE: wrong = (of_path && (op.b > path_count || op.c > path_count - op.b)) ||
          (of_page && (op.a >= 32'(layout.page_count) || op.b >= 32'(layout.page_count) ||
                       op.c > 32'(LORA_TILE_POSITIONS)));
      MOVING: wrong = move_done && move_failed;
      default: wrong = missing && count == 6'd0;
    endcase
  end

  // --- what is asked for -----------------------------------------------------------------------------
  always_comb begin
    unique case (state)
      OPS: range = '{bank: control_bank, first: 56'(ops_offset), bytes: 40'({op_count, 4'd0})};
      PATH: range = '{bank: control_bank, first: 56'(path_offset), bytes: 40'({path_count, 1'b0})};
      default: range = '{bank: table_bank, first: 56'({row_line, 6'd0}) + 56'({tile, 1'b0}), bytes: 40'd2};
    endcase
    unique case (state)
      OP: begin
        fetch_bank = control_bank[5:0];
        fetch_address = 38'(ops_offset) + 38'({op_number, 4'd0});
        fetch_count = 5'd16;
      end
      SLOT: begin
        fetch_bank = control_bank[5:0];
        fetch_address = 38'(path_offset) + 38'({op.b + at + 32'(count), 1'b0});
        fetch_count = 5'd2;
      end
      default: begin
        fetch_bank = table_bank[5:0];
        fetch_address = entry;
        fetch_count = 5'd2;
      end
    endcase
  end
  assign look = state == OPS || state == PATH || state == ENTRY;
  assign ops_end = op_number == op_count[9:0];
  assign fetch_start = ((state == OP && !ops_end) || state == SLOT || state == ENTRY_FETCH) && settled;
  assign move_start = state == MOVE;
  assign move = '{
      store: 1'b0,
      index: (32'(command.kv_layer) * 32'(layout.heads)) << 1,
      heads: 32'(layers) * 32'(layout.heads),
      from: first_from,
      to: first_to,
      count: count,
      row: 6'd0,
      k: '0,
      v: '0,
      k_scales: '0,
      v_scales: '0
  };

  always_ff @(posedge clk) begin
    done <= 1'b0;
    unique case (state)
      OPS: state <= OPS_ANSWER;
      OPS_ANSWER:
      if (look_over) state <= path_count == 32'd0 ? OP : PATH;
      PATH: state <= PATH_ANSWER;
      PATH_ANSWER:
      if (look_over) state <= OP;
      OP:
      if (ops_end) begin
        done <= 1'b1;
        state <= IDLE;
      end else if (settled) state <= OP_READ;
      OP_READ:
      if (!fetch_busy) begin
        op <= fetched;
        op_number <= op_number + 10'd1;
        state <= DECODE;
      end
      DECODE: begin
        at <= 32'd0;
        count <= 6'd0;
        first_from <= '{page: op.a[16:0], lane: 5'd0};
        first_to <= '{page: op.b[16:0], lane: 5'd0};
        state <= OP;
        if (of_path && op.c != 32'd0) state <= SLOT;
        if (of_page) begin
          count <= op.c[5:0];
          state <= MOVE;
        end
      end
      // a position of the path and its place
      SLOT: if (settled) state <= SLOT_READ;
      SLOT_READ:
      if (!fetch_busy) begin
        from <= '{page: 17'(slot[15:5]), lane: slot[4:0]};
        to.lane <= position[4:0];
        state <= PLACE;
      end
      PLACE: begin
        row_line <= 38'(table_line) + 38'(op.sequence_number) * 38'(table_width);
        state <= ENTRY;
      end
      ENTRY: state <= ENTRY_ANSWER;
      ENTRY_ANSWER:
      if (look_over) state <= ENTRY_FETCH;
      ENTRY_FETCH: if (settled) state <= ENTRY_READ;
      ENTRY_READ:
      if (!fetch_busy) begin
        to.page <= 17'(fetched[15:0]);
        state <= JOIN;
      end
      MOVE: state <= MOVING;
      MOVING:
      if (move_done) begin
        at <= at + 32'(count);
        count <= 6'd0;
        state <= of_path && at + 32'(count) != op.c ? SLOT : OP;
      end
      JOIN: begin  // the position is one more of those that go together, or ends them
        state <= MOVE;
        if (count == 6'd0) begin
          first_from <= from;
          first_to <= to;
        end
        if (count == 6'd0 || follows) begin
          count <= count + 6'd1;
          if (from.page != to.page && at + 32'(count) + 32'd1 != op.c) state <= SLOT;
        end
      end
      default:
      if (start) begin
        op_number <= 10'd0;
        status <= refused && op_count != 32'd0 ? 8'(LORA_ERR_SIZE) : 8'(LORA_OK);
        done <= refused || op_count == 32'd0;
        state <= refused || op_count == 32'd0 ? IDLE : OPS;
      end
    endcase
    if (missing) state <= MOVE;  // what was found before it
    if (wrong) begin
      status <= state == DECODE || missing ? 8'(LORA_ERR_KV) : 8'(LORA_ERR_ADDRESS);
      done <= 1'b1;
      state <= IDLE;
    end
    if (rst) begin
      state <= IDLE;
      done <= 1'b0;
    end
  end
endmodule
