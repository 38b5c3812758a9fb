// SPDX-License-Identifier: Apache-2.0
// What the modules of the channel matmul hand each other: port bundles, descriptors, what is broadcast.
// Packed, so that simulators and synthesis take them as plain bits. Ready signals are apart: they run the other way.
package channel_types;
  import mpu_types::*;
  parameter int MAX_K = 32640;  // 255 blocks of 128: the most that `merge` of a command can name
  parameter int MAX_CHANNELS = 32;
  parameter int ROUND_CYCLES = 16;   // of integer_round, from a sum to its value
  parameter int ADD_CYCLES = 5;      // of float_add
  parameter int PRODUCT_CYCLES = 3;  // of group_product

  // Why a line is not there. It travels with the line: what uses it fails.
  typedef struct packed {
    logic refused;  // no arena covers it
    logic failed;   // memory could not read it
  } fault_t;

  // A channel's memory port: lines of its bank, answered in the order of the requests.
  typedef struct packed {
    logic        valid;
    logic [31:0] line;
  } mem_req_t;
  typedef struct packed {
    logic         valid;
    fault_t       fault;
    logic [511:0] data;
  } mem_rsp_t;

  // The shared port: x, scales and bias, answered in any order.
  typedef struct packed {
    logic       is_x;
    logic       is_scale;  // of the row, behind its x
    logic [1:0] row;
    logic [8:0] index;     // of the row's line
  } x_tag_t;
  typedef struct packed {
    logic       is_x;      // 0
    logic [4:0] channel;
    logic       side;
    logic [1:0] which;     // 0, 1: scales; 2: bias
    logic [1:0] count;     // of the lines that the tile has
    logic [1:0] zero;
  } params_tag_t;
  typedef union packed {
    x_tag_t      x;
    params_tag_t params;
  } feed_tag_t;
  typedef struct packed {
    logic        valid;
    logic [5:0]  bank;
    logic [31:0] line;
    feed_tag_t   tag;
  } read_req_t;
  typedef struct packed {
    logic         valid;
    fault_t       fault;
    feed_tag_t    tag;
    logic [511:0] data;
  } read_rsp_t;  // and what is broadcast of it
  typedef struct packed {
    logic         valid;
    logic [5:0]   bank;
    logic [31:0]  line;
    logic [63:0]  bytes;  // which of the line
    logic [511:0] data;
  } write_req_t;

  // How a command ends.
  typedef enum logic [2:0] {
    ENDED_DONE   = 3'd0,
    ENDED_FAILED = 3'd1,  // memory could not read a line; what was announced behind it is forgotten
    REFUSED_KIND = 3'd2,  // neither W8A8 nor W4A8 in groups of 32, 64, 128; results that adapters are added to
    REFUSED_SIZE = 3'd3,  // no columns or more than 2^24, no rows or more than 64, K in no whole groups
    REFUSED_K    = 3'd4,  // 0, or beyond MAX_K
    REFUSED_BANKS = 3'd5,  // not as many as channels
    REFUSED_MERGE = 3'd6,  // not ceil(K/128): a tile is not whole in a bank
    ENDED_ADDRESS = 3'd7   // no arena covers a line; else as ENDED_FAILED
  } status_t;
  typedef struct packed {
    logic        valid;  // one cycle
    status_t     status;
    logic [31:0] nonfinite_count;
    logic [31:0] nonfinite_row;  // ~0 none
  } result_t;

  // A command as it is broadcast to channels.
  typedef struct packed {
    logic        four_bit;
    logic [1:0]  group_log;
    logic [15:0] k;
    logic [6:0]  block_lines;
    logic [13:0] tile_lines;
    logic [31:0] line;        // of the first tiles of `begin_bank` and the banks behind it
    logic [4:0]  begin_bank;  // that of tile 0
    logic [19:0] tiles;
    logic [6:0]  passes;      // over the weights: groups of rows
  } descriptor_t;
  // What a channel makes of it.
  typedef struct packed {
    logic        four_bit;
    logic [1:0]  group_log;
    logic [15:0] k;
    logic [6:0]  block_lines;
    logic [13:0] tile_lines;
    logic [31:0] line;   // of its first tile; the others follow it
    logic [19:0] first;  // its first tile
    logic [19:0] tiles;  // how many
    logic [6:0]  passes;
  } work_t;

  // A line of results on its way to memory.
  typedef struct packed {
    logic         valid;
    logic [31:0]  line;
    logic [63:0]  bytes;
    logic [5:0]   nonfinite;  // how many of its values
    logic [6:0]   row;        // of the command
    logic [511:0] data;
  } result_line_t;

  // A tile whose totals a channel has.
  typedef struct packed {
    logic        valid;
    logic [19:0] number;
  } tile_t;

  // 32 columns of a pass of channel_passes, one a cycle.
  typedef struct packed {
    logic       valid;
    logic [4:0] slot;
    logic [2:0] segment;
    logic       first;      // of the segment: its product is the sum, and the adder makes a step of the tree
    logic       empty;      // +0 instead of a product
    logic       is_total;   // what the adder makes, or `integers`
    logic       side;       // of the totals
    logic       integers;   // sums as they are, to the totals
  } column_pass_t;

  // What is broadcast to groups of channels.
  typedef struct packed {
    logic        ends;   // an abort
    logic        clear;  // finishers
    logic        push;
    descriptor_t descriptor;
    logic        go;     // x of the pass is there, its first lines at least (x_head_lines)
    logic        whole;  // all of it, with `go` or behind it
    read_rsp_t   feed;
  } down_t;
  // What comes back, joined.
  typedef struct packed {
    logic   runs;   // all
    logic   over;   // all
    logic   quiet;  // all
    fault_t bad;    // any
  } up_t;

  // What finishers hold of a command while its pass runs.
  typedef struct packed {
    logic        four_bit;
    logic        row_scales;
    logic        has_bias;
    logic        y_single;
    logic [24:0] n;
    logic [2:0]  rows;       // that count, of the array's
    logic [6:0]  first_row;  // their number in the command
  } pass_fields_t;

  // Blocks of x, lines of it, that are there when a pass begins: the others come while the first tile uses these.
  function automatic logic [5:0] x_head_blocks(input logic [15:0] k);
    return 6'd1 + 6'((17'(k) + 17'd63) >> 10);
  endfunction
  function automatic logic [9:0] x_head_lines(input logic [15:0] k);
    return {3'd0, x_head_blocks(k), 1'b0};
  endfunction

  // Lines of a block.
  function automatic logic [6:0] block_lines_of(input logic four_bit, input logic [1:0] group_log);
    return four_bit ? 7'(VALUE_LINES + 1) + {4'd0, scale_lines(group_log)} : 7'd64;
  endfunction
endpackage
