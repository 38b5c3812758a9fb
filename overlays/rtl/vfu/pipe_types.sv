// SPDX-License-Identifier: Apache-2.0
// What the vector pipes' modules hand each other, which commands they take, and the constants of exp (docs/numbers.md, 4.6).
package pipe_types;
  import vfu_types::*;
  parameter int AHEAD = 32;         // lines of a stream that may be asked for ahead, and results that may wait
  parameter int SILU_CYCLES = 94;

  parameter logic [31:0] EXP_LOG2E = 32'h3fb8aa3b;
  parameter logic [31:0] EXP_LN2_HI = 32'h3f318000;
  parameter logic [31:0] EXP_LN2_LO = 32'hb95e8083;
  parameter logic [31:0] EXP_MIN = 32'hc2ae0000;  // -87
  parameter logic [31:0] EXP_MAX = 32'h42b16666;  // 88.7
  parameter logic [6:0][31:0] EXP_C = {  // C[0] is the last
    32'h3f800000, 32'h3f800000, 32'h3f000000, 32'h3e2aaa6f, 32'h3d2aaa8d, 32'h3c0905b1, 32'h3ab6887e
  };

  typedef struct packed {
    logic [7:0]  op;
    logic        has_a;
    logic        one_plus;
    logic [31:0] columns;
    logic [6:0]  rows;
    logic [31:0] head_dim;
    logic [31:0] first;
    logic [5:0]  x_bank;
    logic [31:0] x_offset;
    logic [31:0] x_stride;
    logic [5:0]  z_bank;
    logic [31:0] z_offset;
    logic [31:0] z_stride;
    logic [5:0]  a_bank;
    logic [31:0] a_line;
    logic [31:0] b_line;
    logic [5:0]  y_bank;
    logic [31:0] y_offset;
    logic [31:0] y_stride;
    logic [31:0] scalar;
    logic [31:0] extra;
  } pipe_command_t;

  typedef enum logic [2:0] {ADDS, QUANTIZES, NORMS, ROTATES_HEADS, ACTIVATES, SUMS, MAXIMUM} pipe_kind_t;
  function automatic pipe_kind_t kind_of(input logic [7:0] op);
    unique case (op)
      VEC_QUANTIZE: return QUANTIZES;
      VEC_RMS_APPLY: return NORMS;
      VEC_ROPE: return ROTATES_HEADS;
      VEC_SWIGLU: return ACTIVATES;
      VEC_RMS_SUMS: return SUMS;
      VEC_ARGMAX: return MAXIMUM;
      default: return ADDS;
    endcase
  endfunction

  // Whether pipes take a command: rows begin at lines. All else is the programmed unit's.
  function automatic logic pipes_take(input pipe_command_t c);
    logic x_here, y_here, z_here;
    x_here = c.x_offset[5:0] == 6'd0 && (c.rows == 7'd1 || c.x_stride[5:0] == 6'd0);
    y_here = c.y_offset[5:0] == 6'd0 && (c.rows == 7'd1 || c.y_stride[5:0] == 6'd0);
    z_here = c.z_offset[5:0] == 6'd0 && (c.rows == 7'd1 || c.z_stride[5:0] == 6'd0);
    if (c.columns == 32'd0) return 1'b0;
    unique case (c.op)
      VEC_RESIDUAL, VEC_RESIDUAL_SCALED, VEC_RMS_APPLY, VEC_SWIGLU: return x_here && y_here && z_here;
      VEC_QUANTIZE: return x_here && y_here;
      VEC_ROPE: return x_here && y_here && c.head_dim[5:0] == 6'd0;
      VEC_RMS_SUMS: return x_here && z_here && c.first[4:0] == 5'd0;
      VEC_ARGMAX: return x_here && c.y_offset[2:0] == 3'd0 && (c.rows == 7'd1 || c.y_stride[2:0] == 3'd0);
      default: return 1'b0;
    endcase
  endfunction

  // Where a line of results belongs.
  typedef struct packed {
    logic [31:0] line;
    logic [6:0]  length;  // columns
    logic        alone;   // bytes of one block, not of two
    logic [6:0]  row;
  } pipe_result_t;

  // INT8 of FP32, rounded and limited; NaN: 0.
  function automatic logic [7:0] float_to_eight(input logic [31:0] value);
    logic [31:0] whole;
    logic signed [9:0] integer_value;
    whole = rounded(value);
    integer_value = small_integer(whole);
    if (value[30:0] > 31'h7f800000) return 8'd0;
    if (value[30:23] >= 8'd134) return value[31] ? 8'h81 : 8'h7f;
    return integer_value > 10'sd127 ? 8'h7f : integer_value < -10'sd127 ? 8'h81 : integer_value[7:0];
  endfunction
endpackage
