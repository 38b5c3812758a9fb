// SPDX-License-Identifier: Apache-2.0
// Commands that the core gives units by their mailboxes: reads one, has its step read, tells the unit as the sequencer
// does, and writes what came of it, then the control word. Beside that it keeps what the Router's mailbox says of its
// gather as it is now.
module mail_commands
  import abi_types::*;
  import card_types::*;
  import rv32_types::*;
  import sequencer_types::*;
(
    input  logic                   clk,
    input  logic                   rst,
    // mailboxes, as unit_mailboxes has them
    input  logic [LORA_UNITS-1:0]  mail_start,
    input  logic [LORA_UNITS-1:0]  mail_abort,
    output logic                   unit_write,
    output logic [2:0]             unit_which,
    output logic [5:0]             unit_word,
    output logic [31:0]            unit_stored,
    input  logic [31:0]            unit_data,
    // step_feed
    output logic                   feed_start,
    output logic [LOCAL_BITS-1:0]  list_place,
    output logic [LOCAL_BITS-1:0]  state_place,
    input  logic                   feed_busy,
    input  step_t                  step,
    // units
    output logic [UNITS-1:0]       unit_announce,
    output logic [511:0]           unit_line,
    output logic [6:0]             unit_rows,
    output logic [UNITS-1:0]       unit_start,
    input  logic [UNITS-1:0]       unit_idle,
    output logic [UNITS-1:0]       runs,            // their results are for here
    input  logic [UNITS-1:0]       result_valid,
    output logic [UNITS-1:0]       result_ready,
    input  logic [UNITS-1:0][1:0]  result_state,
    input  logic [UNITS-1:0][7:0]  result_status,
    input  logic [UNITS-1:0][31:0] result_nonfinite_count,
    input  logic [UNITS-1:0][31:0] result_nonfinite_row,
    input  logic [UNITS-1:0][31:0] result_value,
    input  logic [UNITS-1:0][7:0]  result_port,
    input  logic [2:0][31:0]       result_frames,   // the Router's
    input  groups_t                segments,
    input  logic [4:0][31:0]       progress         // its words from WAITS on
);
  // words of a mailbox, hal_card.h
  localparam int CONTROL = 0, STATUS = 1, RESULTS = 8, LIST = 10, COMMAND = 16, SEGMENTS = 32, WAITS = 40;
  localparam int DONE = 1, FAILED = 3;  // bits of CONTROL
  localparam int POINTERS = 2, WORDS = POINTERS + 16, SHOWN = LORA_SEGMENTS + 5;
  localparam int ROUTER = LORA_UNIT_ROUTER;

  typedef enum logic [2:0] {IDLE, READ, FEED, WAIT, TELL, START, WRITE} state_t;
  state_t state;
  logic [UNITS-1:0] asked, aborts, ended;
  logic [2:0] unit;
  logic [4:0] index;
  logic [15:0][31:0] command;
  logic [2:0] next, over;
  assign aborts = UNITS'(mail_abort);
  assign ended = runs & result_valid;
  always_comb begin
    next = 3'd0;
    over = 3'd0;
    for (int u = UNITS - 1; u >= 0; u--) begin
      if (asked[u]) next = 3'(u);
      if (ended[u]) over = 3'(u);
    end
  end

  // --- rows of a command, as the sequencer counts them ------------------------------------------------
  command_t decoded;
  command_decode decode (
      .line(command),
      .index('0),
      .rows(step.row_count[6:0]),
      .selected(step.selected_count[6:0]),
      .moves_kv(1'b1),
      .dry(1'b0),
      .command(decoded)
  );
  assign unit_line = command;
  assign unit_rows = decoded.rows;
  assign unit_announce = state == TELL ? UNITS'(1) << unit : '0;
  assign unit_start = state == START ? UNITS'(1) << unit : '0;
  assign feed_start = state == FEED;

  // --- what the Router's mailbox says ----------------------------------------------------------------
  logic [SHOWN-1:0][31:0] shown, now;
  logic [SHOWN-1:0] known, differs;
  logic [3:0] place;
  logic shows;
  always_comb begin
    for (int s = 0; s < LORA_SEGMENTS; s++) now[s] = runs[ROUTER] ? 32'(segments[s]) : 32'd0;
    for (int i = 0; i < 5; i++) now[LORA_SEGMENTS+i] = progress[i];
    place = 4'd0;
    for (int i = SHOWN - 1; i >= 0; i--) begin
      differs[i] = !known[i] || shown[i] != now[i];
      if (differs[i]) place = 4'(i);
    end
  end
  assign shows = state == IDLE && differs != '0;

  // --- the mailboxes ---------------------------------------------------------------------------------
  logic [RESULTS-1:0][31:0] results;
  always_comb begin
    results[0] = 32'(result_status[unit]);
    results[1] = result_nonfinite_count[unit];
    results[2] = result_nonfinite_row[unit];
    results[3] = result_value[unit];
    results[4] = 32'(result_port[unit]);
    for (int i = 0; i < 3; i++) results[5+i] = unit == 3'(ROUTER) ? result_frames[i] : 32'd0;
    unit_which = unit;
    unit_write = state == WRITE && !aborts[unit];
    unit_word = index[3] ? 6'(CONTROL) : 6'(STATUS) + 6'(index);
    unit_stored = results[index[2:0]];
    if (index[3]) unit_stored = 32'd1 << (result_state[unit] == 2'(LORA_UNIT_DONE) ? DONE : FAILED);
    if (state == READ)
      unit_word = index < 5'(POINTERS) ? 6'(LIST) + 6'(index) : 6'(COMMAND - POINTERS) + 6'(index);
    if (shows) begin
      unit_which = 3'(ROUTER);
      unit_write = 1'b1;
      unit_word = place < 4'(LORA_SEGMENTS) ? 6'(SEGMENTS) + 6'(place) : 6'(WAITS - LORA_SEGMENTS) + 6'(place);
      unit_stored = now[place];
    end
  end
  always_comb begin
    result_ready = '0;
    if (state == WRITE && index[3]) result_ready[unit] = runs[unit];
  end

  always_ff @(posedge clk) begin
    if (shows) begin
      shown[place] <= now[place];
      known[place] <= 1'b1;
    end
    unique case (state)
      IDLE: begin
        index <= '0;
        if (!shows && ended != '0) {state, unit} <= {WRITE, over};
        else if (!shows && asked != '0) {state, unit} <= {READ, next};
      end
      READ: begin  // a word is there in the cycle behind its address
        index <= index + 5'd1;
        if (index == 5'd1) list_place <= unit_data[LOCAL_BITS-1:0];
        if (index == 5'd2) state_place <= unit_data[LOCAL_BITS-1:0];
        if (index > 5'd2) command[4'(index-5'd3)] <= unit_data;
        if (index == 5'(WORDS)) state <= FEED;
      end
      FEED: state <= WAIT;
      WAIT: if (!feed_busy && unit_idle[unit]) state <= TELL;
      TELL: state <= START;
      START: begin
        asked[unit] <= 1'b0;
        runs[unit] <= 1'b1;
        state <= IDLE;
      end
      WRITE: begin
        index <= index + 5'd1;
        if (index[3]) begin
          runs[unit] <= 1'b0;
          state <= IDLE;
        end
      end
      default: state <= IDLE;
    endcase
    for (int u = 0; u < UNITS; u++) begin
      if (aborts[u]) {asked[u], runs[u]} <= 2'b00;
      if (mail_start[u]) {asked[u], runs[u]} <= 2'b10;
    end
    if (state != IDLE && (aborts[unit] || mail_start[unit])) state <= IDLE;
    if (rst) begin
      state <= IDLE;
      {asked, runs, known} <= '0;
    end
  end
endmodule
