// SPDX-License-Identifier: Apache-2.0
// A board's control: the soft core with its blocks, and the sequencer, which runs a step's list while the
// core looks on. `restart` begins the control program anew; a run that is under way is ended, and what it
// has asked of buses is taken before the next one begins.
module control
  import abi_types::*;
  import sequencer_types::*;
  import rv32_types::*;
#(
    parameter int ONCHIP_BYTES  = 16 << 20,
    parameter int CYCLES_PER_MS = 200_000,
    parameter int MPU_AHEAD     = 1  // as sequencer has it
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  restart,
    input  logic [2:0][31:0]       identity,      // as control_core has it
    // local memory for others, as soft_core has it
    input  logic                  load_valid,
    output logic                  load_ready,
    input  logic [3:0]            load_write,
    input  logic [LOCAL_BITS-3:0] load_word,
    input  logic [31:0]           load_stored,
    output logic [31:0]           load_data,
    // the host's registers; a word read is there a cycle later
    input  logic                  host_valid,
    input  logic                  host_write,
    input  logic [10:0]           host_word,
    input  logic [31:0]           host_stored,
    output logic [31:0]           host_data,
    output logic                  done,
    // board memory: a read brings the whole line of 64 bytes
    output logic                  memory_valid,
    input  logic                  memory_ready,
    output logic [47:0]           memory_address,
    output logic [3:0]            memory_write,
    output logic [31:0]           memory_stored,
    input  logic                  memory_answers,
    input  logic [511:0]           memory_line,
    input  logic                  memory_error,   // with the answer; the core stops
    // units by their mailboxes: commands that the core starts
    output logic [LORA_UNITS-1:0] mail_start,
    output logic [LORA_UNITS-1:0] mail_abort,
    input  logic                  unit_write,
    input  logic [2:0]            unit_which,
    input  logic [5:0]            unit_word,
    input  logic [31:0]           unit_stored,
    output logic [31:0]           unit_data,
    // links
    output logic [31:0]           link_epoch,
    output logic [LOCAL_BITS-1:0] link_list,
    output logic [LOCAL_BITS-1:0] link_state,
    output logic                  link_poison,    // one cycle
    output logic [LOCAL_BITS-1:0] link_test,
    output logic                  link_test_start,
    input  logic                  link_test_done,
    input  logic                  link_test_failed,
    // a command of the core's begins or is done; those of a list: unit_start, a result, run_*
    output logic                  trace_valid,
    output logic [31:0]           trace_index,
    output logic [31:0]           trace_rows,
    output logic                  trace_end,
    output logic                  stopped,
    output logic [3:0]            stopped_cause,
    output logic [31:0]           stopped_pc,
    // what is done, in order, for simulation
    output logic                  retired,
    output logic [31:0]           retired_pc,
    output logic                  retired_writes,
    output logic [4:0]            retired_rd,
    output logic [31:0]           retired_value,
    // commands of a list, as sequencer has them
    output logic                  ar_valid,
    input  logic                  ar_ready,
    output logic [41:0]           ar_line,
    output logic [3:0]            ar_beats,
    input  logic                  r_valid,
    output logic                  r_ready,
    input  logic [511:0]          r_data,
    input  logic                  r_last,
    input  logic                  r_error,
    // units by the sequencer
    output logic [UNITS-1:0]       unit_announce,
    output logic [511:0]           unit_line,
    output logic [6:0]             unit_rows,
    output logic [LOCAL_BITS-1:0]  unit_list,     // in local memory
    output logic [LOCAL_BITS-1:0]  unit_state,
    output logic                   run_start,     // one cycle: a list begins, of these two
    input  logic                   hold_units,    // until then none is told a command
    output logic [UNITS-1:0]       unit_start,
    output logic                   unit_abort,
    output logic [UNITS-1:0][13:0] run_index,     // of the command that a unit runs
    output logic [UNITS-1:0][6:0]  run_rows,
    input  logic [UNITS-1:0]       unit_idle,
    input  logic [UNITS-1:0]       result_valid,
    output logic [UNITS-1:0]       result_ready,
    input  logic [UNITS-1:0][1:0]  result_state,
    input  logic [UNITS-1:0][7:0]  result_status,
    input  logic [UNITS-1:0][31:0] result_nonfinite_count,
    input  logic [UNITS-1:0][31:0] result_nonfinite_row,
    input  logic [UNITS-1:0][7:0]  result_port,
    input  logic [31:0]            result_sum,    // the Router's, of what it gathered
    input  logic [2:0][31:0]       result_frames,
    input  groups_t                segments
);
  logic run_valid, run_write, core_poisons, sequencer_poisons;
  logic [5:0] run_word;
  logic [31:0] run_stored, run_data, arena_changes, list_header, step_state;
  logic [35:0] window_page;
  control_core #(
      .ONCHIP_BYTES(ONCHIP_BYTES),
      .CYCLES_PER_MS(CYCLES_PER_MS),
      .SEQUENCER(1'b1)
  ) core (
      .clk(clk),
      .rst(rst),
      .restart(restart),
      .identity(identity),
      .load_valid(load_valid),
      .load_ready(load_ready),
      .load_write(load_write),
      .load_word(load_word),
      .load_stored(load_stored),
      .load_data(load_data),
      .host_valid(host_valid),
      .host_write(host_write),
      .host_word(host_word),
      .host_stored(host_stored),
      .host_data(host_data),
      .done(done),
      .memory_valid(memory_valid),
      .memory_ready(memory_ready),
      .memory_address(memory_address),
      .memory_write(memory_write),
      .memory_stored(memory_stored),
      .memory_answers(memory_answers),
      .memory_line(memory_line),
      .memory_error(memory_error),
      .unit_start(mail_start),
      .unit_abort(mail_abort),
      .unit_write(unit_write),
      .unit_which(unit_which),
      .unit_word(unit_word),
      .unit_stored(unit_stored),
      .unit_data(unit_data),
      .link_epoch(link_epoch),
      .link_list(link_list),
      .link_state(link_state),
      .link_poison(core_poisons),
      .link_test(link_test),
      .link_test_start(link_test_start),
      .link_test_done(link_test_done),
      .link_test_failed(link_test_failed),
      .run_valid(run_valid),
      .run_write(run_write),
      .run_word(run_word),
      .run_stored(run_stored),
      .run_data(run_data),
      .window_page(window_page),
      .arena_changes(arena_changes),
      .trace_valid(trace_valid),
      .trace_index(trace_index),
      .trace_rows(trace_rows),
      .trace_end(trace_end),
      .stopped(stopped),
      .stopped_cause(stopped_cause),
      .stopped_pc(stopped_pc),
      .retired(retired),
      .retired_pc(retired_pc),
      .retired_writes(retired_writes),
      .retired_rd(retired_rd),
      .retired_value(retired_value)
  );
  assign link_poison = core_poisons || sequencer_poisons;
  assign unit_list = list_header[LOCAL_BITS-1:0];
  assign unit_state = step_state[LOCAL_BITS-1:0];

  logic start, moves_kv, votes, poisons, list_id, busy, failed, ballot, ballot_done, seal_write, gathered;
  logic [6:0] rows, selected;
  logic [41:0] list_line;
  index_t command_count, counter_count;
  logic [47:0] local_limit, remote_limit;
  logic [9:0] seal_where;
  logic [31:0] seal_data;
  logic [7:0][31:0] blame;
  logic [7:0] blame_code;
  logic [UNITS-1:0][31:0] last_index;
  logic [UNITS-1:0][1:0] states;
  logic [2:0][31:0] nonfinite, frames;
  localparam int ROUTER = LORA_UNIT_ROUTER;
  assign run_start = start;
  assign gathered = result_valid[ROUTER] && result_ready[ROUTER] &&
                    result_state[ROUTER] == 2'(LORA_UNIT_DONE) &&
                    result_status[ROUTER] == 8'(LORA_OK);
  assign blame[0] = 32'(blame_code);
  run_registers numbers (
      .clk(clk),
      .rst(rst || restart),
      .access(run_valid),
      .write(run_write),
      .word(run_word),
      .stored(run_stored),
      .data(run_data),
      .window_page(window_page),
      .arena_changes(arena_changes),
      .start(start),
      .moves_kv(moves_kv),
      .votes(votes),
      .poisons(poisons),
      .list_id(list_id),
      .rows(rows),
      .selected(selected),
      .list_line(list_line),
      .command_count(command_count),
      .counter_count(counter_count),
      .local_limit(local_limit),
      .remote_limit(remote_limit),
      .list_header(list_header),
      .step_state(step_state),
      .busy(busy),
      .failed(failed),
      .ballot(ballot),
      .ballot_done(ballot_done),
      .seal_write(seal_write),
      .seal_where(seal_where),
      .seal_data(seal_data),
      .gathered(gathered),
      .gathered_sum(result_sum),
      .unit_state(states),
      .nonfinite(nonfinite),
      .frames(frames),
      .last_index(last_index),
      .blame(blame)
  );
  sequencer #(
      .MPU_AHEAD(MPU_AHEAD)
  ) runs (
      .clk(clk),
      .rst(rst),
      .start(start),
      .give_up(restart),
      .dry(1'b0),
      .moves_kv(moves_kv),
      .votes(votes),
      .poisons(poisons),
      .rows(rows),
      .selected(selected),
      .list_id(list_id),
      .list_line(list_line),
      .command_count(command_count),
      .counter_count(counter_count),
      .local_limit(local_limit),
      .remote_limit(remote_limit),
      .busy(busy),
      .failed(failed),
      .ballot(ballot),
      .ballot_done(ballot_done),
      .hold_units(hold_units),
      .poison(sequencer_poisons),
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
      .unit_announce(unit_announce),
      .unit_line(unit_line),
      .unit_rows(unit_rows),
      .unit_start(unit_start),
      .unit_abort(unit_abort),
      .run_index(run_index),
      .run_rows(run_rows),
      .unit_idle(unit_idle),
      .result_valid(result_valid),
      .result_ready(result_ready),
      .result_state(result_state),
      .result_status(result_status),
      .result_nonfinite_count(result_nonfinite_count),
      .result_nonfinite_row(result_nonfinite_row),
      .result_port(result_port),
      .result_frames(result_frames),
      .segments(segments),
      .blame_code(blame_code),
      .blame_index(blame[1]),
      .blame_opcode(blame[2]),
      .blame_unit(blame[3]),
      .blame_found(blame[4]),
      .blame_expected(blame[5]),
      .blame_counter(blame[6]),
      .blame_port(blame[7]),
      .last_index(last_index),
      .unit_state(states),
      .nonfinite_count(nonfinite[0]),
      .nonfinite_index(nonfinite[1]),
      .nonfinite_row(nonfinite[2]),
      .frames(frames),
      // verilator lint_off PINCONNECTEMPTY
      .cycles(),
      // verilator lint_on PINCONNECTEMPTY
      .peek_counter(13'd0),
      // verilator lint_off PINCONNECTEMPTY
      .peek_value()
      // verilator lint_on PINCONNECTEMPTY
  );
endmodule
