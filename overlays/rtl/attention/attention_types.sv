// SPDX-License-Identifier: Apache-2.0
// What attention's modules hand each other.
package attention_types;
  // enum lora_kv_type.
  parameter logic [1:0] KV_FP16 = 2'd0;
  parameter logic [1:0] KV_INT8 = 2'd1;
  parameter logic [1:0] KV_INT8_HEADS = 2'd2;
  // enum lora_slope.
  parameter logic [1:0] SLOPE_NONE = 2'd0;
  parameter logic [1:0] SLOPE_DISTANCE = 2'd1;

  // Where blocks of K and V lie, as the list says it (csrc/include/lora/kv_layout.h).
  typedef struct packed {
    logic [1:0]  kind;
    logic [8:0]  head_dim;
    logic [15:0] layers;
    logic [15:0] heads;
    logic [15:0] layer;
    logic [5:0]  bank_first;
    logic [5:0]  bank_count;
    logic [31:0] line;
    logic [16:0] spill_page;
    logic [5:0]  spill_bank_first;
    logic [5:0]  spill_bank_count;  // 0: none
    logic [31:0] spill_line;
  } layout_t;

  // Lines of a block's values; one more holds the scales of KV_INT8_HEADS.
  function automatic logic [8:0] value_lines(input layout_t layout);
    return layout.kind == KV_FP16 ? layout.head_dim : layout.head_dim >> 1;
  endfunction
  function automatic logic [8:0] block_lines(input layout_t layout);
    return value_lines(layout) + {8'd0, layout.kind == KV_INT8_HEADS};
  endfunction

  // Tags of read requests.
  typedef enum logic [2:0] {
    LINE_BLOCK = 3'd0,  // where: line of the block
    LINE_Q     = 3'd1,  // where: line of the head's q
    LINE_TABLE = 3'd2,
    LINE_SLOPE = 3'd3
  } line_kind_t;

  // Vectors of the small memory, besides scores.
  parameter logic [4:0] VECTOR_CHUNK = 5'd0;  // sums of the chunk: a group of 32 columns each, then E
  parameter logic [4:0] VECTOR_ALL = 5'd9;    // and of all chunks
  parameter logic [4:0] VECTOR_RAW = 5'd18;   // scores of the slots of four scratch pages
  parameter logic [3:0] GROUP_E = 4'd8;

  // BF16(FP32(p)), as FP32.
  function automatic logic [31:0] position_bf16(input logic [17:0] p);
    logic [4:0] zeros;
    logic [17:0] shifted;
    logic up;
    logic [15:0] high;
    zeros = float_types::leading_zeros_32({p, 14'h3fff});
    shifted = p << zeros;
    up = shifted[9] && (shifted[10] || shifted[8:0] != 9'd0);
    high = {1'b0, 8'd144 - {3'd0, zeros}, shifted[16:10]} + {15'd0, up};
    return p == 18'd0 ? 32'd0 : {high, 16'd0};
  endfunction
endpackage
