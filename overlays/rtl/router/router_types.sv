// SPDX-License-Identifier: Apache-2.0
// What the Router's parts share: widths, a block of the plan, and the CRC-32 of frames in lines of 64 bytes.
package router_types;
  parameter int FRAME_LINES = 65;  // of the longest frame: 32 bytes, 4096 and 4
  parameter int SLOTS = 7;         // frames a buffer holds; 455 of a block RAM's 512 lines
  parameter int HEADER_BYTES = 32;

  typedef logic [26:0] size_t;  // bytes or columns of the on-chip buffer
  typedef logic [27:0] behind_t;  // bytes of a gather behind a line, and 64
  typedef logic [7:0][2:0] done_t;

  // A block of a source and row group, at the segment with which it begins.
  typedef struct packed {
    logic       valid;
    logic       odd;       // its number in the source
    logic [3:0] segments;
    size_t      column;
    size_t      columns;
  } block_t;

  // How much of a block has come, or gone; `row` is of its group.
  typedef struct packed {
    size_t      bytes;
    logic [4:0] row;
    size_t      at_byte;  // bytes of that row
  } progress_t;

  // What a gather is, the same for all parts while it runs.
  typedef struct packed {
    logic [31:0] epoch;
    logic [31:0] step;
    logic [15:0] collective;
    logic [6:0]  rank;
    logic [7:0]  boards;
    logic        ring;
    logic [6:0]  rows;
    logic [1:0]  shift;   // log2 of an element's bytes
    size_t       base;
    size_t       stride;
    size_t       width;   // bytes of a row
  } gather_t;

  // A frame of the link test that is to leave, and the words of its payload.
  typedef struct packed {
    logic        valid;
    logic [31:0] seed;
    logic [31:0] number;
    logic [12:0] length;
    logic        word_valid;
    logic [31:0] word;
    logic [5:0]  at_byte;    // of the frame's line
    logic [2:0]  count;      // bytes
    logic        ends_line;
    logic        ends;
  } test_frame_t;
  typedef struct packed {
    logic       read;
    logic [6:0] line;
    logic       pop;
  } test_look_t;

  // struct lora_frame of abi.h; its first field in memory is the last one here.
  typedef struct packed {
    logic [31:0] length;
    logic [31:0] offset;
    logic [15:0] part;
    logic [15:0] segments;
    logic [7:0]  kind;
    logic [7:0]  hop;
    logic [7:0]  segment;
    logic [7:0]  source;
    logic [15:0] row_group;
    logic [15:0] collective;
    logic [31:0] step;
    logic [31:0] epoch;
    logic [31:0] magic;
  } frame_t;
  parameter int HOP_BYTE = 18;

  function automatic logic [1:0] last_group(logic [6:0] rows);
    logic [6:0] last;
    last = rows - 7'd1;
    return last[5:4];
  endfunction
  function automatic logic [4:0] group_rows(logic [6:0] rows, logic [1:0] group);
    logic [6:0] left;
    left = rows - {1'b0, group, 4'd0};
    return left < 7'd16 ? left[4:0] : 5'd16;
  endfunction

  // Hops that a source's block travels one way; on a path it goes to both ends.
  function automatic logic [7:0] hops_of(gather_t gather, logic [7:0] source, logic odd, logic to_next);
    if (!gather.ring) return to_next ? gather.boards - 8'd1 - source : source;
    return odd ^ to_next ? gather.boards >> 1 : (gather.boards - 8'd1) >> 1;
  endfunction
  // Hops that are left when it arrives here; 0: it does not.
  function automatic logic [7:0] hops_here(gather_t gather, logic [7:0] source, logic odd, logic to_next);
    logic [7:0] forward, distance, total;
    total = hops_of(gather, source, odd, to_next);
    forward = {1'b0, gather.rank} - source + ({1'b0, gather.rank} < source ? gather.boards : 8'd0);
    distance = to_next ? forward : gather.boards - forward;
    return forward == 8'd0 || distance > total ? 8'd0 : total - distance + 8'd1;
  endfunction

  // --- CRC-32, reflected ---
  parameter logic [31:0] POLYNOMIAL = 32'hedb88320;
  parameter logic [31:0] CRC_GOOD = 32'hdebb20e3;  // of a message and its CRC, not inverted

  function automatic logic [31:0] crc_bit(logic [31:0] state);
    return state[0] ? {1'b0, state[31:1]} ^ POLYNOMIAL : {1'b0, state[31:1]};
  endfunction
  function automatic logic [31:0] crc_bit_back(logic [31:0] state);
    logic [31:0] earlier;
    earlier = state[31] ? state ^ POLYNOMIAL : state;
    return {earlier[30:0], state[31]};
  endfunction

  // Bits of a line that change bit i of its CRC.
  function automatic logic [31:0][511:0] line_columns();
    logic [31:0] state;
    state = POLYNOMIAL;
    for (int j = 511; j >= 0; j--) begin
      for (int i = 0; i < 32; i++) line_columns[i][j] = state[i];
      state = crc_bit(state);
    end
  endfunction
  localparam logic [31:0][511:0] LINE_COLUMNS = line_columns();

  function automatic logic [31:0] crc_line(logic [31:0] state, logic [511:0] line);
    logic [511:0] mixed;
    mixed = line ^ {480'd0, state};
    for (int i = 0; i < 32; i++) crc_line[i] = ^(mixed & LINE_COLUMNS[i]);
  endfunction

  // Bits of a state that make bit i of the one before 2^k bytes of zero.
  function automatic logic [31:0][31:0] back_columns(int k);
    logic [31:0] state;
    for (int j = 0; j < 32; j++) begin
      state = 32'd1 << j;
      for (int n = 0; n < (8 << k); n++) state = crc_bit_back(state);
      for (int i = 0; i < 32; i++) back_columns[i][j] = state[i];
    end
  endfunction
  localparam logic [6:0][31:0][31:0] BACK_COLUMNS = {
    back_columns(6), back_columns(5), back_columns(4), back_columns(3),
    back_columns(2), back_columns(1), back_columns(0)
  };

  function automatic logic [31:0] crc_back(logic [31:0] state, logic [2:0] k);
    for (int i = 0; i < 32; i++) crc_back[i] = ^(state & BACK_COLUMNS[k][i]);
  endfunction

  // States as polynomials, the highest power in bit 0: their product.
  function automatic logic [31:0] crc_product(logic [31:0] a, logic [31:0] b);
    logic [31:0] power;
    power = b;
    crc_product = '0;
    for (int i = 31; i >= 0; i--) begin
      if (a[i]) crc_product ^= power;
      power = crc_bit(power);
    end
  endfunction

  // x to the power of so many bytes: digits of 7 bits, 128 powers each.
  function automatic logic [511:0][31:0] powers();
    logic [31:0] power, step;
    step = 32'h0080_0000;  // x^8
    for (int digit = 0; digit < 4; digit++) begin
      power = 32'h8000_0000;
      for (int n = 0; n < 128; n++) begin
        powers[128*digit+n] = power;
        power = crc_product(power, step);
      end
      step = power;
    end
  endfunction
  localparam logic [511:0][31:0] POWERS = powers();

  // The state behind a right frame and so many bytes of zero.
  function automatic logic [63:0][31:0] padded_states();
    logic [31:0] state;
    state = CRC_GOOD;
    for (int n = 0; n < 64; n++) begin
      padded_states[n] = state;
      for (int i = 0; i < 8; i++) state = crc_bit(state);
    end
  endfunction
  localparam logic [63:0][31:0] PADDED_STATES = padded_states();

  // --- bytes of a line ---
  // Byte i goes to byte i + by, modulo 64.
  function automatic logic [511:0] turn(logic [511:0] line, logic [5:0] by);
    logic [511:0] turned;
    turned = line;
    for (int k = 0; k < 6; k++)
      if (by[k]) turned = (turned << (8 << k)) | (turned >> (512 - (8 << k)));
    return turned;
  endfunction
  // `count` bytes from `first` on, those of this line.
  function automatic logic [63:0] bytes_from(logic [5:0] first, logic [6:0] count);
    for (int i = 0; i < 64; i++)
      bytes_from[i] = 7'(i) >= {1'b0, first} && 8'(i) < {2'd0, first} + {1'b0, count};
  endfunction
  function automatic logic [511:0] only(logic [511:0] line, logic [63:0] bytes);
    for (int i = 0; i < 64; i++) only[8*i+:8] = line[8*i+:8] & {8{bytes[i]}};
  endfunction
endpackage
