// SPDX-License-Identifier: Apache-2.0
// What the array's modules hand each other.
package mpu_types;
  parameter int MAX_UNITS = 1024;  // of 32 columns: the longest row of x that fits

  // Units behind one slot: both arrays and what adds adapters to their results, then attention.
  parameter int FP16_ARRAY = 0, INT8_ARRAY = 1, ADAPTER = 2, ATTENTION = 3;
  parameter int MATMUL = 3;  // units of matmuls
  parameter int UNITS = 4;

  // A matmul, as LORA_CMD_MATRIX has it; rows of x and y begin at lines.
  typedef struct packed {
    logic [15:0] k;
    logic [31:0] n;
    logic [6:0]  rows;
    logic [31:0] weight_line;
    logic [15:0] first;
    logic [7:0]  merge;
    logic [5:0]  bank_first;
    logic [5:0]  bank_count;
    logic        has_bias;
    logic [5:0]  bias_bank;
    logic [31:0] bias_line;
    logic [5:0]  x_bank;
    logic [31:0] x_line;
    logic [31:0] x_stride;  // lines
    logic [5:0]  y_bank;
    logic [31:0] y_line;
    logic [31:0] y_stride;  // lines
    logic        y_single;  // FP32
    logic        eight_bit;  // W8A8
    logic        four_bit;  // W4A16 or W4A8, in groups of 32 << group_log
    logic [1:0]  group_log;
    logic        row_scales;  // of INT8 rows: a line behind each (docs/numbers.md, 6.10)
    logic        adapted;  // results go by the adapter unit
  } command_t;

  // Tags of read requests: what a line is for, and where it goes.
  typedef enum logic [1:0] {
    LINE_WEIGHTS = 2'd0,  // where: side, segment, column of the unit
    LINE_BIAS    = 2'd1,  // where: side, stripe modulo 4
    LINE_X       = 2'd2,  // where: unit
    LINE_4_BIT   = 2'd3   // where: room and index, as w4_unpack has them
  } line_kind_t;

  // Lines of 4-bit values before a block's scales, and of its scales.
  parameter int VALUE_LINES = 32;
  function automatic logic [2:0] scale_lines(input logic [1:0] group_log);
    return 3'd4 >> group_log;
  endfunction

  // Lines of a block: all of its 128 rows of weights, whatever K is.
  function automatic logic [7:0] lines_of_block(input command_t command);
    if (command.eight_bit) return 8'd64;
    if (command.four_bit) return 8'(VALUE_LINES + 1) + {5'd0, scale_lines(command.group_log)};
    return 8'd128;
  endfunction

  // Sums of the integer array that may be under way, and blocks of its stream buffer.
  parameter int SUMS_LOG = 2;
  parameter int BLOCKS_LOG = 2;

  // What the integer array does with a line that was read from its stream buffer.
  typedef enum logic [1:0] {
    TAKE_NOTHING = 2'd0,
    TAKE_WEIGHTS = 2'd1,
    TAKE_SCALES  = 2'd2,  // of a group
    TAKE_ZEROS   = 2'd3   // of a block
  } take_t;
  typedef struct packed {
    take_t                take;
    logic                 half;   // columns 16..31
    logic                 first;  // line of a half in a sum: it begins at zero
    logic                 last;   // line of a half in a sum
    logic                 segment_end;  // of the sum
    logic [SUMS_LOG-1:0]  sum;
    logic [1:0]           group;  // of the block
    logic [3:0]           x_keep;  // of W8A8: which of the four x there are
    logic [3:0]           x_part;  // of the line of x, eight bytes each, four of W8A8
  } line_use_t;

  // A pass of w4_segments: sums of four columns a cycle.
  typedef enum logic [1:0] {
    SUM_NOW  = 2'd0,  // of the segment that is being summed
    SUM_ONE  = 2'd1,  // one segment, two or four that wait for as many more
    SUM_TWO  = 2'd2,
    SUM_FOUR = 2'd3
  } kept_t;
  typedef struct packed {
    logic       valid;
    logic [2:0] slot;
    logic       first;      // +0 instead of the sum so far
    logic       empty;      // +0 instead of a product
    logic       join_sums;  // a + SUM_NOW
    kept_t      a;
    kept_t      to;
    logic       is_total;
  } pass_t;

  // First unit of segment s of `units` (docs/numbers.md, 2.1).
  function automatic logic [10:0] segment_start(input logic [3:0] s, input logic [10:0] units);
    return 11'(({11'd0, s} * {4'd0, units}) >> 3);
  endfunction
endpackage
