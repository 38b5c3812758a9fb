// SPDX-License-Identifier: Apache-2.0
// FP32 and FP16 values, and what the units of full FP32 share.
package float_types;
  parameter logic [31:0] FLOAT_NAN = 32'h7fc00000;
  parameter logic [31:0] FLOAT_ONE = 32'h3f800000;
  parameter logic [31:0] FLOAT_NEGATIVE_ZERO = 32'h80000000;

  // Leading zeros by a tree of four parts each, so that its depth is that of few LUTs. Of four bits: whether one is set,
  // zeros before it (3 of none).
  function automatic logic [2:0] zeros_of_4(input logic [3:0] value);
    return {value != 4'd0, !value[3] && !value[2], !value[3] && (value[2] || !value[1])};
  endfunction

  // Leading zeros, 0..15, and whether a bit is set; of zero 15.
  function automatic logic [4:0] zeros_of_16(input logic [15:0] value);
    logic [2:0] a, b, c, d, parts;
    a = zeros_of_4(value[15:12]);
    b = zeros_of_4(value[11:8]);
    c = zeros_of_4(value[7:4]);
    d = zeros_of_4(value[3:0]);
    parts = zeros_of_4({a[2], b[2], c[2], d[2]});
    return {parts, a[2] ? a[1:0] : b[2] ? b[1:0] : c[2] ? c[1:0] : d[1:0]};
  endfunction

  // Leading zeros, 0..31; of zero 31.
  function automatic logic [4:0] leading_zeros_32(input logic [31:0] value);
    logic [4:0] high, low;
    high = zeros_of_16(value[31:16]);
    low = zeros_of_16(value[15:0]);
    return {!high[4], high[4] ? high[3:0] : low[3:0]};
  endfunction

  // Exact. A NaN stays one.
  function automatic logic [31:0] half_to_float(input logic [15:0] value);
    logic [3:0] zeros;
    logic [9:0] fraction;
    zeros = 4'(leading_zeros_32({value[9:0], 22'h3fffff}));
    fraction = value[9:0] << zeros;
    if (value[14:10] == 5'd31) return {value[15], 8'd255, value[9:0], 13'd0};
    if (value[14:10] != 5'd0) return {value[15], {3'd0, value[14:10]} + 8'd112, value[9:0], 13'd0};
    if (value[9:0] == 10'd0) return {value[15], 31'd0};
    return {value[15], 8'd112 - {4'd0, zeros}, {fraction[8:0], 14'd0}};
  endfunction

  // One rounding to nearest, ties to even (docs/numbers.md, 1.1); a NaN becomes that of 1.2.
  function automatic logic [15:0] float_to_half(input logic [31:0] value);
    logic [7:0] exponent, below;
    logic [4:0] right;
    logic [36:0] shifted;  // 11 kept bits and one more, then what is lost
    logic tiny, up;
    logic [14:0] magnitude;
    exponent = value[30:23];
    tiny = exponent < 8'd113;
    below = 8'd113 - exponent;
    right = !tiny ? 5'd0 : below > 8'd13 ? 5'd13 : below[4:0];
    shifted = {exponent != 8'd0, value[22:0], 13'd0} >> right;
    up = shifted[25] && (shifted[26] || shifted[24:0] != 25'd0);
    // a significand that rounds up to the next power of two carries into the exponent, as it should
    magnitude = (tiny ? {4'd0, shifted[36:26]} : {5'(exponent - 8'd112), shifted[35:26]}) + {14'd0, up};
    if (exponent == 8'd255 && value[22:0] != 23'd0) return 16'h7e00;
    if (exponent > 8'd142 || (!tiny && magnitude >= 15'h7c00)) return {value[31], 15'h7c00};
    return {value[31], magnitude};
  endfunction

  // a < b; false of a NaN, and of two zeros.
  function automatic logic float_less(input logic [31:0] a, input logic [31:0] b);
    if (a[30:0] > 31'h7f800000 || b[30:0] > 31'h7f800000 || (a[30:0] == 31'd0 && b[30:0] == 31'd0)) return 1'b0;
    if (a[31] != b[31]) return a[31];
    return a[31] ? a[30:0] > b[30:0] : a[30:0] < b[30:0];
  endfunction

  // With the NaN of docs/numbers.md, 1.2.
  function automatic logic [31:0] canonical(input logic [31:0] value);
    return value[30:23] == 8'd255 && value[22:0] != 23'd0 ? FLOAT_NAN : value;
  endfunction
endpackage
