// SPDX-License-Identifier: Apache-2.0
// One unit's command that runs and the one after it. That one is told to the unit as soon as it is
// read; its counters are asked while the unit still runs, and again each time a counter has risen.
module unit_slot
  import sequencer_types::*;
(
    input  logic     clk,
    input  logic     rst,
    input  logic     start,
    // the next command: being read, here
    input  logic     claim,
    input  index_t   claim_index,
    input  logic     load,
    input  command_t loaded,
    // its counters
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
    output logic     valid,
    output logic     ready,
    output command_t next,
    output logic     running,
    output command_t run,
    output groups_t  signalled
);
  logic changed;
  assign asks = valid && !ready && changed;

  always_ff @(posedge clk) begin
    if (claim) begin
      held <= 1'b1;
      next.index <= claim_index;
    end
    if (load) begin
      valid <= 1'b1;
      next <= loaded;
      ready <= !loaded.wait_any;
    end else if (answered && holds) ready <= 1'b1;
    if (load || raised) changed <= 1'b1;
    else if (asked) changed <= 1'b0;
    if (go || pass) {held, valid} <= 2'b00;
    if (go) begin
      running <= 1'b1;
      run <= next;
      signalled <= '0;
    end else if (retire) running <= 1'b0;
    if (note) signalled <= noted;
    if (rst || start) {held, valid, running} <= 3'b000;
  end
endmodule
