// SPDX-License-Identifier: Apache-2.0
// Reads up to 128 bytes of each of four streams, from any address on, and hands out four elements of one
// of them a cycle. Lines may come back in any order: their tag says where they belong. A line's words lie
// in sixteen memories, so that four elements may begin anywhere.
module vfu_streams
  import float_types::*;
  import vfu_types::*;
(
    input  logic         clk,
    input  logic         rst,
    input  logic         start,
    input  logic [3:0]   wanted,    // streams; those that are absent have defaults
    input  banks_t       banks,
    input  addresses_t   addresses,
    input  sizes_t       sizes,
    output logic         busy,      // lines are still to be asked for
    output logic         read_valid,
    input  logic         read_ready,
    output logic [5:0]   read_bank,
    output logic [31:0]  read_line,
    output logic [3:0]   read_tag,
    input  logic         line_valid,  // of one of these
    input  logic [3:0]   line_tag,
    input  logic [511:0] line_data,
    // elements of a beat
    input  logic [1:0]   stream,
    input  op_t          op,        // one of the loads
    input  logic [2:0]   beat,
    output logic [LANES-1:0][31:0] words,
    output logic [LANES-1:0][31:0] halves  // FP16 as FP32
);
  banks_t bank;
  addresses_t address;
  logic [3:0][1:0] asked, left;
  logic [1:0] turn;
  always_comb begin
    turn = 2'd0;
    for (int s = 3; s >= 0; s--) if (left[s] != 2'd0) turn = 2'(s);
  end
  assign busy = left != '0;
  assign read_valid = busy;
  assign read_bank = bank[turn];
  assign read_line = address[turn][37:6] + {30'd0, asked[turn]};
  assign read_tag = {turn, asked[turn]};
  always_ff @(posedge clk) begin
    if (start) begin
      bank <= banks;
      address <= addresses;
      asked <= '0;
      for (int s = 0; s < 4; s++)
        left[s] <= wanted[s] ? 2'((9'(addresses[s][5:0]) + 9'(sizes[s]) + 9'd63) >> 6) : 2'd0;
    end else if (read_valid && read_ready) begin
      asked[turn] <= asked[turn] + 2'd1;
      left[turn] <= left[turn] - 2'd1;
    end
    if (rst) left <= '0;
  end

  // byte of a beat's first element, counted from the first line
  logic [8:0] place;
  logic [1:0] step;  // log2 of the bytes from one element to the next
  assign step = op == OP_LOAD_HALF ? 2'd1 : op == OP_LOAD_SINGLE ? 2'd2 : 2'd3;
  assign place = {3'd0, address[stream][5:0]} + ({4'd0, beat, 2'd0} << step) + (op == OP_LOAD_ODD ? 9'd4 : 9'd0);
  logic [15:0][31:0] found;
  for (genvar w = 0; w < 16; w++) begin : memories
    logic [31:0] memory[16];
    logic [1:0] line;
    logic [4:0] behind;  // negative: of the next line
    assign behind = 5'(w) - {1'b0, place[5:2]};
    assign line = place[7:6] + {1'b0, behind[4]};
    assign found[w] = memory[{stream, line}];
    always_ff @(posedge clk) if (line_valid) memory[line_tag] <= line_data[32*w+:32];
  end
  for (genvar lane = 0; lane < LANES; lane++) begin : elements
    logic [5:0] at;
    assign at = place[5:0] + (6'(lane) << step);
    assign words[lane] = found[at[5:2]];
    assign halves[lane] = half_to_float(at[1] ? words[lane][31:16] : words[lane][15:0]);
  end
endmodule
