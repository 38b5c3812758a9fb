// SPDX-License-Identifier: Apache-2.0
// One unit's command that runs and those after it, AHEAD at most. They are told to the unit as soon as they are read; the
// counters of the next one are asked while the unit still runs, and again each time a counter has risen.
// Assumes: an answer comes two cycles after its counter was asked.
module unit_slot
  import sequencer_types::*;
#(
    parameter int AHEAD = 1
) (
    input  logic     clk,
    input  logic     rst,
    input  logic     start,
    // one more command: being read, here; in order
    input  logic     claim,
    input  index_t   claim_index,
    input  logic     load,
    input  command_t loaded,
    // the next one's counters
    input  logic     raised,       // some counter rises
    input  logic     asked,
    input  logic     answered,
    input  logic     holds,
    output logic     asks,
    // what happens to it, and to the one that runs
    input  logic     go,
    input  logic     pass,
    input  logic     retire,
    input  logic     note,         // these row groups are signalled
    input  groups_t  noted,
    output logic     held,         // there is a next command, at least its index
    output logic     room,         // for one more
    output logic     valid,
    output logic     ready,
    output command_t next,
    output logic     running,
    output command_t run,
    output groups_t  signalled
);
  localparam int COUNT = $clog2(AHEAD + 1);
  typedef logic [COUNT-1:0] count_t;
  command_t commands[AHEAD];  // the next one first
  count_t claimed, here;
  logic changed, leaves;
  logic [1:0] of_next;  // an answer of the next command comes, in two cycles and in one
  assign next = commands[0];
  assign held = claimed != '0;
  assign valid = here != '0;
  assign room = claimed != count_t'(AHEAD);
  assign asks = valid && !ready && changed;
  assign leaves = go || pass;

  always_ff @(posedge clk) begin
    for (int i = 0; i < AHEAD; i++) begin
      if (leaves && i + 1 < AHEAD) commands[i] <= commands[(i+1)%AHEAD];
      if (claim && claimed - count_t'(leaves) == count_t'(i)) commands[i].index <= claim_index;
      if (load && here - count_t'(leaves) == count_t'(i)) commands[i] <= loaded;
    end
    claimed <= claimed + count_t'(claim) - count_t'(leaves);
    here <= here + count_t'(load) - count_t'(leaves);
    of_next <= leaves ? 2'b00 : {of_next[0], asked};
    if (leaves && int'(here) > 1) ready <= !commands[AHEAD>1?1:0].wait_any;
    else if (load && here == count_t'(leaves)) ready <= !loaded.wait_any;
    else if (answered && holds && of_next[1]) ready <= 1'b1;
    if (load || leaves || raised) changed <= 1'b1;
    else if (asked) changed <= 1'b0;
    if (go) begin
      running <= 1'b1;
      run <= next;
      signalled <= '0;
    end else if (retire) running <= 1'b0;
    if (note) signalled <= noted;
    if (rst || start) begin
      claimed <= '0;
      here <= '0;
      running <= 1'b0;
    end
  end
endmodule
