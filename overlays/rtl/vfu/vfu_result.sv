// SPDX-License-Identifier: Apache-2.0
// Collects up to 32 elements at the bytes where they belong, then writes the lines that hold them.
module vfu_result
  import vfu_types::*;
(
    input  logic         clk,
    input  logic         rst,
    input  logic [37:0]  address,   // held, and so are the next two
    input  logic [1:0]   element,
    input  logic [5:0]   count,     // at least 1
    input  logic         store,     // four elements
    input  logic [2:0]   beat,
    input  logic [LANES-1:0][31:0] stored,
    input  logic         place,     // one element
    input  logic [4:0]   placed_at,
    input  logic [15:0]  placed,
    output logic [1023:0] values,   // elements of FP32, where the address is that of a line
    input  logic         start,
    output logic         busy,
    output logic         write_valid,
    input  logic         write_ready,
    output logic [31:0]  write_line,
    output logic [63:0]  write_bytes,
    output logic [511:0] write_data
);
  // twelve blocks of sixteen bytes: a beat lies in one, or in two that follow each other
  logic [11:0][15:0][7:0] out;
  logic [191:0] bytes;
  logic [1:0] line;
  assign values = out[7:0];
  logic [7:0] from;
  logic [15:0] packed_bytes;
  logic [127:0] packed_beat;
  logic [31:0] shifted_bytes;
  logic [31:0][7:0] shifted;
  assign from = {2'd0, address[5:0]} + bytes_of(element, {1'b0, place ? placed_at : {beat, 2'd0}});
  always_comb begin
    packed_bytes = 16'(~(~17'd0 << bytes_of(element, place ? 6'd1 : 6'd4)));
    packed_beat = stored;
    for (int lane = 0; lane < LANES; lane++) begin
      if (element == ELEMENT_HALF) packed_beat[16*lane+:16] = stored[lane][15:0];
      if (element == ELEMENT_BYTE) packed_beat[8*lane+:8] = stored[lane][7:0];
    end
    if (place) packed_beat[15:0] = placed;
    shifted_bytes = {16'd0, packed_bytes} << from[3:0];
    shifted = {128'd0, packed_beat} << {from[3:0], 3'd0};
  end
  for (genvar block = 0; block < 12; block++) begin : blocks
    logic here, after;
    assign here = from[7:4] == 4'(block);
    assign after = from[7:4] + 4'd1 == 4'(block);
    always_ff @(posedge clk) begin
      if ((store || place) && (here || after)) begin
        for (int i = 0; i < 16; i++) begin
          if (here && shifted_bytes[i]) out[block][i] <= shifted[i];
          if (after && shifted_bytes[16+i]) out[block][i] <= shifted[16+i];
        end
      end
    end
  end

  assign bytes = ~(~192'd0 << bytes_of(element, count)) << address[5:0];
  assign write_valid = busy;
  assign write_line = address[37:6] + {30'd0, line};
  always_comb begin
    unique case (line)
      2'd0: {write_bytes, write_data} = {bytes[63:0], out[3:0]};
      2'd1: {write_bytes, write_data} = {bytes[127:64], out[7:4]};
      default: {write_bytes, write_data} = {bytes[191:128], out[11:8]};
    endcase
  end
  logic last;
  assign last = line == 2'd2 || (line == 2'd1 ? bytes[128] : bytes[64]) == 1'b0;
  always_ff @(posedge clk) begin
    if (start) begin
      busy <= 1'b1;
      line <= 2'd0;
    end else if (busy && write_ready) begin
      line <= line + 2'd1;
      if (last) busy <= 1'b0;
    end
    if (rst) busy <= 1'b0;
  end
endmodule
