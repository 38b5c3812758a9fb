// SPDX-License-Identifier: Apache-2.0
// What the sequencer's modules hand each other. Numbers of the list are abi_types'.
package sequencer_types;
  import abi_types::*;

  parameter int UNITS = LORA_UNITS;
  parameter int GROUP_BITS = 3;  // of a number of row groups

  typedef logic [13:0] index_t;    // of a command, or how many
  typedef logic [9:0] chunk_t;     // of a list, or how many
  typedef logic [12:0] counter_t;
  typedef logic [18:0] value_t;    // that a counter must have: wait_value times row groups
  typedef logic [LORA_SEGMENTS-1:0][GROUP_BITS-1:0] groups_t;  // row groups by segment

  // A command that its unit waits for, or runs.
  typedef struct packed {
    index_t                  index;
    logic [7:0]              opcode;
    logic                    empty;            // nothing to run
    logic [6:0]              rows;
    logic [GROUP_BITS-1:0]   groups;           // of its rows
    logic                    wait_any;
    logic                    wait_wide;        // eight counters, one a segment
    counter_t                wait_counter;
    value_t                  wait_value;
    logic                    signal_any;
    logic                    signal_wide;
    counter_t                signal_counter;
    logic [15:0]             signal_by;
  } command_t;

  // One access to the counters.
  typedef struct packed {
    logic        raise;    // else compare
    logic        wide;
    counter_t    counter;
    value_t      value;    // compare: what each must have
    logic [15:0] by;       // raise, not wide
    groups_t     groups;   // raise, wide
  } access_t;

  // Who is to blame, as struct lora_error_record has it; all ones where there is none.
  typedef struct packed {
    logic [7:0]  code;
    logic [31:0] index;
    logic [31:0] opcode;
    logic [31:0] unit;
    logic [31:0] found;
    logic [31:0] expected;
    logic [31:0] counter;
    logic [31:0] port;
  } blame_t;

  function automatic logic [GROUP_BITS-1:0] row_groups(input logic [6:0] rows);
    return GROUP_BITS'((rows + 7'(LORA_ROW_GROUP - 1)) >> $clog2(LORA_ROW_GROUP));
  endfunction

  function automatic blame_t nobody();
    return '{code: 8'(LORA_OK), found: 32'd0, expected: 32'd0, default: 32'hffff_ffff};
  endfunction
endpackage
