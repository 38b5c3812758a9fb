// SPDX-License-Identifier: Apache-2.0
// What a vector operation touches of x, y and z, and what its fields must be: as the kernels of csrc/kernels/units
// find it. Tables are looked at by the memory port.
module vector_operands
  import abi_types::*;
(
    input  vector_record_t command,
    output logic           known,          // there is such an operation
    output logic           wrong,          // a field by itself is out of range
    output logic           wrong_late,     // the same, but rows are looked at first
    output logic           heads,          // `extra` columns each: columns / extra
    output logic           row_heads,      // head_dim each: extra, columns and first / head_dim
    output logic           in_place,       // x is where y is
    output logic           rotates,        // y is where x is
    output logic           x_in_y_bank,
    output logic [2:0]     has,            // x, y, z
    output logic [2:0][1:0] element,       // log2 of the bytes of x's, y's and z's
    output logic           row_in_y,       // one struct lora_argmax a row
    output logic           z_by_columns,   // z's rows are as long as x's
    output logic [6:0]     z_bytes,        // else so long, unless they are heads'
    output logic           a_needed,
    output logic           b_needed,
    output logic           by_token,
    output logic           runs_empty      // there is something to do without columns
);
  localparam logic [2:0] X = 3'b001, Y = 3'b010, Z = 3'b100;
  localparam logic [1:0] BYTE = 2'd0, HALF = 2'd1, SINGLE = 2'd2;
  logic none;
  assign none = command.extra == '0;
  always_comb begin
    known = 1'b1;
    {wrong, wrong_late, heads, row_heads, in_place, rotates, x_in_y_bank, row_in_y} = '0;
    {z_by_columns, a_needed, b_needed, by_token, runs_empty} = '0;
    z_bytes = 7'd0;
    has = X | Y;
    element = {HALF, HALF, HALF};
    unique case (command.op)
      8'(LORA_VEC_EMBED), 8'(LORA_VEC_EMBED_SCALED): begin
        has = Y;
        a_needed = 1'b1;
        b_needed = command.b_bank != 8'(LORA_NO_BANK);
        by_token = 1'b1;
      end
      8'(LORA_VEC_ADD_POSITION): b_needed = 1'b1;
      8'(LORA_VEC_LN_SUMS), 8'(LORA_VEC_RMS_SUMS), 8'(LORA_VEC_LN_APPLY), 8'(LORA_VEC_RMS_APPLY): begin
        has = X | Z;
        if (command.op == 8'(LORA_VEC_LN_APPLY) || command.op == 8'(LORA_VEC_RMS_APPLY)) begin
          has = X | Y | Z;
          a_needed = command.a_bank != 8'(LORA_NO_BANK);
          b_needed = command.op == 8'(LORA_VEC_LN_APPLY) && command.b_bank != 8'(LORA_NO_BANK);
        end
        z_bytes = command.op == 8'(LORA_VEC_LN_SUMS) || command.op == 8'(LORA_VEC_LN_APPLY) ? 7'd64 : 7'd32;
        element[2] = SINGLE;
        wrong_late = none;
      end
      8'(LORA_VEC_ROPE): begin
        has = X;
        rotates = 1'b1;
        heads = 1'b1;
        wrong = none || command.extra[0];
        a_needed = 1'b1;
      end
      8'(LORA_VEC_RESIDUAL), 8'(LORA_VEC_RESIDUAL_SCALED), 8'(LORA_VEC_SWIGLU), 8'(LORA_VEC_GEGLU): begin
        has = X | Y | Z;
        z_by_columns = 1'b1;
      end
      8'(LORA_VEC_RELU), 8'(LORA_VEC_GELU_TANH), 8'(LORA_VEC_GELU_ERF): ;
      8'(LORA_VEC_ARGMAX): begin
        has = command.columns == '0 ? Y : X | Y;
        x_in_y_bank = 1'b1;
        row_in_y = 1'b1;
        element = {HALF, SINGLE, SINGLE};
        runs_empty = 1'b1;
      end
      8'(LORA_VEC_QUANTIZE): element[1] = BYTE;
      8'(LORA_VEC_QUANTIZE_HEADS): begin
        has = X | Y | Z;
        heads = 1'b1;
        wrong = none;
        element[1] = BYTE;
      end
      8'(LORA_VEC_PERMUTE): begin
        wrong = command.extra != 32'd1 && command.extra != 32'd2;
        element = {3{command.extra[1:0] == 2'd2 ? HALF : BYTE}};
        a_needed = 1'b1;
      end
      8'(LORA_VEC_RMS_HEADS): begin
        heads = 1'b1;
        wrong = none;
        a_needed = 1'b1;
      end
      8'(LORA_VEC_HEAD_SUMS), 8'(LORA_VEC_RMS_ROW): begin
        has = command.op == 8'(LORA_VEC_RMS_ROW) ? X | Y | Z : X | Z;
        row_heads = 1'b1;
        wrong = none || command.extra > 32'd1 << 24 ||
            {1'b0, command.first} + {1'b0, command.columns} > {1'b0, command.extra};
        element[2] = SINGLE;
        a_needed = command.op == 8'(LORA_VEC_RMS_ROW);
      end
      8'(LORA_VEC_SCALE), 8'(LORA_VEC_SOFTCAP): begin
        has = Y;
        in_place = 1'b1;
        element = {HALF, SINGLE, SINGLE};
      end
      8'(LORA_VEC_ROW_MAX), 8'(LORA_VEC_QUANTIZE_ROW): begin
        has = command.op == 8'(LORA_VEC_ROW_MAX) ? X | Z : X | Y | Z;
        wrong = none || command.extra > LORA_ROW_MAXIMA ||
            (command.op == 8'(LORA_VEC_ROW_MAX) && command.first >= command.extra);
        z_bytes = 7'd64;
        element = {SINGLE, BYTE, HALF};
        runs_empty = 1'b1;
      end
      default: known = 1'b0;
    endcase
  end
endmodule
