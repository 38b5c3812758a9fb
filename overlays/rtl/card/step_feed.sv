// SPDX-License-Identifier: Apache-2.0
// What units want of a list's header and of a step, out of the core's local memory. All of it is read when a run or a
// command of the core's begins; no unit is started before. Then it stays, and rows are told in the next cycle. To read
// it again while units run changes nothing: the core leaves list and state alone.
module step_feed
  import abi_types::*;
  import card_types::*;
  import rv32_types::*;
#(
    parameter int READERS = 3
) (
    input  logic                    clk,
    input  logic                    rst,
    input  logic                    start,       // one cycle, at any time
    input  logic [LOCAL_BITS-1:0]   list_place,
    input  logic [LOCAL_BITS-1:0]   state_place,
    output logic                    busy,
    // local memory, as soft_core has it
    output logic                    load_valid,
    input  logic                    load_ready,
    output logic [LOCAL_BITS-3:0]   load_word,
    input  logic [31:0]             load_data,
    // when not busy
    output list_record_t            header,      // of the list
    output step_t                   step,
    // in the next cycle; a row of the step, or of the selected ones
    input  logic [READERS-1:0][5:0] row,
    input  logic [READERS-1:0]      row_selected,
    output step_row_t [READERS-1:0] found,
    input  logic [6:0]              slot,
    output logic [15:0]             slot_parent
);
  // words
  localparam int LIST_FIRST = 6, LIST_END = 33;  // rank to stage_boards
  localparam int STATE_FIRST = STEP_STATE_STEP / 4, STATE_END = STEP_STATE_RESERVED / 4;
  localparam int SELECTED = STEP_STATE_SELECTED / 4, LENGTHS = STEP_STATE_LENGTHS / 4,
      SLOTS = STEP_STATE_SLOTS / 4, ROWS = STEP_STATE_ROWS / 4, ROW_WORDS = ROW_BYTES / 4;
  localparam int SEQUENCE = ROW_SEQUENCE / 4, POSITION = ROW_POSITION / 4, TOKEN = ROW_TOKEN / 4,
      ADAPTER = ROW_ADAPTER / 4, SLOT = ROW_SLOT / 4, FLAGS = ROW_FLAGS / 4;
  typedef logic [LOCAL_BITS-3:0] word_t;

  // --- what is asked for -----------------------------------------------------------------------------
  typedef enum logic [3:0] {
    IDLE, HEADER, STATE, CHOSEN, ROW, LENGTH, WALK, PARENT, STORE
  } state_t;
  state_t state, asked;
  word_t base_list, base_state;
  logic [5:0] index, asked_index;
  logic [6:0] rows, selected, row_now;
  logic [31:0] walk;  // a slot of the row's path, or none
  logic [LORA_MAX_SCRATCH-1:0] known;
  logic walks, taken;
  row_fields_t now;
  assign busy = state != IDLE;
  assign walks = walk < LORA_MAX_SCRATCH && !known[walk[6:0]];
  assign load_valid = state != IDLE && state != PARENT && state != STORE && !(state == WALK && !walks);
  assign taken = load_valid && load_ready;
  always_comb begin
    unique case (state)
      HEADER: load_word = base_list + word_t'(index);
      STATE: load_word = base_state + word_t'(index);
      CHOSEN: load_word = base_state + word_t'(SELECTED) + word_t'(index);
      ROW: load_word = base_state + word_t'(ROWS) + word_t'(row_now[5:0]) * word_t'(ROW_WORDS) + word_t'(index);
      LENGTH: load_word = base_state + word_t'(LENGTHS) + word_t'(now.sequence_number[5:0]);
      default: load_word = base_state + word_t'(SLOTS) + word_t'(walk[6:0]) + word_t'({walk[6:0], 1'b0});  // three words a slot
    endcase
  end
  function automatic logic [6:0] least(input logic [31:0] count);  // as the units take it
    return count < LORA_MAX_ROWS ? count[6:0] : 7'(LORA_MAX_ROWS);
  endfunction
  assign rows = least(step.row_count);
  assign selected = least(step.selected_count);
  always_ff @(posedge clk) begin
    unique case (state)
      HEADER:
      if (taken) begin
        index <= index + 6'd1;
        if (index == 6'(LIST_END - 1)) {state, index} <= {STATE, 6'(STATE_FIRST)};
      end
      STATE:
      if (taken) begin
        index <= index + 6'd1;
        if (index == 6'(STATE_END - 1)) {state, index} <= {selected != '0 ? CHOSEN : rows != '0 ? ROW : STORE, 6'd0};
      end
      CHOSEN:
      if (taken) begin
        index <= index + 6'd1;
        if (7'({index, 1'b0}) + 7'd2 >= selected) {state, index} <= {rows != '0 ? ROW : STORE, 6'd0};
      end
      ROW:
      if (taken) begin
        index <= index + 6'd1;
        if (index == 6'(FLAGS)) {state, index} <= {LENGTH, 6'd0};
      end
      LENGTH:
      if (taken) begin
        walk <= now.slot;
        state <= WALK;
      end
      WALK:
      if (!walks) state <= STORE;
      else if (taken) state <= PARENT;
      PARENT: begin
        known[walk[6:0]] <= 1'b1;
        walk <= {16'd0, load_data[15:0]};
        state <= WALK;
      end
      STORE: begin
        row_now <= row_now + 7'd1;
        state <= row_now + 7'd1 < rows ? ROW : IDLE;
      end
      default: ;
    endcase
    asked <= taken ? state : IDLE;
    asked_index <= index;
    if (start) begin
      state <= HEADER;
      index <= 6'(LIST_FIRST);
      row_now <= '0;
      known <= '0;
      base_list <= list_place[LOCAL_BITS-1:2];
      base_state <= state_place[LOCAL_BITS-1:2];
      asked <= IDLE;
    end
    if (rst) {state, asked} <= {IDLE, IDLE};
  end

  // --- what comes ------------------------------------------------------------------------------------
  logic [LIST_END-1:0][31:0] words_of_list;
  logic [STATE_END-1:0][31:0] words;
  assign header = list_record_t'(words_of_list);
  assign step = words[STATE_END-1:STATE_FIRST];
  always_ff @(posedge clk) begin
    if (asked == HEADER) words_of_list[asked_index] <= load_data;
    if (asked == STATE) words[asked_index[3:0]] <= load_data;
    if (asked == LENGTH) now.committed <= load_data;
    if (asked == ROW)
      case (asked_index)
        6'(SEQUENCE): now.sequence_number <= load_data;
        6'(POSITION): now.position <= load_data;
        6'(TOKEN): now.token <= load_data;
        6'(ADAPTER): now.adapter <= load_data;
        6'(SLOT): now.slot <= load_data;
        6'(FLAGS): now.flags <= load_data;
        default: ;
      endcase
  end

  // --- tables ----------------------------------------------------------------------------------------
  logic [31:0] chosen[LORA_MAX_ROWS/2];  // two a word
  row_fields_t table_of[LORA_MAX_ROWS];
  logic [15:0] parents[LORA_MAX_SCRATCH];
  always_ff @(posedge clk) begin
    if (asked == CHOSEN) chosen[asked_index[4:0]] <= load_data;
    if (state == STORE) table_of[row_now[5:0]] <= now;
    if (state == PARENT) parents[walk[6:0]] <= load_data[15:0];
    slot_parent <= parents[slot];
  end
  for (genvar r = 0; r < READERS; r++) begin : reader
    logic [31:0] pair;
    logic [15:0] of_number;
    logic [5:0] number;
    assign pair = chosen[row[r][5:1]];
    assign of_number = row[r][0] ? pair[31:16] : pair[15:0];
    assign number = row_selected[r] ? of_number[5:0] : row[r];
    always_ff @(posedge clk) begin
      found[r] <= '{number: number, selected: of_number, fields: table_of[number]};
    end
  end
endmodule
