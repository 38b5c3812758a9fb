// What the array's modules hand each other.
package mpu_types;
  parameter int MAX_UNITS = 1024;  // of 32 columns: the longest row of x that fits

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
    logic        four_bit;  // W4A16, in groups of 32 << group_log
    logic [1:0]  group_log;
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

  // First unit of segment s of `units` (docs/numbers.md, 2.1).
  function automatic logic [10:0] segment_start(input logic [3:0] s, input logic [10:0] units);
    return 11'(({11'd0, s} * {4'd0, units}) >> 3);
  endfunction
endpackage
