// SPDX-License-Identifier: Apache-2.0
// What of each stream is read for a chunk of columns, and where its results belong.
module vfu_addresses
  import vfu_types::*;
(
    input  shape_t      shape,
    input  place_t      place,
    input  logic [31:0] half,     // columns of half a head
    input  logic        wide,     // PERMUTE: elements of two bytes
    input  logic [5:0]  x_bank,
    input  logic [5:0]  z_bank,
    input  logic [5:0]  a_bank,
    input  logic [5:0]  b_bank,
    output banks_t      banks,
    output addresses_t  addresses,
    output sizes_t      sizes,
    output logic [3:0]  wanted,
    output logic [37:0] y_address,
    output logic [1:0]  y_element
);
  logic [31:0] column, in_group;
  logic [5:0] length;
  assign column = place.column;
  assign length = place.length;
  assign in_group = column - place.group;
  always_comb begin
    banks = {b_bank, a_bank, z_bank, x_bank};
    addresses[STREAM_X] = {6'd0, place.x_row} + {6'd0, shape.x_single ? column << 2 : column << 1};
    addresses[STREAM_Z] = {6'd0, place.z_row};
    addresses[STREAM_A] = place.a_row + {6'd0, column << 1};
    addresses[STREAM_B] = place.b_row + {6'd0, column << 1};
    for (int s = 0; s < 4; s++) sizes[s] = {1'b0, length, 1'b0};
    if (shape.x_single) sizes[STREAM_X] = {length, 2'd0};
    if (shape.tables_single) begin
      sizes[STREAM_A] = {length, 2'd0};
      sizes[STREAM_B] = {length, 2'd0};
    end
    if (shape.finish_reads && place.phase == FINISHES) sizes[STREAM_Z] = 8'd64;
    else if (place.phase == FOLDS) begin
      addresses[STREAM_Z] = {6'd0, place.z_row} + {6'd0, column << 2};
      sizes[STREAM_Z] = {length, 2'd0};
    end else addresses[STREAM_Z] = {6'd0, place.z_row} + {6'd0, column << 1};
    if (shape.heads) addresses[STREAM_A] = place.a_row + {6'd0, in_group << 1};
    if (shape.permute) addresses[STREAM_A] = place.a_row + {6'd0, column << 2};
    if (shape.rotate) begin
      banks[STREAM_Z] = x_bank;
      banks[STREAM_B] = a_bank;
      addresses[STREAM_Z] = {6'd0, place.x_row} + {6'd0, (column + half) << 1};
      addresses[STREAM_A] = place.a_row + {6'd0, in_group << 2};
      addresses[STREAM_B] = place.a_row + {6'd0, (in_group + half) << 2};
    end
    unique case (place.phase)
      FOLDS: wanted = shape.fold_z ? 4'b0010 : 4'b0001;
      FINISHES: wanted = {2'd0, shape.finish_reads, 1'b0};
      APPLIES: wanted = shape.reads;
      default: wanted = 4'd0;
    endcase
  end

  always_comb begin
    y_element = shape.permute ? (wide ? ELEMENT_HALF : ELEMENT_BYTE) : shape.element;
    y_address = {6'd0, place.y_row} +
        {6'd0, y_element == ELEMENT_SINGLE ? column << 2 : y_element == ELEMENT_HALF ? column << 1 : column};
    if (place.phase == ROTATES) y_address = {6'd0, place.y_row} + {6'd0, (column + half) << 1};
    else if (place.phase == FOLDS) begin
      y_element = ELEMENT_SINGLE;
      y_address = 38'd0;
    end else if (place.phase == FINISHES) begin
      y_element = shape.record_half ? ELEMENT_HALF : ELEMENT_SINGLE;
      if (shape.record_in_y) y_address = {6'd0, place.y_row} + {35'd0, place.again, 2'd0};
      else if (shape.segments)
        y_address = {6'd0, place.z_row} +
            (shape.twice ? {31'd0, place.segment, place.again, 2'd0} : {32'd0, place.segment, 2'd0});
      else y_address = {6'd0, place.z_row} + {6'd0, shape.record_half ? place.number << 1 : place.number << 2};
    end
  end
endmodule
