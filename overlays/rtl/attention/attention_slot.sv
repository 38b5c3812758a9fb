// SPDX-License-Identifier: Apache-2.0
// Attention as a unit of the sequencer, or a part of one: checks a command as the kernels do, with their status, looks at
// the rows of the step and their paths, and tells the result. Blocks, page table and slopes are checked by the memory
// port while the unit runs.
module attention_slot
  import abi_types::*;
#(
    parameter int MAX_HEAD_DIM  = 256,     // of the unit; more is ERR_SIZE
    parameter int MAX_POSITIONS = 131072
) (
    input  logic         clk,
    input  logic         rst,
    // sequencer
    input  logic         unit_announce,
    input  logic [511:0] unit_line,
    input  logic [6:0]   unit_rows,
    output logic         room,                   // for one more announce
    input  logic         unit_start,
    input  logic         unit_abort,
    output logic         unit_idle,
    output logic         result_valid,
    input  logic         result_ready,
    output logic [1:0]   result_state,
    output logic [7:0]   result_status,
    output logic [31:0]  result_nonfinite_count,
    output logic [31:0]  result_nonfinite_row,   // of the step
    // list and step, held while the unit runs
    input  logic [31:0]  onchip_bytes,
    input  logic [15:0]  kv_type,
    input  logic [15:0]  list_head_dim,
    input  logic [7:0]   list_kv_bank_count,
    input  logic [31:0]  list_max_tiles,
    output logic [5:0]   row,                    // of the command; in the next cycle:
    output logic         row_selected,           // it counts among the selected rows
    input  logic [5:0]   row_number,             // in the step
    input  logic [31:0]  row_sequence,           // struct lora_row
    input  logic [31:0]  row_slot,
    input  logic [31:0]  row_committed,          // of its sequence
    output logic [6:0]   slot,                   // in the next cycle:
    input  logic [15:0]  slot_parent,            // struct lora_slot
    // memory port, beside the unit's
    input  logic         line_refused,
    input  logic         line_error,
    input  logic         write_refused,
    input  logic         write_error,
    input  logic         write_open,
    // attention; it takes more of the list by itself
    output logic         abort_valid,
    output logic         command_valid,
    input  logic         command_ready,
    output logic [1:0]   kind,
    output logic [8:0]   head_dim,
    output logic [6:0]   rows,
    output logic [15:0]  q_heads,
    output logic [15:0]  q_first,
    output logic [15:0]  kv_first,
    output logic [15:0]  group,
    output logic [5:0]   onchip_bank,
    output logic [31:0]  q_offset,
    output logic [31:0]  q_stride,
    output logic [31:0]  y_offset,
    output logic [31:0]  y_stride,
    output logic [31:0]  scale,
    output logic [31:0]  v_scale,
    output logic [31:0]  cap,
    output logic [31:0]  window,
    output logic [1:0]   slope_kind,
    output logic [5:0]   slope_bank,
    output logic [31:0]  slope_line,
    output logic [15:0]  kv_layer,
    output logic [16:0]  max_tiles,
    input  logic [6:0]   unit_row,
    output logic [15:0]  unit_row_sequence,
    output logic [17:0]  unit_row_committed,
    output logic [6:0]   unit_row_slot,
    input  logic [6:0]   unit_slot,
    output logic         unit_slot_is_last,
    output logic [6:0]   unit_slot_parent,
    input  logic         done,
    input  logic [31:0]  nonfinite_count,
    input  logic [31:0]  nonfinite_row
);
  typedef enum logic [3:0] {IDLE, FIELDS, RANGES, FIRST, LAST, ROW, FOUND, WALK, VERDICT, RUN} state_t;
  state_t state;
  attention_record_t told, command;
  logic [6:0] told_rows;
  logic held, over, begins, busy, looks, wrong, integers;
  logic [7:0] status;
  logic [5:0] look_row;

  // --- fields --------------------------------------------------------------------------------------
  assign kind = kv_type[1:0];
  assign head_dim = command.head_dim[8:0];
  assign q_heads = command.q_heads;
  assign q_first = command.q_first;
  assign kv_first = command.kv_first;
  assign group = command.group;
  assign onchip_bank = 6'(LORA_BANK_ONCHIP);
  assign q_offset = command.q_offset;
  assign q_stride = command.q_stride;
  assign y_offset = command.y_offset;
  assign y_stride = command.y_stride;
  assign scale = command.scale;
  assign v_scale = command.v_scale;
  assign cap = command.cap;
  assign window = command.window;
  assign slope_kind = command.slope_kind[1:0];
  assign slope_bank = command.slope_bank[5:0];
  assign slope_line = command.slope_line;
  assign kv_layer = command.kv_layer;
  assign max_tiles = list_max_tiles[16:0];
  assign integers = kv_type == 16'(LORA_KV_INT8);
  assign wrong = command.group == '0 || command.head_dim != list_head_dim || command.head_dim == '0 ||
      command.head_dim > 16'(MAX_HEAD_DIM) || list_kv_bank_count == '0 || list_max_tiles > 32'h10000 ||
      kv_type > 16'(LORA_KV_INT8_HEADS) || (kv_type != 16'(LORA_KV_FP16) && command.head_dim[0]);

  // --- rows of q and y -----------------------------------------------------------------------------
  logic fits, outside;
  logic [1:0] step;
  logic [31:0] width;
  assign width = 32'(command.q_heads) * 32'(command.head_dim[8:0]);
  row_range range (
      .clk(clk),
      .bank(8'(LORA_BANK_ONCHIP)),
      .offset(step[0] ? command.y_offset : command.q_offset),
      .stride(step[0] ? command.y_stride : command.q_stride),
      .more(6'(rows - 7'd1)),
      .bytes(integers && !step[0] ? width : width << 1),
      .element(integers && !step[0] ? 2'd0 : 2'd1),
      .onchip_bytes(onchip_bytes),
      .fits(fits)
  );

  // --- heads: those of K and V that the first and the last query head read -------------------------
  logic divides, divided;
  logic [16:0] query, kv_head;
  assign query = 17'(command.q_first) + (state == LAST ? 17'(command.q_heads) - 17'd1 : 17'd0);
  divide #(
      .BITS(17)
  ) of_group (
      .clk(clk),
      .rst(rst || unit_abort),
      .start((state == FIRST || state == LAST) && !divides && status == 8'(LORA_OK)),
      .dividend(query),
      .divisor(17'(command.group)),
      .done(divided),
      .quotient(kv_head),
      // verilator lint_off PINCONNECTEMPTY
      .remainder()
      // verilator lint_on PINCONNECTEMPTY
  );

  // --- rows of the step, and their paths -----------------------------------------------------------
  logic [6:0] at, check_slot, parent;
  logic [7:0] depth;
  logic asked, last_slot, bad_parent;
  assign row_selected = (command.flags & 16'(LORA_FLAG_SELECTED)) != '0;
  assign row = looks ? look_row : state == RUN ? unit_row[5:0] : at[5:0];
  assign slot = state == RUN ? unit_slot : check_slot;
  assign last_slot = slot_parent == 16'hffff;
  assign parent = slot_parent[6:0];
  assign bad_parent = slot_parent >= 16'(LORA_MAX_SCRATCH);
  assign unit_row_sequence = row_sequence[15:0];
  assign unit_row_committed = row_committed[17:0];
  assign unit_row_slot = row_slot[6:0];
  assign unit_slot_is_last = last_slot;
  assign unit_slot_parent = parent;

  always_ff @(posedge clk) begin
    if (unit_announce) {held, told, told_rows} <= {1'b1, unit_line, unit_rows};
    unique case (state)
      FIELDS: begin
        step <= 2'd0;
        {outside, divides, asked} <= 3'b000;
        at <= 7'd0;
        status <= wrong ? 8'(LORA_ERR_SIZE) : 8'(LORA_OK);
        state <= wrong ? VERDICT : RANGES;
      end
      RANGES: begin  // what was asked in the cycle before is here
        step <= step + 2'd1;
        if (step != 2'd0 && !fits) outside <= 1'b1;
        if (step == 2'd2) begin
          state <= command.q_heads == '0 ? VERDICT : FIRST;
          if (outside || !fits) status <= 8'(LORA_ERR_ADDRESS);
          else if (command.slope_kind > 8'(LORA_SLOPE_BF16_POSITION)) status <= 8'(LORA_ERR_OPCODE);
          else if (command.slope_kind != 8'(LORA_SLOPE_NONE) && command.slope_bank > 8'(LORA_BANK_ONCHIP))
            status <= 8'(LORA_ERR_ADDRESS);
        end
      end
      FIRST, LAST: begin
        divides <= 1'b1;
        if (status != 8'(LORA_OK)) state <= VERDICT;
        else if (divides && divided) begin
          divides <= 1'b0;
          if (kv_head < 17'(command.kv_first) || kv_head - 17'(command.kv_first) >= 17'(command.kv_heads))
            status <= 8'(LORA_ERR_SIZE);
          state <= state == FIRST ? LAST : ROW;
        end
      end
      ROW: begin
        asked <= !asked;  // its fields are here in the second cycle
        depth <= 8'd1;
        check_slot <= row_slot[6:0];
        if (status != 8'(LORA_OK)) state <= VERDICT;
        else if (asked) begin
          if (row_sequence >= LORA_MAX_SEQUENCES || row_slot >= LORA_MAX_SCRATCH ||
              37'(row_committed) > {list_max_tiles, 5'd0})
            status <= 8'(LORA_ERR_ROW);
          state <= FOUND;
        end
      end
      FOUND: state <= status != 8'(LORA_OK) ? VERDICT : WALK;
      WALK: begin
        depth <= depth + 8'd1;
        check_slot <= parent;
        state <= FOUND;
        if (last_slot) begin
          at <= at + 7'd1;
          state <= at + 7'd1 == rows ? VERDICT : ROW;
          asked <= 1'b0;
          if (33'(row_committed) + 33'(depth) > 33'(MAX_POSITIONS)) status <= 8'(LORA_ERR_SIZE);
        end else if (bad_parent || depth == 8'(LORA_MAX_SCRATCH)) begin
          status <= 8'(LORA_ERR_ROW);
          state <= VERDICT;
        end
      end
      VERDICT: state <= RUN;
      RUN: if (over) state <= IDLE;
      default: ;
    endcase
    begins <= state == VERDICT;
    if (unit_start) begin
      held <= 1'b0;
      command <= told;
      rows <= told_rows;
      state <= FIELDS;
    end
    if (rst || unit_abort) begin
      held <= 1'b0;
      begins <= 1'b0;
      state <= IDLE;
    end
  end
  assign room = !held;
  assign over = state == RUN && !busy && !begins;
  assign unit_idle = (state == IDLE || over) && !held && command_ready && !write_open;
  unit_run runs (
      .clk(clk),
      .rst(rst),
      .unit_abort(unit_abort),
      .start(begins),
      .status(status),
      .nothing(command.q_heads == '0),
      .busy(busy),
      .abort_valid(abort_valid),
      .command_valid(command_valid),
      .command_ready(command_ready),
      .done(done),
      .bad_index(1'b0),
      .nonfinite_count(nonfinite_count),
      .nonfinite_row(nonfinite_row),
      .line_refused(line_refused),
      .line_error(line_error),
      .write_refused(write_refused),
      .write_error(write_error),
      .write_open(write_open),
      .looks(looks),
      .look_row(look_row),
      .row_number(row_number),
      .result_valid(result_valid),
      .result_ready(result_ready),
      .result_state(result_state),
      .result_status(result_status),
      .result_nonfinite_count(result_nonfinite_count),
      .result_nonfinite_row(result_nonfinite_row)
  );
endmodule
