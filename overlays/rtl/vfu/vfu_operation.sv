// What each operation reads and stores, and where its programs begin.
module vfu_operation
  import vfu_types::*;
  import vfu_program::*;
(
    input  logic [7:0] op,
    input  logic       has_a,
    input  logic       has_b,
    output logic [8:0] program_row,
    output logic [8:0] program_line,
    output logic [4:0] reads,    // x, x as FP32, z, table a, table b
    output logic [1:0] element,  // of y: 0 FP16, 1 FP32, 2 INT8
    output logic       by_token,
    output logic       is_norm
);
  logic [4:0] wanted;
  assign reads = wanted & {has_b, has_a, 3'b111};
  assign program_row = op == VEC_LN_APPLY ? AT_LN_ROW : AT_RMS_ROW;
  assign by_token = op == VEC_EMBED || op == VEC_EMBED_SCALED;
  assign is_norm = op == VEC_LN_APPLY || op == VEC_RMS_APPLY;
  always_comb begin
    unique case (op)
      VEC_EMBED: {program_line, wanted, element} = {AT_EMBED, 5'b11000, 2'd0};
      VEC_EMBED_SCALED: {program_line, wanted, element} = {AT_EMBED, 5'b11000, 2'd0};
      VEC_ADD_POSITION: {program_line, wanted, element} = {AT_ADD_POSITION, 5'b10001, 2'd0};
      VEC_LN_APPLY: {program_line, wanted, element} = {AT_LN_APPLY, 5'b11001, 2'd0};
      VEC_RMS_APPLY: {program_line, wanted, element} = {AT_RMS_APPLY, 5'b01001, 2'd0};
      VEC_RESIDUAL: {program_line, wanted, element} = {AT_RESIDUAL, 5'b00101, 2'd0};
      VEC_RESIDUAL_SCALED: {program_line, wanted, element} = {AT_RESIDUAL, 5'b00101, 2'd0};
      VEC_RELU: {program_line, wanted, element} = {AT_RELU, 5'b00001, 2'd0};
      VEC_GELU_TANH: {program_line, wanted, element} = {AT_GELU_TANH, 5'b00001, 2'd0};
      VEC_GELU_ERF: {program_line, wanted, element} = {AT_GELU_ERF, 5'b00001, 2'd0};
      VEC_SWIGLU: {program_line, wanted, element} = {AT_SWIGLU, 5'b00101, 2'd0};
      VEC_GEGLU: {program_line, wanted, element} = {AT_GEGLU, 5'b00101, 2'd0};
      VEC_QUANTIZE: {program_line, wanted, element} = {AT_QUANTIZE, 5'b00001, 2'd2};
      VEC_SCALE: {program_line, wanted, element} = {AT_SCALE, 5'b00011, 2'd1};
      VEC_SOFTCAP: {program_line, wanted, element} = {AT_SOFTCAP, 5'b00011, 2'd1};
      default: {program_line, wanted, element} = '0;
    endcase
  end
endmodule
