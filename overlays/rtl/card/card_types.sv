// SPDX-License-Identifier: Apache-2.0
// What a card's parts hand each other.
package card_types;
  // Fields of struct lora_step_state that units want.
  typedef struct packed {
    logic [31:0] path_offset;
    logic [31:0] ops_offset;
    logic [31:0] block_offset;
    logic [31:0] path_count;
    logic [31:0] op_count;
    logic [31:0] selected_count;
    logic [31:0] row_count;
    logic [31:0] list_id;
    logic [31:0] epoch;
    logic [31:0] step;
  } step_t;

  // What units want of a row.
  typedef struct packed {
    logic [31:0] sequence_number;
    logic [31:0] position;
    logic [31:0] token;
    logic [31:0] adapter;
    logic [31:0] slot;
    logic [31:0] flags;
    logic [31:0] committed;  // of its sequence
  } row_fields_t;

  // A row of the step, and the selected row of the number that was asked for.
  typedef struct packed {
    logic [5:0]  number;
    logic [15:0] selected;
    row_fields_t fields;
  } step_row_t;
endpackage
