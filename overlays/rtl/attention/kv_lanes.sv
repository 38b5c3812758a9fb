// SPDX-License-Identifier: Apache-2.0
// 32 columns and one for E: sums of FP16 products in eight slots (slot_lane), or exact sums of INT8 ones.
// Operands come with `slot` of three cycles before; then sums are read slot by slot, four columns a cycle.
module kv_lanes (
    input  logic         clk,
    input  logic         integers,
    // of slots of three cycles before
    input  logic [511:0] w,
    input  logic [15:0]  x,
    input  logic         use_product,  // beside x, and so are the next three
    input  logic         use_one,      // E's column: its weight is 1
    input  logic         clear,
    input  logic [2:0]   integer_slot,
    // reading
    input  logic         hold,         // the sum that comes out next
    input  logic [2:0]   read_slot,    // of integers
    input  logic [2:0]   beat,
    output logic [3:0][31:0] values,   // FP32 or integers of that beat, a cycle later
    output logic [31:0]  one_value
);
  // beside the FP16 operands, two cycles later
  logic use_4, use_5, one_4, one_5, clear_4, clear_5;
  logic [2:0] slot_4;
  always_ff @(posedge clk) begin
    use_4 <= use_product;
    use_5 <= use_4;
    one_4 <= use_one;
    one_5 <= one_4;
    clear_4 <= clear;
    clear_5 <= clear_4;
    slot_4 <= integer_slot;
  end

  logic signed [11:0] x_signed;
  logic [5:0] x_exponent;
  logic x_negative, x_zero, x_infinite, x_nan;
  fp16_operand x_operand (
      .clk(clk),
      .value(x),
      .signed_significand(x_signed),
      .exponent(x_exponent),
      .negative(x_negative),
      .zero(x_zero),
      .infinite(x_infinite),
      .nan(x_nan)
  );
  logic signed [24:0] mantissas[33];
  logic [6:0] exponents[33];
  logic [1:0] flags[33];
  for (genvar i = 0; i < 33; i++) begin : lanes
    logic signed [11:0] w_signed;
    logic [5:0] w_exponent;
    logic w_negative, w_zero, w_infinite, w_nan;
    if (i < 32) begin : column
      fp16_operand operand (
          .clk(clk),
          .value(w[16*i+:16]),
          .signed_significand(w_signed),
          .exponent(w_exponent),
          .negative(w_negative),
          .zero(w_zero),
          .infinite(w_infinite),
          .nan(w_nan)
      );
    end else begin : one  // 1024 * 2^-10
      assign {w_signed, w_exponent} = {12'sd1024, 6'd25};
      assign {w_negative, w_zero, w_infinite, w_nan} = 4'd0;
    end
    slot_lane lane (
        .clk(clk),
        .x_signed(x_signed),
        .x_exponent(x_exponent),
        .x_negative(x_negative),
        .x_zero(x_zero),
        .x_infinite(x_infinite),
        .x_nan(x_nan),
        .x_use(i < 32 ? use_5 : one_5),
        .w_signed(w_signed),
        .w_exponent(w_exponent),
        .w_negative(w_negative),
        .w_zero(w_zero),
        .w_infinite(w_infinite),
        .w_nan(w_nan),
        .clear(clear_5),
        .hold(hold),
        .held_mantissa(mantissas[i]),
        .held_exponent(exponents[i]),
        .held_flags(flags[i])
    );
  end

  logic [31:0] sums[34];
  for (genvar i = 0; i < 17; i++) begin : pairs
    integer_sums pair (
        .clk(clk),
        .low(i < 16 ? w[16*(i%16)+:8] : 8'sd1),
        .high(i < 16 ? w[16*(i%16)+8+:8] : 8'sd0),
        .x(x[7:0]),
        .use_product(i < 16 ? use_4 : one_4),
        .clear(clear_4),
        .slot(slot_4),
        .read_slot(i < 16 ? read_slot : 3'd0),
        .read_low(sums[2*i]),
        .read_high(sums[2*i+1])
    );
  end

  for (genvar i = 0; i < 5; i++) begin : results
    logic [5:0] column;
    logic [31:0] single, whole;
    assign column = i < 4 ? {1'b0, beat, 2'(i)} : 6'd32;
    sum_to_float convert (
        .clk(clk),
        .mantissa(mantissas[column]),
        .exponent(exponents[column]),
        .flags(flags[column]),
        .single(single),
        // verilator lint_off PINCONNECTEMPTY
        .half()
        // verilator lint_on PINCONNECTEMPTY
    );
    always_ff @(posedge clk) whole <= sums[column];
    if (i < 4) begin : four
      assign values[i] = integers ? whole : single;
    end else begin : e
      assign one_value = integers ? whole : single;
    end
  end
endmodule
