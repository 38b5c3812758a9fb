// SPDX-License-Identifier: Apache-2.0
// Runs a command list as docs/sequencer.md has it: every unit takes its own commands in order, units
// run concurrently, counters say who waits for whom. The soft core has checked list and step; it gives
// the run's numbers, holds them until `busy` falls, and reads what came of it.
module sequencer
  import abi_types::*;
  import sequencer_types::*;
#(
    parameter int MPU_AHEAD = 1  // commands that the MPU is told beyond the one that runs; other units one
) (
    input  logic                    clk,
    input  logic                    rst,
    // the run
    input  logic                    start,          // one cycle, not busy
    input  logic                    give_up,        // one cycle: the core ends it
    input  logic                    dry,            // units finish at once: counters alone
    input  logic                    moves_kv,
    input  logic                    votes,          // BALLOT stops for the core
    input  logic                    poisons,        // a failure tells the neighbors
    input  logic [6:0]              rows,
    input  logic [6:0]              selected,
    input  logic                    list_id,
    input  logic [41:0]             list_line,      // of the first command: address / 64
    input  index_t                  command_count,
    input  index_t                  counter_count,
    input  logic [47:0]             local_limit,    // cycles until the watchdog
    input  logic [47:0]             remote_limit,   // where only the Router runs
    output logic                    busy,
    output logic                    failed,         // from the failure on; blame_* are there
    output logic                    ballot,         // all before it is done: the core writes the vote
    input  logic                    ballot_done,    // held until `ballot` falls
    input  logic                    hold_units,     // none is told a command yet
    output logic                    poison,         // one cycle
    // seals of registered lists: list, chunk
    input  logic                    seal_write,
    input  logic [9:0]              seal_where,
    input  logic [31:0]             seal_data,
    // control bank
    output logic                    ar_valid,
    input  logic                    ar_ready,
    output logic [41:0]             ar_line,
    output logic [3:0]              ar_beats,
    input  logic                    r_valid,
    output logic                    r_ready,
    input  logic [511:0]            r_data,
    input  logic                    r_last,
    input  logic                    r_error,
    // units; bit 0 is CONTROL's and unused
    output logic [UNITS-1:0]        unit_announce,  // one cycle: `unit_line` is its next command, behind those it was told
    output logic [511:0]            unit_line,
    output logic [6:0]              unit_rows,
    output logic [UNITS-1:0]        unit_start,     // one cycle: the first that was announced and did not start
    output logic                    unit_abort,     // one cycle: what runs and what was announced
    output logic [UNITS-1:0][13:0]  run_index,      // what each unit runs, from its start to its result
    output logic [UNITS-1:0][6:0]   run_rows,
    input  logic [UNITS-1:0]        unit_idle,      // nothing on its buses either
    input  logic [UNITS-1:0]        result_valid,
    output logic [UNITS-1:0]        result_ready,
    input  logic [UNITS-1:0][1:0]   result_state,
    input  logic [UNITS-1:0][7:0]   result_status,
    input  logic [UNITS-1:0][31:0]  result_nonfinite_count,
    input  logic [UNITS-1:0][31:0]  result_nonfinite_row,
    input  logic [UNITS-1:0][7:0]   result_port,
    input  logic [2:0][31:0]        result_frames,  // the Router's: sent, received, dropped
    input  groups_t                 segments,       // complete, from the cycle after its start
    // what came of the run
    output logic [7:0]              blame_code,
    output logic [31:0]             blame_index,
    output logic [31:0]             blame_opcode,
    output logic [31:0]             blame_unit,
    output logic [31:0]             blame_found,
    output logic [31:0]             blame_expected,
    output logic [31:0]             blame_counter,
    output logic [31:0]             blame_port,
    output logic [UNITS-1:0][31:0]  last_index,
    output logic [UNITS-1:0][1:0]   unit_state,
    output logic [31:0]             nonfinite_count,
    output logic [31:0]             nonfinite_index,
    output logic [31:0]             nonfinite_row,
    output logic [2:0][31:0]        frames,
    output logic [47:0]             cycles,
    // a counter, two cycles later, while not busy
    input  counter_t                peek_counter,
    output logic [15:0]             peek_value
);
  typedef enum logic [2:0] {IDLE, RUN, NAME, ASK, ANSWER, STOP, DRAIN} state_t;
  localparam logic [6:0] QUIET = 7'd96;  // cycles without any move: a dry run has stalled

  state_t state;
  logic active, halt;
  assign active = state == RUN;
  assign busy = state != IDLE;

  // --- list and window ---------------------------------------------------------------------------
  chunk_t published, oldest;
  logic fetch_idle, fetch_failed, fetch_bus, window_write, publish;
  logic [8:0] window_where, read_where;
  logic [511:0] window_line, line;
  logic [31:0] seal_found, seal_expected;
  logic [UNITS-1:0][LORA_CHUNK_COMMANDS-1:0] new_marks, marks;
  logic [UNITS-1:0][9:0] chunk;
  logic [UNITS-1:0][4:0] look_chunk;
  logic [UNITS-1:0] found, claim;
  logic [UNITS-1:0][13:0] scan_index;

  list_fetch fetch (
      .clk(clk),
      .rst(rst),
      .start(start),
      .stop(state == STOP || state == DRAIN),
      .list_line(list_line),
      .count(command_count),
      .list_id(list_id),
      .oldest(oldest),
      .idle(fetch_idle),
      .seal_write(seal_write),
      .seal_where(seal_where),
      .seal_data(seal_data),
      .ar_valid(ar_valid),
      .ar_ready(ar_ready),
      .ar_line(ar_line),
      .ar_beats(ar_beats),
      .r_valid(r_valid),
      .r_ready(r_ready),
      .r_data(r_data),
      .r_last(r_last),
      .r_error(r_error),
      .write(window_write),
      .write_where(window_where),
      .write_line(window_line),
      .publish(publish),
      .published(published),
      .marks(new_marks),
      .failed(fetch_failed),
      .bus_failed(fetch_bus),
      .seal_found(seal_found),
      .seal_expected(seal_expected)
  );
  command_window window (
      .clk(clk),
      .write(window_write),
      .write_where(window_where),
      .write_line(window_line),
      .publish(publish),
      .publish_chunk(published[4:0]),
      .publish_marks(new_marks),
      .look_chunk(look_chunk),
      .marks(marks),
      .read_where(read_where),
      .line(line)
  );

  // --- one slot a unit ---------------------------------------------------------------------------
  logic [UNITS-1:0] load, asked, answered, asks, go, pass, retire, note, held, room, valid, ready, running;
  logic raised, holds;
  command_t decoded;
  command_t next[UNITS], run[UNITS];
  groups_t signalled[UNITS], noted;
  logic [UNITS-1:0][13:0] next_index, place;  // place: no command before it is left
  for (genvar u = 0; u < UNITS; u++) begin : unit
    unit_scan scan (
        .clk(clk),
        .rst(rst),
        .start(start),
        .published(published),
        .chunk(chunk[u]),
        .marks(marks[u]),
        .take(claim[u]),
        .found(found[u]),
        .index(scan_index[u])
    );
    unit_slot #(
        .AHEAD(u == LORA_UNIT_MPU ? MPU_AHEAD : 1)
    ) slot (
        .clk(clk),
        .rst(rst),
        .start(start),
        .claim(claim[u]),
        .claim_index(scan_index[u]),
        .load(load[u]),
        .loaded(decoded),
        .raised(raised),
        .asked(asked[u]),
        .answered(answered[u]),
        .holds(holds),
        .asks(asks[u]),
        .go(go[u]),
        .pass(pass[u]),
        .retire(retire[u]),
        .note(note[u]),
        .noted(noted),
        .held(held[u]),
        .room(room[u]),
        .valid(valid[u]),
        .ready(ready[u]),
        .next(next[u]),
        .running(running[u]),
        .run(run[u]),
        .signalled(signalled[u])
    );
    assign look_chunk[u] = chunk[u][4:0];
    assign next_index[u] = next[u].index;
    assign run_index[u] = run[u].index;
    assign run_rows[u] = run[u].rows;
    assign place[u] = running[u] ? run[u].index : held[u] ? next[u].index : scan_index[u];
  end

  chunk_t least;
  always_comb begin
    least = place[0][13:4];
    for (int u = 1; u < UNITS; u++) if (place[u][13:4] < least) least = place[u][13:4];
  end
  always_ff @(posedge clk) oldest <= start || rst ? 10'd0 : least;

  // --- reading the next commands -----------------------------------------------------------------
  typedef struct packed {
    logic       valid;
    logic [2:0] unit;
    index_t     index;
  } reading_t;
  reading_t reading[3];
  always_comb begin
    claim = '0;
    reading[0] = '0;
    for (int u = UNITS - 1; u >= 0; u--)
      if (active && found[u] && room[u] && !hold_units) reading[0] = '{1'b1, 3'(u), scan_index[u]};
    if (reading[0].valid) claim[reading[0].unit] = 1'b1;
    read_where = reading[0].index[8:0];
  end
  always_ff @(posedge clk) begin
    reading[1] <= reading[0];
    reading[2] <= reading[1];
    if (!active || rst) {reading[1].valid, reading[2].valid} <= 2'b00;
  end
  command_decode decode (
      .line(line),
      .index(reading[2].index),
      .rows(rows),
      .selected(selected),
      .moves_kv(moves_kv),
      .dry(dry),
      .command(decoded)
  );
  always_comb begin
    load = '0;
    load[reading[2].unit] = reading[2].valid && active;
    unit_announce = load;
    if (decoded.empty) unit_announce = '0;
    unit_announce[LORA_UNIT_CONTROL] = 1'b0;
  end
  assign unit_line = line;
  assign unit_rows = decoded.rows;

  // --- what may happen ---------------------------------------------------------------------------
  // Nothing behind a FENCE starts before it is passed; it is passed when nothing before it is left.
  index_t bound;
  logic [UNITS-1:0] may_go, may_pass;
  logic all_before, end_passed, ballot_now;
  assign bound = held[LORA_UNIT_CONTROL] ? next_index[LORA_UNIT_CONTROL] : scan_index[LORA_UNIT_CONTROL];
  always_comb begin
    all_before = 1'b1;
    for (int u = 1; u < UNITS; u++)
      if (running[u] || place[u] < next_index[LORA_UNIT_CONTROL]) all_before = 1'b0;
    may_go = '0;
    may_pass = '0;
    for (int u = 1; u < UNITS; u++)
      if (active && valid[u] && ready[u] && !running[u] && next_index[u] < bound) begin
        may_go[u] = !next[u].empty;
        may_pass[u] = next[u].empty;
      end
    may_pass[LORA_UNIT_CONTROL] =
        active && valid[LORA_UNIT_CONTROL] && ready[LORA_UNIT_CONTROL] && all_before;
  end
  assign go = halt ? '0 : may_go;
  assign ballot_now = may_pass[LORA_UNIT_CONTROL] && votes && !dry &&
                      next[LORA_UNIT_CONTROL].opcode == 8'(LORA_CMD_BALLOT);

  // --- row groups that the Router has complete ---------------------------------------------------
  localparam int ROUTER = LORA_UNIT_ROUTER;
  groups_t more;
  logic progress;
  always_comb begin
    progress = 1'b0;
    for (int s = 0; s < LORA_SEGMENTS; s++) begin
      noted[s] = segments[s] < run[ROUTER].groups ? segments[s] : run[ROUTER].groups;
      if (noted[s] < signalled[ROUTER][s]) noted[s] = signalled[ROUTER][s];
      more[s] = noted[s] - signalled[ROUTER][s];
      if (more[s] != '0) progress = 1'b1;
    end
    if (!active || !running[ROUTER] || unit_start[ROUTER] || !run[ROUTER].signal_wide ||
        !run[ROUTER].signal_any)
      progress = 1'b0;
  end

  // --- one access to the counters a cycle: results, then segments, then what is passed, then waits --
  typedef enum logic [2:0] {NOTHING, RESULT, SEGMENTS, PASS, WAIT} what_t;
  what_t what;
  logic [2:0] who, stalled;
  logic access_valid, access_ready, clearing, answer_valid, answer_holds, good, named, named_runs;
  logic [2:0] answer_lane, asking[2];
  logic [15:0] answer_found;
  access_t access;
  command_t chosen;
  always_comb begin
    what = NOTHING;
    who = 3'd0;
    for (int u = UNITS - 1; u >= 0; u--) if (active && asks[u]) {what, who} = {WAIT, 3'(u)};
    for (int u = UNITS - 1; u >= 0; u--)
      if (may_pass[u] && !(u == 0 && ballot_now && !(ballot && ballot_done)))
        {what, who} = {PASS, 3'(u)};
    if (progress) {what, who} = {SEGMENTS, 3'(ROUTER)};
    for (int u = UNITS - 1; u >= 1; u--)
      if (active && running[u] && !unit_start[u] && result_valid[u]) {what, who} = {RESULT, 3'(u)};
    if (!access_ready || give_up) what = NOTHING;
  end
  assign end_passed = what == PASS && who == 3'd0 && next[0].opcode == 8'(LORA_CMD_END);
  always_comb begin
    chosen = what == RESULT || what == SEGMENTS ? run[who] : next[state == ASK ? stalled : who];
    access.raise = what == RESULT || what == SEGMENTS || what == PASS;
    access.wide = access.raise ? chosen.signal_wide : chosen.wait_wide;
    access.counter = access.raise ? chosen.signal_counter : chosen.wait_counter;
    access.value = chosen.wait_value;
    access.by = chosen.signal_by;
    for (int s = 0; s < LORA_SEGMENTS; s++) begin
      access.groups[s] = chosen.groups;
      if (what == RESULT) access.groups[s] = chosen.groups - signalled[who][s];
      if (what == SEGMENTS) access.groups[s] = more[s];
    end
    access_valid = what == WAIT || (access.raise && chosen.signal_any && !end_passed &&
                                    (what != RESULT || good)) || state == ASK;
    if (state == IDLE) begin
      access_valid = 1'b1;
      access.raise = 1'b0;
      access.counter = peek_counter;
    end
    raised = access_valid && access.raise;
    pass = '0;
    retire = '0;
    note = '0;
    asked = '0;
    if (what == PASS) pass[who] = 1'b1;
    if (what == RESULT) retire[who] = 1'b1;
    if (what == SEGMENTS) note[who] = 1'b1;
    if (what == WAIT) asked[who] = 1'b1;
    result_ready = retire;
  end
  counter_file counters (
      .clk(clk),
      .rst(rst),
      .clear(start),
      .count(counter_count),
      .clearing(clearing),
      .access_valid(access_valid),
      .access_ready(access_ready),
      .access_in(access),
      .answer_valid(answer_valid),
      .answer_holds(answer_holds),
      .answer_lane(answer_lane),
      .answer_found(answer_found),
      .answer_first(peek_value)
  );
  assign holds = answer_holds;
  always_ff @(posedge clk) begin
    asking[0] <= who;
    asking[1] <= asking[0];
  end
  always_comb begin
    answered = '0;
    answered[asking[1]] = answer_valid && active;
  end

  // --- results -----------------------------------------------------------------------------------
  logic [7:0] its_status, its_code;
  logic [1:0] its_state;
  logic lost;
  assign its_state = result_state[who];
  assign lost = its_state == 2'(LORA_UNIT_IDLE);  // it does not know the command
  assign its_status = lost ? 8'(LORA_OK) : result_status[who];
  assign good = its_state == 2'(LORA_UNIT_DONE) && its_status == 8'(LORA_OK);
  assign its_code = its_status == 8'(LORA_OK) ? 8'(LORA_ERR_UNIT) : its_status;
  logic [UNITS-1:0] begun;
  logic [UNITS-1:0][13:0] begun_index;
  always_comb begin
    begun = go;
    begun[LORA_UNIT_CONTROL] = pass[LORA_UNIT_CONTROL] && !dry;
    begun_index = next_index;
  end
  run_records records (
      .clk(clk),
      .rst(rst),
      .start(start && !dry),
      .begun(begun),
      .begun_index(begun_index),
      .running(running),
      .aborted(state == STOP),
      .take(what == RESULT),
      .good(good),
      .unit(who),
      .state(its_state),
      .index(run[who].index),
      .new_nonfinite_count(result_nonfinite_count[who]),
      .new_nonfinite_row(result_nonfinite_row[who]),
      .new_frames(lost || who != 3'(ROUTER) ? '0 : result_frames),
      .last_index(last_index),
      .unit_state(unit_state),
      .nonfinite_count(nonfinite_count),
      .nonfinite_index(nonfinite_index),
      .nonfinite_row(nonfinite_row),
      .frames(frames)
  );

  // --- the end of a run --------------------------------------------------------------------------
  blame_t blame;
  logic expired, remote, quiet;
  logic [6:0] quiet_cycles;
  stalled_unit stall (
      .running(running),
      .valid(valid),
      .index(next_index),
      .bound(bound),
      .known(named),
      .runs(named_runs),
      .unit(stalled)
  );
  always_comb begin
    remote = running[ROUTER];
    for (int u = 1; u < UNITS; u++) if (u != ROUTER && running[u]) remote = 1'b0;
  end
  assign quiet = dry && quiet_cycles == QUIET;
  assign halt = give_up || (what == RESULT && !good) || fetch_failed ||
                ((expired || quiet) && !end_passed);
  always_ff @(posedge clk) begin
    cycles <= start ? 48'd0 : state == IDLE ? cycles : cycles + 48'd1;
    expired <= active && !dry && cycles > (remote ? remote_limit : local_limit);
    quiet_cycles <= !active || what != NOTHING || reading[0].valid || !fetch_idle || clearing ? 7'd0 :
        quiet ? QUIET : quiet_cycles + 7'd1;
    unit_start <= rst ? '0 : go;
    unit_abort <= state == STOP && !rst;
    poison <= state == STOP && blame.code != 8'(LORA_OK) && poisons && !dry && !rst;
    ballot <= ballot_now && !pass[LORA_UNIT_CONTROL] && !halt && !rst;
  end
  always_ff @(posedge clk) begin
    unique case (state)
      RUN:
      if (give_up) begin
        failed <= 1'b1;
        state <= STOP;
      end else if (what == RESULT && !good) begin
        blame.code <= its_code;
        blame.index <= 32'(run[who].index);
        blame.opcode <= 32'(run[who].opcode);
        blame.unit <= 32'(who);
        blame.found <= 32'(its_state);
        blame.expected <= 32'(LORA_UNIT_DONE);
        if (its_code >= 8'(LORA_ERR_LINK_DOWN) && its_code <= 8'(LORA_ERR_LINK_POISON))
          blame.port <= 32'(result_port[who]);
        state <= STOP;
      end else if (fetch_failed) begin
        blame.code <= fetch_bus ? 8'(LORA_ERR_ADDRESS) : 8'(LORA_ERR_CRC);
        blame.index <= 32'({published, 4'd0});
        blame.found <= fetch_bus ? 32'd0 : seal_found;
        blame.expected <= fetch_bus ? 32'd0 : seal_expected;
        state <= STOP;
      end else if (end_passed) state <= DRAIN;
      else if (expired || quiet) begin
        blame.code <= dry ? 8'(LORA_ERR_COUNTER) : 8'(LORA_ERR_WATCHDOG);
        state <= NAME;
      end
      NAME: begin  // which unit, and which command
        if (named) begin
          blame.index <= named_runs ? 32'(run[stalled].index) : 32'(next[stalled].index);
          blame.opcode <= named_runs ? 32'(run[stalled].opcode) : 32'(next[stalled].opcode);
          blame.unit <= 32'(stalled);
        end
        state <= named && !named_runs && next[stalled].wait_any ? ASK : STOP;
      end
      ASK: if (access_ready) state <= ANSWER;
      ANSWER:
      if (answer_valid) begin
        if (!answer_holds) begin
          blame.counter <= 32'(next[stalled].wait_counter) + 32'(answer_lane);
          blame.found <= 32'(answer_found);
          blame.expected <= 32'(next[stalled].wait_value);
        end
        state <= STOP;
      end
      STOP: begin
        failed <= 1'b1;
        state <= DRAIN;
      end
      DRAIN: if (fetch_idle && (unit_idle | UNITS'(1'b1)) == '1 && !unit_abort) state <= IDLE;
      default:
      if (start) begin
        failed <= 1'b0;
        blame <= nobody();
        state <= RUN;
      end
    endcase
    if (rst) begin
      state <= IDLE;
      failed <= 1'b0;
    end
  end
  assign blame_code = blame.code;
  assign blame_index = blame.index;
  assign blame_opcode = blame.opcode;
  assign blame_unit = blame.unit;
  assign blame_found = blame.found;
  assign blame_expected = blame.expected;
  assign blame_counter = blame.counter;
  assign blame_port = blame.port;
endmodule
