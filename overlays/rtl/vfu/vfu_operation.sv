// SPDX-License-Identifier: Apache-2.0
// What each operation folds, reads and stores, and where its programs begin.
module vfu_operation
  import vfu_types::*;
  import vfu_program::*;
(
    input  logic [7:0] op,
    input  logic       has_a,
    input  logic       has_b,
    output shape_t     shape
);
  localparam logic [3:0] X = 4'b0001, Z = 4'b0010, A = 4'b0100, B = 4'b1000;
  logic [3:0] present;
  assign present = {has_b || op == VEC_ROPE, has_a, 2'b11};
  always_comb begin
    shape = '0;
    unique case (op)
      VEC_EMBED, VEC_EMBED_SCALED: begin
        shape.apply_at = AT_EMBED;
        shape.reads = A | B;
        shape.by_token = 1'b1;
        shape.by_position = 1'b1;
      end
      VEC_ADD_POSITION: begin
        shape.apply_at = AT_ADD_POSITION;
        shape.reads = X | B;
        shape.by_position = 1'b1;
      end
      VEC_LN_SUMS: begin
        shape.segments = 1'b1;
        shape.fold = FOLD_ADD;
        shape.fold_at = AT_VALUES;
        shape.finish_at = AT_MEAN;
        shape.twice = 1'b1;
        shape.fold_again_at = AT_DEVIATIONS;
        shape.finish_again_at = AT_FOLDED;
        shape.records = 1'b1;
      end
      VEC_RMS_SUMS: begin
        shape.segments = 1'b1;
        shape.fold = FOLD_ADD;
        shape.fold_at = AT_SQUARES;
        shape.finish_at = AT_FOLDED;
        shape.records = 1'b1;
      end
      VEC_LN_APPLY: begin
        shape.finish_reads = 1'b1;
        shape.finish_at = AT_LN_ROW;
        shape.apply_at = AT_LN_APPLY;
        shape.reads = X | A | B;
        shape.is_norm = 1'b1;
      end
      VEC_RMS_APPLY: begin
        shape.finish_reads = 1'b1;
        shape.finish_at = AT_RMS_ROW;
        shape.apply_at = AT_RMS_APPLY;
        shape.reads = X | A;
        shape.is_norm = 1'b1;
      end
      VEC_ROPE: begin
        shape.heads = 1'b1;
        shape.rotate = 1'b1;
        shape.apply_at = AT_ROPE_LOW;
        shape.reads = X | Z | A | B;
        shape.tables_single = 1'b1;
      end
      VEC_RESIDUAL, VEC_RESIDUAL_SCALED: begin
        shape.apply_at = AT_RESIDUAL;
        shape.reads = X | Z;
      end
      VEC_RELU: {shape.apply_at, shape.reads} = {AT_RELU, X};
      VEC_GELU_TANH: {shape.apply_at, shape.reads} = {AT_GELU_TANH, X};
      VEC_GELU_ERF: {shape.apply_at, shape.reads} = {AT_GELU_ERF, X};
      VEC_SWIGLU: {shape.apply_at, shape.reads} = {AT_SWIGLU, X | Z};
      VEC_GEGLU: {shape.apply_at, shape.reads} = {AT_GEGLU, X | Z};
      VEC_ARGMAX: begin
        shape.fold = FOLD_FIRST;
        shape.fold_at = AT_SINGLES;
        shape.finish_at = AT_FOLDED;
        shape.twice = 1'b1;
        shape.fold_once = 1'b1;
        shape.finish_again_at = AT_INDEX;
        shape.records = 1'b1;
        shape.record_in_y = 1'b1;
        shape.x_single = 1'b1;
      end
      VEC_QUANTIZE: begin
        shape.apply_at = AT_QUANTIZE;
        shape.reads = X;
        shape.element = ELEMENT_BYTE;
      end
      VEC_QUANTIZE_HEADS: begin
        shape.heads = 1'b1;
        shape.fold = FOLD_MAGNITUDE;
        shape.fold_at = AT_VALUES;
        shape.finish_at = AT_HEAD_SCALE;
        shape.records = 1'b1;
        shape.record_half = 1'b1;
        shape.apply_at = AT_QUANTIZE_BY;
        shape.reads = X;
        shape.element = ELEMENT_BYTE;
      end
      VEC_PERMUTE: begin
        shape.permute = 1'b1;
        shape.apply_at = AT_NOTHING;
        shape.reads = A;
        shape.tables_single = 1'b1;
      end
      VEC_RMS_HEADS: begin
        shape.heads = 1'b1;
        shape.tree = 1'b1;
        shape.fold = FOLD_ADD;
        shape.fold_at = AT_SQUARES;
        shape.finish_at = AT_HEAD_FACTOR;
        shape.apply_at = AT_RMS_APPLY;
        shape.reads = X | A;
        shape.is_norm = 1'b1;
      end
      VEC_HEAD_SUMS: begin
        shape.heads = 1'b1;
        shape.tree = 1'b1;
        shape.fold = FOLD_ADD;
        shape.fold_at = AT_SQUARES;
        shape.finish_at = AT_HEAD_SUM;
        shape.records = 1'b1;
      end
      VEC_RMS_ROW: begin
        shape.fold = FOLD_ADD;
        shape.fold_z = 1'b1;
        shape.fold_at = AT_RECORDS;
        shape.finish_at = AT_FOLDED_FACTOR;
        shape.apply_at = AT_RMS_APPLY;
        shape.reads = X | A;
        shape.is_norm = 1'b1;
      end
      VEC_SCALE, VEC_SOFTCAP: begin
        shape.apply_at = op == VEC_SCALE ? AT_SCALE : AT_SOFTCAP;
        shape.reads = X;
        shape.x_single = 1'b1;
        shape.element = ELEMENT_SINGLE;
      end
      VEC_ROW_MAX: begin
        shape.fold = FOLD_MAGNITUDE;
        shape.fold_at = AT_VALUES;
        shape.finish_at = AT_MAXIMUM;
        shape.records = 1'b1;
      end
      VEC_QUANTIZE_ROW: begin
        shape.fold = FOLD_MAGNITUDE;
        shape.fold_z = 1'b1;
        shape.fold_at = AT_RECORDS;
        shape.finish_at = AT_ROW_SCALE;
        shape.records = 1'b1;
        shape.apply_at = AT_QUANTIZE_BY;
        shape.reads = X;
        shape.element = ELEMENT_BYTE;
      end
      default: ;
    endcase
    shape.finish = shape.fold != FOLD_NONE || shape.finish_reads;
    shape.apply = shape.reads != 4'd0;
    shape.reads = shape.reads & present;
  end
endmodule
