// SPDX-License-Identifier: Apache-2.0
// What the vector unit's modules hand each other. A vector has 32 elements of FP32: a line of FP16.
// An instruction takes eight cycles, four elements a cycle, and answers within them, so instructions
// follow each other without a look at what they read.
package vfu_types;
  parameter int LANES = 4;
  typedef enum logic [5:0] {
    OP_ADD          = 6'd0,
    OP_SUBTRACT     = 6'd1,
    OP_MULTIPLY     = 6'd2,
    OP_DIVIDE       = 6'd3,   // and the next: a bit a cycle
    OP_ROOT         = 6'd4,
    OP_FROM_INTEGER = 6'd5,
    OP_MOVE         = 6'd6,
    OP_NEGATE       = 6'd7,
    OP_ABSOLUTE     = 6'd8,
    OP_SIGN         = 6'd9,   // a with the sign of b
    OP_RINT         = 6'd10,
    OP_POWER_HIGH   = 6'd11,  // 2^floor(a/2) of an integer a, |a| up to 130
    OP_POWER_LOW    = 6'd12,  // 2^(a - floor(a/2))
    OP_LESS         = 6'd13,  // the mask: a < b
    OP_IS_NAN       = 6'd14,  // the mask
    OP_SELECT       = 6'd15,  // a where the mask is set, else b
    OP_SLOPE        = 6'd16,  // of a's chord; the lowest bit of b says of which table: docs/numbers.md, 4.2
    OP_SHIFT        = 6'd17,  // likewise
    OP_ROTATE_1     = 6'd18,  // element e takes e + 1
    OP_ROTATE_2     = 6'd19,
    OP_ROTATE_4     = 6'd20,
    OP_LENGTHS      = 6'd21,  // columns of segment e, an integer
    OP_LOAD_HALF    = 6'd22,  // FP16 element of stream b
    OP_LOAD_SINGLE  = 6'd23,  // FP32 element of stream b
    OP_LOAD_PAIR    = 6'd24,  // FP32 at 2e of stream b, for e < 8
    OP_LOAD_ODD     = 6'd25,  // at 2e + 1
    OP_STORE_HALF   = 6'd26,
    OP_STORE_SINGLE = 6'd27,
    OP_STORE_INT8   = 6'd28,  // rounded and limited; NaN: 0
    OP_KEEP         = 6'd29,  // element 0 of a becomes the row's scalar `to`
    OP_END          = 6'd30,
    OP_TO_HALF      = 6'd31,  // rounded to FP16
    OP_STORE_BITS   = 6'd32,  // as they are, not counted
    OP_TO_BF16      = 6'd33   // rounded to BF16; finite
  } op_t;
  typedef struct packed {
    op_t        op;
    logic [3:0] to;
    logic [6:0] a;  // a register, or 64 and up: a constant
    logic [6:0] b;
  } instruction_t;

  // Constants from here on are not in the program: the command's, the row's and the group's.
  parameter logic [5:0] SCALAR_INDEX = 6'd46;    // of the first maximum, an integer
  parameter logic [5:0] SCALAR_LENGTH = 6'd47;   // columns that were folded, an integer
  // 6'd48 and the next seven: what was folded, a segment each
  parameter logic [5:0] SCALAR_COMMAND = 6'd56;
  parameter logic [5:0] SCALAR_NUMERATOR = 6'd57;
  parameter logic [5:0] SCALAR_PLUS = 6'd58;     // 1 or -0, added to gamma
  parameter logic [5:0] SCALAR_COLUMNS = 6'd59;  // d, an integer
  parameter logic [5:0] SCALAR_KEPT = 6'd60;     // and the next three: OP_KEEP's

  typedef struct packed {
    logic [7:0][31:0] folded;
    logic [31:0] index;
    logic [31:0] length;
    logic [31:0] command;
    logic [31:0] numerator;
    logic [31:0] plus;
    logic [31:0] columns;
  } scalars_t;

  // enum lora_vector_op: what the unit does.
  parameter logic [7:0] VEC_EMBED = 8'd1;
  parameter logic [7:0] VEC_ADD_POSITION = 8'd2;
  parameter logic [7:0] VEC_LN_SUMS = 8'd3;
  parameter logic [7:0] VEC_RMS_SUMS = 8'd4;
  parameter logic [7:0] VEC_LN_APPLY = 8'd5;
  parameter logic [7:0] VEC_RMS_APPLY = 8'd6;
  parameter logic [7:0] VEC_ROPE = 8'd7;
  parameter logic [7:0] VEC_RESIDUAL = 8'd8;
  parameter logic [7:0] VEC_RELU = 8'd9;
  parameter logic [7:0] VEC_GELU_TANH = 8'd10;
  parameter logic [7:0] VEC_GELU_ERF = 8'd11;
  parameter logic [7:0] VEC_SWIGLU = 8'd12;
  parameter logic [7:0] VEC_ARGMAX = 8'd13;
  parameter logic [7:0] VEC_QUANTIZE = 8'd14;
  parameter logic [7:0] VEC_QUANTIZE_HEADS = 8'd15;
  parameter logic [7:0] VEC_PERMUTE = 8'd16;
  parameter logic [7:0] VEC_RMS_HEADS = 8'd17;
  parameter logic [7:0] VEC_HEAD_SUMS = 8'd18;
  parameter logic [7:0] VEC_RMS_ROW = 8'd19;
  parameter logic [7:0] VEC_EMBED_SCALED = 8'd20;
  parameter logic [7:0] VEC_RESIDUAL_SCALED = 8'd21;
  parameter logic [7:0] VEC_SCALE = 8'd22;
  parameter logic [7:0] VEC_SOFTCAP = 8'd23;
  parameter logic [7:0] VEC_GEGLU = 8'd24;
  parameter logic [7:0] VEC_ROW_MAX = 8'd25;
  parameter logic [7:0] VEC_QUANTIZE_ROW = 8'd26;

  // What is read: up to 32 elements of each stream, from any address on. Of a head's rotation z is the
  // head's second half, a the cosines, b the sines.
  parameter logic [1:0] STREAM_X = 2'd0;
  parameter logic [1:0] STREAM_Z = 2'd1;
  parameter logic [1:0] STREAM_A = 2'd2;
  parameter logic [1:0] STREAM_B = 2'd3;
  typedef logic [3:0][37:0] addresses_t;  // of a byte, by stream
  typedef logic [3:0][5:0] banks_t;
  typedef logic [3:0][7:0] sizes_t;       // bytes, at most 128

  parameter logic [1:0] ELEMENT_HALF = 2'd0;
  parameter logic [1:0] ELEMENT_SINGLE = 2'd1;
  parameter logic [1:0] ELEMENT_BYTE = 2'd2;
  function automatic logic [7:0] bytes_of(input logic [1:0] element, input logic [5:0] count);
    return element == ELEMENT_SINGLE ? {count, 2'd0} : element == ELEMENT_BYTE ? {2'd0, count} : {1'b0, count, 1'b0};
  endfunction

  typedef enum logic [1:0] {FOLD_NONE, FOLD_ADD, FOLD_MAGNITUDE, FOLD_FIRST} fold_t;

  // How an operation goes over a row. A group is the row, a head, or a segment of d. First it is folded
  // (vfu_fold), then a program works on the result, then one on the group's columns.
  typedef struct packed {
    logic       heads;           // groups are heads
    logic       segments;        // groups are those segments of d that lie in this row
    logic       tree;            // the eight segments of a group are folded one by one
    fold_t      fold;
    logic       fold_z;          // `count` of z, FP32; else the group's columns of x
    logic       twice;           // two passes of folding and finishing
    logic       fold_once;       // the second pass does not fold
    logic [8:0] fold_at;         // programs
    logic [8:0] fold_again_at;
    logic       finish;
    logic       finish_reads;    // sums of z
    logic       records;         // the finish's first element is stored
    logic       record_half;
    logic       record_in_y;
    logic [8:0] finish_at;
    logic [8:0] finish_again_at;
    logic       apply;
    logic       rotate;          // pairs of columns of a head
    logic       permute;
    logic [8:0] apply_at;
    logic [3:0] reads;           // streams of it
    logic       x_single;
    logic       tables_single;
    logic       by_token;
    logic       by_position;
    logic       is_norm;
    logic [1:0] element;         // of y
  } shape_t;

  // Whose program runs, and on what.
  typedef enum logic [1:0] {FOLDS, FINISHES, APPLIES, ROTATES} phase_t;
  typedef struct packed {
    phase_t      phase;
    logic        again;    // the second pass of folding and finishing
    logic [31:0] x_row;    // bytes, and so are the next four
    logic [31:0] z_row;
    logic [31:0] y_row;
    logic [37:0] a_row;
    logic [37:0] b_row;
    logic [31:0] group;    // columns before it
    logic [3:0]  segment;
    logic [31:0] column;
    logic [31:0] number;   // of the group: where its record lies
    logic [5:0]  length;   // columns of this chunk
  } place_t;

  // First column of segment s of d (docs/numbers.md, 2.1).
  function automatic logic [31:0] segment_column(input logic [3:0] s, input logic [31:0] d);
    logic [31:0] units, start;
    units = (d + 32'd31) >> 5;
    start = ((32'(s) * units) >> 3) << 5;
    return start < d ? start : d;
  endfunction

  // Round to an integer, ties to even; still FP32.
  function automatic logic [31:0] rounded(input logic [31:0] value);
    logic [4:0] shift;
    logic [30:0] half, sum;
    shift = 5'(8'd150 - value[30:23]);
    half = (31'd1 << shift) >> 1;
    sum = value[30:0] + half - 31'd1 + {30'd0, value[shift]};
    if (value[30:23] >= 8'd150) return value;
    if (value[30:23] < 8'd126) return {value[31], 31'd0};
    if (value[30:23] == 8'd126) return {value[31], value[22:0] == 23'd0 ? 31'd0 : 31'h3f800000};
    return {value[31], (sum >> shift) << shift};
  endfunction

  // Of an integer in FP32, |value| below 512.
  function automatic logic signed [9:0] small_integer(input logic [31:0] value);
    logic [23:0] shifted;
    shifted = {1'b1, value[22:0]} >> 5'(8'd150 - value[30:23]);
    if (value[30:23] < 8'd127) return 10'sd0;
    return value[31] ? -10'(shifted[8:0]) : 10'(shifted[8:0]);
  endfunction

  // Which chord of docs/numbers.md, 4.2 has this value, -8 <= value < 8.
  function automatic logic [9:0] chord(input logic [31:0] value);
    logic [7:0] below;
    logic signed [31:0] significand;
    below = 8'd144 - value[30:23];
    significand = $signed({8'd0, value[30:23] != 8'd0, value[22:0]});
    if (value[31]) significand = -significand;
    return 10'((significand >>> (below > 8'd31 ? 5'd31 : below[4:0])) + 32'sd512);
  endfunction
endpackage
