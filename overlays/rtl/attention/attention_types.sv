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

  // Tags of read requests: kind, the pass, and where.
  typedef enum logic [2:0] {
    LINE_VALUES = 3'd0,  // where: line of the buffer
    LINE_SCALES = 3'd1,  // where: number of the block in its pass
    LINE_Q      = 3'd2,  // where: head's lowest bit, then line of the head's q
    LINE_SLOPE  = 3'd3,  // where: likewise
    LINE_TABLE  = 3'd4
  } line_kind_t;
  typedef struct packed {
    line_kind_t kind;
    logic [1:0] pass;
    logic [9:0] where;
  } line_tag_t;
  // The same in 13 bits: what is no line of values has a short place.
  typedef logic [12:0] short_tag_t;
  function automatic short_tag_t shortened(input line_tag_t tag);
    return tag.kind == LINE_VALUES ? {1'b0, tag.pass, tag.where} : {3'b100, tag.kind, tag.pass, tag.where[4:0]};
  endfunction
  function automatic line_tag_t lengthened(input short_tag_t tag);
    return tag[12] ? '{kind: line_kind_t'(tag[9:7]), pass: tag[6:5], where: {5'd0, tag[4:0]}}
                   : '{kind: LINE_VALUES, pass: tag[11:10], where: tag[9:0]};
  endfunction

  // What a pass over the lanes does: scores of up to eight tiles side by side, or sums of weighted rows of V.
  typedef struct packed {
    logic        values;      // V
    logic        scratch;     // scores of slots; else of the positions of committed tiles
    logic        path;        // one position of V, alone in the buffer from `begins` on
    logic [11:0] tile;        // the first one; of scratch the page
    logic [3:0]  tiles;       // how many
    logic [4:0]  row;         // position in the tile of the first row
    logic [4:0]  block_row;   // its row in its block
    logic [5:0]  count;       // rows
    logic [5:0]  begins;      // byte of a path's row in its first line
    logic        head;        // lowest bit of its number
    logic        clear;       // V: sums begin at +0
    logic        reads;       // the sums are read behind it
    logic        head_first;  // scores: the first of a head; V: its first chunk
    logic        head_last;   // the last of its kind
    logic        chunk_first; // V: the first tile is the first seen one of its chunk
    logic        chunk_last;  // V: the last tile ends its chunk
  } pass_t;

  // Where a score goes.
  typedef struct packed {
    logic        head;     // lowest bit of its number
    logic        scratch;
    logic [11:0] tile;     // or page
    logic [4:0]  index;
    logic        first;    // of the head
    logic        last;
  } score_t;

  // Tiles side by side, a power of two: as many as eight slots hold, of a slot each 32 columns of a head.
  function automatic logic [1:0] tiles_bits(input logic [3:0] groups);
    return groups > 4'd4 ? 2'd0 : groups > 4'd2 ? 2'd1 : groups == 4'd2 ? 2'd2 : 2'd3;
  endfunction

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
