// What the vector unit's modules hand each other. A vector has 32 elements of FP32: a line of FP16.
// An instruction takes eight cycles, four elements a cycle, and answers within them, so instructions
// follow each other without a look at what they read.
package vfu_types;
  parameter int LANES = 4;
  parameter int BEATS = 8;
  typedef enum logic [4:0] {
    OP_ADD          = 5'd0,
    OP_SUBTRACT     = 5'd1,
    OP_MULTIPLY     = 5'd2,
    OP_DIVIDE       = 5'd3,   // and the next: a bit a cycle
    OP_ROOT         = 5'd4,
    OP_FROM_INTEGER = 5'd5,
    OP_MOVE         = 5'd6,
    OP_NEGATE       = 5'd7,
    OP_ABSOLUTE     = 5'd8,
    OP_SIGN         = 5'd9,   // a with the sign of b
    OP_RINT         = 5'd10,
    OP_POWER_HIGH   = 5'd11,  // 2^floor(a/2) of an integer a, |a| up to 130
    OP_POWER_LOW    = 5'd12,  // 2^(a - floor(a/2))
    OP_LESS         = 5'd13,  // the mask: a < b
    OP_IS_NAN       = 5'd14,  // the mask
    OP_SELECT       = 5'd15,  // a where the mask is set, else b
    OP_SLOPE        = 5'd16,  // of a's chord; the lowest bit of b says of which table: docs/numbers.md, 4.2
    OP_SHIFT        = 5'd17,  // likewise
    OP_ROTATE_1     = 5'd18,  // element e takes e + 1
    OP_ROTATE_2     = 5'd19,
    OP_ROTATE_4     = 5'd20,
    OP_LENGTHS      = 5'd21,  // columns of segment e, an integer
    OP_LOAD_HALF    = 5'd22,  // FP16 element of line b
    OP_LOAD_SINGLE  = 5'd23,  // FP32 element of lines b and b + 1
    OP_LOAD_PAIR    = 5'd24,  // FP32 at 2e of line b, for e < 8
    OP_LOAD_ODD     = 5'd25,  // at 2e + 1
    OP_STORE_HALF   = 5'd26,
    OP_STORE_SINGLE = 5'd27,
    OP_STORE_INT8   = 5'd28,  // rounded and limited; NaN: 0
    OP_KEEP         = 5'd29,  // element 0 of a becomes the row's scalar `to`
    OP_END          = 5'd30
  } op_t;
  typedef struct packed {
    op_t        op;
    logic [3:0] to;
    logic [6:0] a;  // a register, or 64 and up: a constant
    logic [6:0] b;
  } instruction_t;

  // Constants from here on are not in the program: the command's and the row's.
  parameter logic [5:0] SCALAR_COMMAND = 6'd56;
  parameter logic [5:0] SCALAR_NUMERATOR = 6'd57;
  parameter logic [5:0] SCALAR_PLUS = 6'd58;     // 1 or -0, added to gamma
  parameter logic [5:0] SCALAR_COLUMNS = 6'd59;  // d, an integer
  parameter logic [5:0] SCALAR_KEPT = 6'd60;     // and the next three: OP_KEEP's

  // enum lora_vector_op: what the unit does.
  parameter logic [7:0] VEC_EMBED = 8'd1;
  parameter logic [7:0] VEC_ADD_POSITION = 8'd2;
  parameter logic [7:0] VEC_LN_APPLY = 8'd5;
  parameter logic [7:0] VEC_RMS_APPLY = 8'd6;
  parameter logic [7:0] VEC_RESIDUAL = 8'd8;
  parameter logic [7:0] VEC_RELU = 8'd9;
  parameter logic [7:0] VEC_GELU_TANH = 8'd10;
  parameter logic [7:0] VEC_GELU_ERF = 8'd11;
  parameter logic [7:0] VEC_SWIGLU = 8'd12;
  parameter logic [7:0] VEC_QUANTIZE = 8'd14;
  parameter logic [7:0] VEC_EMBED_SCALED = 8'd20;
  parameter logic [7:0] VEC_RESIDUAL_SCALED = 8'd21;
  parameter logic [7:0] VEC_SCALE = 8'd22;
  parameter logic [7:0] VEC_SOFTCAP = 8'd23;
  parameter logic [7:0] VEC_GEGLU = 8'd24;

  // Lines that were read: x has two where it is FP32.
  parameter logic [2:0] LINE_OF_X = 3'd0;
  parameter logic [2:0] LINE_OF_Z = 3'd2;
  parameter logic [2:0] LINE_OF_A = 3'd3;
  parameter logic [2:0] LINE_OF_B = 3'd4;
  parameter logic [2:0] LINE_OF_SUMS = 3'd5;

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
