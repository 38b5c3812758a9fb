// SPDX-License-Identifier: Apache-2.0
// What asks for the arenas that the host writes to lora_ctrl, and what it gets.
package arena_types;
  typedef logic [5:0] bank_t;
  typedef logic [37:0] address_t;  // a byte of a bank

  // Bytes that must lie in one arena. Wide enough for every sum of a command's fields.
  typedef struct packed {
    logic [7:0]  bank;
    logic [55:0] first;
    logic [39:0] bytes;
  } range_t;

  // Lines of a bank, first <= line < behind, and what to add for where they lie in board memory.
  typedef struct packed {
    logic [31:0] first;
    logic [32:0] behind;
    logic [41:0] shift;
  } arena_t;
endpackage
