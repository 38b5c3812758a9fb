// SPDX-License-Identifier: Apache-2.0
// What the adapter unit's modules hand each other.
package adapter_types;
  // Where the adapters' slots are, as the list's header has it.
  typedef struct packed {
    logic [10:0] slots;
    logic [20:0] chunks;  // of a slot
    logic [15:0] matrices;
    logic [24:0] columns;  // of a row of h
    logic [31:0] line;
    logic [5:0]  bank_first;
    logic [5:0]  bank_count;
  } slots_t;

  // struct lora_adapter_factor
  typedef struct packed {
    logic [255:0] reserved;
    logic [31:0]  scale;
    logic [31:0]  h_skip;
    logic [31:0]  h_first;
    logic [15:0]  h_run;
    logic [15:0]  rank;
    logic [15:0]  rank_count;
    logic [15:0]  rank_first;
    logic [31:0]  offset;
    logic [31:0]  count;
    logic [31:0]  first;
  } factor_t;

  // struct lora_adapter_matrix
  typedef struct packed {
    logic [15:0] up_count;
    logic [15:0] down_count;
    logic [31:0] offset;
  } entry_t;

  // Lines to be read one after another: what for, and where they go.
  typedef enum logic [1:0] {
    LINE_TABLE  = 2'd0,
    LINE_OF_X   = 2'd1,  // where: side, segment
    LINE_VALUES = 2'd2,  // where: side, segment, line of the unit
    LINE_OF_H   = 2'd3
  } line_kind_t;
  typedef struct packed {
    logic        in_slot;  // else on-chip
    logic [30:0] line;     // of the slot, or on-chip
    logic [5:0]  count;
    line_kind_t  kind;
    logic [8:0]  where;
  } run_t;
  function automatic logic [15:0] tag_of(input line_kind_t kind, input logic [8:0] where);
    return {5'd0, kind, where};
  endfunction

  // What is wrong with a slot's tables.
  typedef enum logic [1:0] {
    GOOD        = 2'd0,
    BAD_SIZE    = 2'd1,
    BAD_ADDRESS = 2'd2
  } verdict_t;
  parameter logic [15:0] MAX_RANK = 16'd1024;
  parameter logic [31:0] MAX_COLUMNS = 32'd1 << 24;
endpackage
