// SPDX-License-Identifier: Apache-2.0
// The sequencer's registers, as hal.h and hal_card.h have them: the run's numbers, which stay until the
// next one; what came of it; the digest of what the Router gathered, its first and its last sum.
module run_registers
  import sequencer_types::*;
(
    input  logic                    clk,
    input  logic                    rst,
    input  logic                    access,
    input  logic                    write,
    input  logic [5:0]              word,
    input  logic [31:0]             stored,
    output logic [31:0]             data,         // a cycle later
    input  logic [35:0]             window_page,
    input  logic [31:0]             arena_changes,
    // the run
    output logic                    start,        // one cycle
    output logic                    moves_kv,
    output logic                    votes,
    output logic                    poisons,
    output logic                    list_id,
    output logic [6:0]              rows,
    output logic [6:0]              selected,
    output logic [41:0]             list_line,
    output index_t                  command_count,
    output index_t                  counter_count,
    output logic [47:0]             local_limit,
    output logic [47:0]             remote_limit,
    output logic [31:0]             list_header,  // local addresses, for units
    output logic [31:0]             step_state,
    input  logic                    busy,
    input  logic                    failed,
    input  logic                    ballot,
    output logic                    ballot_done,
    output logic                    seal_write,
    output logic [9:0]              seal_where,
    output logic [31:0]             seal_data,
    // what came of it
    input  logic                    gathered,     // one cycle: a GATHER is done, with this sum
    input  logic [31:0]             gathered_sum,
    input  logic [UNITS-1:0][1:0]   unit_state,
    input  logic [2:0][31:0]        nonfinite,    // count, command, row
    input  logic [2:0][31:0]        frames,
    input  logic [UNITS-1:0][31:0]  last_index,
    input  logic [7:0][31:0]        blame
);
  // words of enum hal_run_register
  localparam int CONTROL = 0, ROWS = 1, COUNTS = 2, LIST = 3, LOCAL_LO = 4, LOCAL_HI = 5,
      REMOTE_LO = 6, REMOTE_HI = 7, SEAL_AT = 8, SEAL = 9, STATES = 10, ARENA_CHANGES = 11,
      DIGEST = 12, NONFINITE = 13, FRAMES = 16, LAST_INDEX = 19, BLAME = 24, LIST_HEADER = 32,
      STEP_STATE = 33, FIRST_SUM = 34, LAST_SUM = 35;
  logic writes, voted, begun;
  logic [31:0] digest, mixed, first_sum, last_sum;
  logic any;
  assign writes = access && write;
  assign ballot_done = voted;
  assign mixed = (digest ^ gathered_sum) * 32'h9e37_79b1;
  always_ff @(posedge clk) begin
    start <= 1'b0;
    seal_write <= 1'b0;
    if (writes)
      case (word)
        6'(CONTROL): start <= stored[0] && !busy && !begun;
        6'(ROWS): begin
          rows <= stored[6:0];
          selected <= stored[14:8];
          {list_id, poisons, votes, moves_kv} <= stored[19:16];
        end
        6'(COUNTS): begin
          command_count <= stored[13:0];
          counter_count <= stored[29:16];
        end
        6'(LIST): list_line <= {window_page, stored[11:6]};
        6'(LOCAL_LO): local_limit[31:0] <= stored;
        6'(LOCAL_HI): local_limit[47:32] <= stored[15:0];
        6'(REMOTE_LO): remote_limit[31:0] <= stored;
        6'(REMOTE_HI): remote_limit[47:32] <= stored[15:0];
        6'(SEAL_AT): seal_where <= stored[9:0];
        6'(SEAL): begin
          seal_write <= 1'b1;
          seal_data <= stored;
        end
        6'(LIST_HEADER): list_header <= stored;
        6'(STEP_STATE): step_state <= stored;
        default: ;
      endcase
    if (writes && word == 6'(CONTROL) && stored[1]) voted <= 1'b1;
    else if (!ballot) voted <= 1'b0;
    begun <= start;
    // as fw_digest
    if (gathered) digest <= {mixed[15:0], mixed[31:16]};
    if (gathered && !any) first_sum <= gathered_sum;
    if (gathered) last_sum <= gathered_sum;
    if (gathered) any <= 1'b1;
    if (start) digest <= 32'd0;
    if (start) any <= 1'b0;
    if (rst) {start, seal_write, voted, begun} <= '0;

    data <= 32'd0;
    case (word)
      6'(CONTROL): data <= {29'd0, ballot && !voted, failed, busy || start || begun};
      6'(STATES): data <= 32'(unit_state);
      6'(ARENA_CHANGES): data <= arena_changes;
      6'(DIGEST): data <= digest;
      6'(FIRST_SUM): data <= first_sum;
      6'(LAST_SUM): data <= last_sum;
      default: ;
    endcase
    for (int i = 0; i < 3; i++) begin
      if (word == 6'(NONFINITE + i)) data <= nonfinite[i];
      if (word == 6'(FRAMES + i)) data <= frames[i];
    end
    for (int u = 0; u < UNITS; u++) if (word == 6'(LAST_INDEX + u)) data <= last_index[u];
    for (int i = 0; i < 8; i++) if (word == 6'(BLAME + i)) data <= blame[i];
  end
endmodule
