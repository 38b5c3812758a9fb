// SPDX-License-Identifier: Apache-2.0
// 32 columns and one for E: sums of FP16 products in eight slots (slot_lane). Beside them 64 exact sums of INT8
// products, in eight slots each. Operands come with `slot` of three cycles before; what is held is read by column.
module kv_lanes (
    input  logic         clk,
    input  logic         integers,
    // of slots of three cycles before
    input  logic [511:0] w,
    input  logic [15:0]  x,
    input  logic [7:0]   x_high,       // of integers: for the line's upper half
    input  logic         use_product,  // beside x, and so are the next three
    input  logic         use_one,      // E's column: its weight is 1
    input  logic         clear,
    input  logic [2:0]   integer_slot,
    // reading
    input  logic         hold,         // the sums that come out next, of this slot
    input  logic [2:0]   hold_slot,
    input  logic [4:0]   read_column,  // of two slots; of integers of one, and the column 32 further on
    input  logic [2:0]   read_slot,
    input  logic [2:0]   read_other,
    output logic [31:0]  value,        // FP32 or an integer, a cycle later
    output logic [31:0]  other,
    output logic [31:0]  one_value     // E of the slot
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
  logic [33:0] held[33], held_other[33];
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
        .x_use((i < 32 ? use_5 : one_5) && !integers),
        .w_signed(w_signed),
        .w_exponent(w_exponent),
        .w_negative(w_negative),
        .w_zero(w_zero),
        .w_infinite(w_infinite),
        .w_nan(w_nan),
        .clear(clear_5),
        .hold(hold),
        .hold_slot(hold_slot),
        .read_slot(read_slot),
        .read_held(held[i]),
        .read_other(read_other),
        .read_other_held(held_other[i])
    );
  end

  logic [31:0] sums[64];
  for (genvar i = 0; i < 32; i++) begin : pairs
    integer_sums pair (
        .clk(clk),
        .on(integers && use_product),
        .low(w[16*i+:8]),
        .high(w[16*i+8+:8]),
        .x(i < 16 ? x[7:0] : x_high),
        .use_product(use_4 && integers),
        .clear(clear_4),
        .slot(slot_4),
        .read_slot(read_slot),
        .read_low(sums[2*i]),
        .read_high(sums[2*i+1])
    );
  end

  for (genvar i = 0; i < 3; i++) begin : results
    logic [33:0] sum;
    logic [31:0] single;
    assign sum = i == 0 ? held[{1'b0, read_column}] : i == 1 ? held_other[{1'b0, read_column}] : held[32];
    sum_to_float convert (
        .clk(clk),
        .mantissa(sum[24:0]),
        .exponent(sum[31:25]),
        .flags(sum[33:32]),
        .single(single),
        // verilator lint_off PINCONNECTEMPTY
        .half()
        // verilator lint_on PINCONNECTEMPTY
    );
    if (i == 0) begin : first
      logic [31:0] whole;
      always_ff @(posedge clk) whole <= sums[{1'b0, read_column}];
      assign value = integers ? whole : single;
    end else if (i == 1) begin : second
      logic [31:0] whole;
      always_ff @(posedge clk) whole <= sums[{1'b1, read_column}];
      assign other = integers ? whole : single;
    end else begin : e
      assign one_value = single;
    end
  end
endmodule
