// SPDX-License-Identifier: Apache-2.0
// Every fourth element of the vectors: sixteen registers of eight elements, and the arithmetic. What is
// issued in a cycle is in its register seven cycles later.
module vector_lane
  import float_types::*;
  import vfu_types::*;
(
    input  logic         clk,
    input  logic         rst,
    input  logic         issue,
    input  instruction_t instruction,
    input  logic [2:0]   beat,
    // registers that are read in this cycle, and operands
    input  logic [2:0]   a_beat,
    output logic [31:0]  read_a,
    output logic [31:0]  read_b,
    input  logic [31:0]  a,
    input  logic [31:0]  b,
    input  logic [31:0]  loaded,        // of the loads and OP_LENGTHS
    // the chord of what was issued in the cycle before; its slope or shift comes a cycle later
    output logic [10:0]  chord_place,   // table and chord
    output logic         chord_shift,
    input  logic [31:0]  chord_word,
    // divider
    input  logic         divide_start,  // with the operands issued in the cycle before
    input  logic         divide_write,
    output logic         divide_busy,
    // a cycle after issue: what is kept; two cycles: what is stored
    output logic [31:0]  kept,
    output logic [31:0]  stored,
    output logic         stored_bad
);
  logic [31:0] registers[128];
  logic mask[8];
  assign read_a = registers[{instruction.a[3:0], a_beat}];
  assign read_b = registers[{instruction.b[3:0], beat}];

  logic valid_1, mask_1;
  op_t op_1;
  logic [6:0] place_1, place_2, place_3, place_4, place_5, place_6;
  logic [31:0] a_1, b_1, loaded_1;
  always_ff @(posedge clk) begin
    valid_1 <= issue && !rst;
    if (issue) begin
      op_1 <= instruction.op;
      place_1 <= {instruction.to, beat};
      a_1 <= a;
      b_1 <= b;
      loaded_1 <= loaded;
      mask_1 <= mask[beat];
    end
  end
  assign kept = a_1;

  logic adds, multiplies, converts, sum_valid, product_valid, converted_valid;
  logic [31:0] sum, product, converted;
  assign adds = valid_1 && (op_1 == OP_ADD || op_1 == OP_SUBTRACT);
  assign multiplies = valid_1 && op_1 == OP_MULTIPLY;
  assign converts = valid_1 && op_1 == OP_FROM_INTEGER;
  float_add adder (
      .clk(clk),
      .valid(adds),
      .a(a_1),
      .b(op_1 == OP_SUBTRACT ? {!b_1[31], b_1[30:0]} : b_1),
      .sum_valid(sum_valid),
      .sum(sum)
  );
  float_multiply multiplier (
      .clk(clk),
      .valid(multiplies),
      .a(a_1),
      .b(b_1),
      .product_valid(product_valid),
      .product(product)
  );
  int_to_float convert (
      .clk(clk),
      .valid(converts),
      .value(a_1),
      .float_valid(converted_valid),
      .single(converted)
  );
  logic [31:0] quotient;
  float_divide divider (
      .clk(clk),
      .rst(rst),
      .start(divide_start),
      .is_root(op_1 == OP_ROOT),
      .a(a_1),
      .b(b_1),
      .busy(divide_busy),
      .result(quotient)
  );

  // what takes one cycle
  logic [15:0] half;
  assign half = float_to_half(a_1);
  logic [31:0] other, bf16;
  assign bf16 = a_1 + 32'h00007fff + {31'd0, a_1[16]};
  logic signed [9:0] integer_a, half_a;
  logic less, a_nan, sets_mask, writes;
  assign a_nan = a_1[30:0] > 31'h7f800000;
  assign integer_a = small_integer(a_1);
  assign half_a = integer_a >>> 1;
  assign chord_place = {b_1[0], chord(a_1)};
  assign chord_shift = op_1 == OP_SHIFT;
  assign less = float_less(a_1, b_1);
  always_comb begin
    other = a_1;
    sets_mask = 1'b0;
    writes = 1'b1;
    case (op_1)
      OP_NEGATE: other = {!a_1[31], a_1[30:0]};
      OP_ABSOLUTE: other = {1'b0, a_1[30:0]};
      OP_SIGN: other = {b_1[31], a_1[30:0]};
      OP_RINT: other = rounded(a_1);
      OP_POWER_HIGH: other = {1'b0, 8'(10'sd127 + half_a), 23'd0};
      OP_POWER_LOW: other = {1'b0, 8'(10'sd127 + integer_a - half_a), 23'd0};
      OP_LESS, OP_IS_NAN: begin
        sets_mask = 1'b1;
        writes = 1'b0;
      end
      OP_SELECT: other = mask_1 ? a_1 : b_1;
      OP_SLOPE, OP_SHIFT: ;  // chord_word, a cycle later
      OP_LENGTHS, OP_LOAD_HALF, OP_LOAD_SINGLE, OP_LOAD_PAIR, OP_LOAD_ODD: other = loaded_1;
      OP_TO_BF16: other = {bf16[31:16], 16'd0};
      OP_TO_HALF: other = half_to_float(half);
      OP_MOVE, OP_ROTATE_1, OP_ROTATE_2, OP_ROTATE_4: ;
      default: writes = 1'b0;
    endcase
  end

  // six cycles for all
  logic chord_2, other_2, other_3, other_4, other_5, other_6, sum_6, product_6, converted_4, converted_5, converted_6;
  logic [31:0] value_2, value_3, value_4, value_5, value_6, product_value_6;
  logic [31:0] converted_value_4, converted_value_5, converted_value_6, eight, whole;
  assign whole = rounded(a_1);
  assign eight = a_nan ? 32'd0 : a_1[30:23] >= 8'd134 ? (a_1[31] ? -32'sd127 : 32'sd127)
      : small_integer(whole) > 10'sd127 ? 32'sd127 : small_integer(whole) < -10'sd127 ? -32'sd127
      : 32'(small_integer(whole));
  assign sum_6 = sum_valid;
  always_ff @(posedge clk) begin
    place_2 <= place_1;
    place_3 <= place_2;
    place_4 <= place_3;
    place_5 <= place_4;
    place_6 <= place_5;
    other_2 <= valid_1 && writes && !adds && !multiplies && !converts;
    other_3 <= other_2;
    other_4 <= other_3;
    other_5 <= other_4;
    other_6 <= other_5;
    value_2 <= other;
    chord_2 <= op_1 == OP_SLOPE || op_1 == OP_SHIFT;
    value_3 <= chord_2 ? chord_word : value_2;
    value_4 <= value_3;
    value_5 <= value_4;
    value_6 <= value_5;
    product_6 <= product_valid;
    product_value_6 <= product;
    converted_4 <= converted_valid;
    converted_5 <= converted_4;
    converted_6 <= converted_5;
    converted_value_4 <= converted;
    converted_value_5 <= converted_value_4;
    converted_value_6 <= converted_value_5;
    if (valid_1 && sets_mask) mask[place_1[2:0]] <= op_1 == OP_LESS ? less : a_nan;
    if (valid_1) begin
      stored_bad <= op_1 == OP_STORE_INT8 ? a_nan
          : op_1 == OP_STORE_SINGLE ? a_1[30:23] == 8'd255 : op_1 == OP_STORE_HALF && half[14:10] == 5'd31;
      stored <= op_1 == OP_STORE_INT8 ? eight : op_1 == OP_STORE_SINGLE ? canonical(a_1)
          : op_1 == OP_STORE_BITS ? a_1 : {16'd0, half};
    end
    if (divide_write) registers[place_1] <= quotient;
    else if (sum_6 || product_6 || converted_6 || other_6)
      registers[place_6] <= sum_6 ? sum : product_6 ? product_value_6 : converted_6 ? converted_value_6 : value_6;
  end
endmodule
