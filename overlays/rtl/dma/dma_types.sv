// SPDX-License-Identifier: Apache-2.0
// What the DMA unit's parts hand each other.
package dma_types;
  import abi_types::*;

  typedef arena_types::bank_t bank_t;
  typedef arena_types::address_t address_t;
  typedef arena_types::range_t range_t;

  // Rows of bytes from one place to another, row after row. A row's bytes are moved as if all were read first, if
  // `backward` is set where it is to lie behind where it lies.
  typedef struct packed {
    bank_t       from_bank;
    address_t    from;
    logic [6:0]  from_step;  // to the next row
    bank_t       to_bank;
    address_t    to;
    logic [6:0]  to_step;
    logic [16:0] rows;
    logic [31:0] bytes;      // of a row
    logic        backward;   // one row alone
    logic        sums;       // CHECKSUM: nothing is written
  } copy_t;

  // Bytes of one line that go into one line.
  typedef struct packed {
    bank_t       from_bank;
    logic [31:0] from_line;
    logic [5:0]  from_byte;
    bank_t       to_bank;
    logic [31:0] to_line;
    logic [5:0]  to_byte;
    logic [6:0]  count;
    logic        new_line;   // another one than that of the piece before
    logic        closes;     // the next piece goes into another line
    logic        sums;
  } piece_t;

  // Where blocks of K and V lie, as the list says it (csrc/include/lora/kv_layout.h).
  typedef struct packed {
    logic [15:0] kind;              // enum lora_kv_type
    logic [15:0] head_dim;
    logic [15:0] layers;
    logic [15:0] heads;
    logic [16:0] page_count;
    logic [7:0]  bank_first;
    logic [7:0]  bank_count;
    logic [31:0] line;
    logic [31:0] spill_page;
    logic [7:0]  spill_bank_first;
    logic [7:0]  spill_bank_count;  // 0: none
    logic [31:0] spill_line;
  } layout_t;

  typedef struct packed {
    logic [16:0] page;
    logic [4:0]  lane;
  } position_t;

  // Positions of all heads of a page, `heads` of them from block `index` on.
  typedef struct packed {
    logic        store;   // from rows of the on-chip buffer, else from another page
    logic [31:0] index;
    logic [31:0] heads;
    position_t   from;
    position_t   to;
    logic [5:0]  count;   // positions, or rows
    logic [5:0]  row;     // store: the first one
    address_t    k;       // its bytes
    address_t    v;
    address_t    k_scales;
    address_t    v_scales;
  } move_t;

  // struct lora_kv_op; its first field in memory is the last one here.
  typedef struct packed {
    logic [31:0] c;
    logic [31:0] b;
    logic [31:0] a;
    logic [15:0] sequence_number;
    logic [15:0] kind;
  } kv_op_t;

  function automatic logic wide_values(input layout_t layout);
    return layout.kind == 16'(LORA_KV_FP16);
  endfunction
  function automatic logic has_scales(input layout_t layout);
    return layout.kind == 16'(LORA_KV_INT8_HEADS);
  endfunction
  function automatic logic [16:0] value_lines(input layout_t layout);
    return wide_values(layout) ? {1'b0, layout.head_dim} : {2'b00, layout.head_dim[15:1]};
  endfunction
  function automatic logic [16:0] block_lines(input layout_t layout);
    return value_lines(layout) + {16'd0, has_scales(layout)};
  endfunction
  // Bytes of a head of a row.
  function automatic logic [16:0] head_bytes(input layout_t layout);
    return wide_values(layout) ? {layout.head_dim, 1'b0} : {1'b0, layout.head_dim};
  endfunction

  // A type that there is, in blocks of whole lines, in banks that there are.
  function automatic logic layout_right(input layout_t layout);
    logic [8:0] banks, spill;
    banks = {1'b0, layout.bank_first} + {1'b0, layout.bank_count};
    spill = {1'b0, layout.spill_bank_first} + {1'b0, layout.spill_bank_count};
    return layout.bank_count != 8'd0 && banks <= 9'd64 && spill <= 9'd64 && layout.head_dim != 16'd0 &&
        (wide_values(layout) ||
         (layout.kind <= 16'(LORA_KV_INT8_HEADS) && !layout.head_dim[0]));
  endfunction
endpackage
