// SPDX-License-Identifier: Apache-2.0
// Up to 16 bytes of a bank from any byte on, of one line or of two.
module memory_fetch
  import dma_types::*;
(
    input  logic         clk,
    input  logic         rst,
    input  logic         start,    // one cycle, not busy
    input  bank_t        bank,
    input  address_t     address,
    input  logic [4:0]   count,
    output logic         busy,
    output logic [127:0] found,    // the first byte low; there when not busy any more
    // memory
    output logic         read_valid,
    input  logic         read_ready,
    output bank_t        read_bank,
    output logic [31:0]  read_line,
    output logic         read_second,
    input  logic         line_valid,
    input  logic         line_second,
    input  logic [511:0] line_data
);
  logic asks, two, asked_first;
  logic [1:0] wanted;   // lines that are to come
  logic [5:0] place;
  logic [127:0] low, high;
  logic [255:0] both;
  assign read_valid = asks;
  assign read_second = asked_first;
  assign busy = wanted != 2'd0;
  assign both = {high, low} >> {place[3:0], 3'd0};
  assign found = both[127:0];
  always_ff @(posedge clk) begin
    if (asks && read_ready) begin
      asked_first <= 1'b1;
      read_line <= read_line + 32'd1;
      asks <= two && !asked_first;
    end
    if (line_valid) begin
      wanted <= wanted - 2'd1;
      // sixteen bytes that lie on sixteen, and the next ones
      if (!line_second) begin
        low <= line_data[{place[5:4], 7'd0}+:128];
        if (place[5:4] != 2'd3) high <= line_data[{place[5:4] + 2'd1, 7'd0}+:128];
      end else high <= line_data[127:0];
    end
    if (start) begin
      asks <= 1'b1;
      asked_first <= 1'b0;
      two <= {1'b0, address[5:0]} + {2'd0, count} > 7'd64;
      wanted <= {1'b0, address[5:0]} + {2'd0, count} > 7'd64 ? 2'd2 : 2'd1;
      read_bank <= bank;
      read_line <= address[37:6];
      place <= address[5:0];
    end
    if (rst) begin
      asks <= 1'b0;
      wanted <= 2'd0;
    end
  end
endmodule
