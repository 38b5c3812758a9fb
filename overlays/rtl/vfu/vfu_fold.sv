// SPDX-License-Identifier: Apache-2.0
// Folds up to 32 elements, in order, into a number that it keeps: their sum, one for each of eight
// segments (docs/numbers.md, 2.1), their largest magnitude, NaN left out, or the first maximum with its
// index, where a NaN is the maximum. A sum takes five cycles an element, a maximum one.
module vfu_fold
  import float_types::*;
  import vfu_types::*;
(
    input  logic              clk,
    input  logic              rst,
    input  logic              clear,
    input  fold_t             kind,
    input  logic              start,
    input  logic [5:0]        count,    // at least 1
    input  logic [2:0]        segment,  // whose sum it is; 0 of maxima
    input  logic [31:0]       first,    // index of the first element
    input  logic [1023:0]     values,   // held
    output logic              busy,
    output logic [7:0][31:0]  folded,
    output logic [31:0]       index
);
  logic [5:0] element;  // the next
  logic [31:0] value, sum;
  logic under_way, add, sum_valid, takes;
  assign value = values[{element[4:0], 5'd0}+:32];
  assign add = busy && kind == FOLD_ADD && (under_way ? sum_valid && element != count : 1'b1);
  float_add adder (
      .clk(clk),
      .valid(add),
      .a(under_way ? sum : folded[segment]),
      .b(value),
      .sum_valid(sum_valid),
      .sum(sum)
  );
  always_comb begin
    if (kind == FOLD_MAGNITUDE)
      takes = value[30:0] <= 31'h7f800000 && value[30:0] > folded[0][30:0];
    else
      takes = index == 32'hffffffff || (folded[0] != FLOAT_NAN &&
              (value[30:0] > 31'h7f800000 || float_less(folded[0], value)));
  end
  always_ff @(posedge clk) begin
    if (start) begin
      busy <= 1'b1;
      element <= 6'd0;
      under_way <= 1'b0;
    end else if (busy && kind == FOLD_ADD) begin
      if (add) begin
        element <= element + 6'd1;
        under_way <= 1'b1;
      end else if (sum_valid && under_way) begin
        folded[segment] <= sum;
        busy <= 1'b0;
      end
    end else if (busy) begin
      if (takes) begin
        folded[0] <= kind == FOLD_MAGNITUDE ? {1'b0, value[30:0]} : canonical(value);
        index <= first + {26'd0, element};
      end
      element <= element + 6'd1;
      if (element + 6'd1 == count) busy <= 1'b0;
    end
    if (clear) begin
      folded <= '0;
      if (kind == FOLD_FIRST) folded[0] <= 32'hff800000;
      index <= 32'hffffffff;
    end
    if (rst) busy <= 1'b0;
  end
endmodule
