// SPDX-License-Identifier: Apache-2.0
// Finds the blocks of one column tile after the other: bank and first line of each, in a table that
// `unit_fetch` reads. Blocks are numbered K fastest and placed as abi.h says; walking them in order
// needs no division. Two tables: one is read while the next tile's is made.
module block_walk
  import mpu_types::*;
#(
    parameter int STRIPES = 1  // of a tile: each begins with the tile's first block again
) (
    input  logic        clk,
    input  logic        rst,
    input  logic        start,  // one cycle: from the first tile on
    input  command_t    command,
    output logic        ready,  // the table is complete
    input  logic        next,   // one cycle: on to the next stripe's table
    input  logic [7:0]  block,
    output logic [5:0]  bank,   // of `block`, a cycle later
    output logic [31:0] line
);
  typedef enum logic [1:0] {IDLE, REDUCE, WALK} state_t;
  typedef struct packed {
    logic [5:0]  bank;    // from bank_first on
    logic [7:0]  in_request;  // of the request: j mod merge
    logic [31:0] line;    // of the request's first block, from weight_line on
    logic [31:0] offset;  // in_request * block_lines
  } place_t;

  state_t state;
  place_t place, tile_place, stepped;
  logic [15:0] first;
  logic [7:0] index, last;
  logic [31:0] request_lines;
  logic [7:0] block_lines;
  logic fill_side, read_side;
  logic [1:0] filled;
  logic [5:0] stripe;
  logic [37:0] table_0[256], table_1[256];
  logic [37:0] entry, found_0, found_1;

  assign last = 8'((command.k - 16'd1) >> 7);
  assign block_lines = lines_of_block(command);
  assign request_lines = {24'd0, command.merge} * {24'd0, block_lines};
  assign ready = filled[read_side];
  assign entry = {command.bank_first + place.bank, command.weight_line + place.line + place.offset};
  assign {bank, line} = read_side ? found_1 : found_0;

  always_comb begin
    stepped = place;
    stepped.in_request = place.in_request + 8'd1;
    stepped.offset = place.offset + {24'd0, block_lines};
    if (stepped.in_request == command.merge) begin
      stepped.in_request = 8'd0;
      stepped.offset = 32'd0;
      stepped.bank = place.bank + 6'd1;
      if (stepped.bank == command.bank_count) begin
        stepped.bank = 6'd0;
        stepped.line = place.line + request_lines;
      end
    end
  end

  always_ff @(posedge clk) begin
    found_0 <= table_0[block];
    found_1 <= table_1[block];
    if (state == WALK && !filled[fill_side]) begin
      if (fill_side) table_1[index] <= entry;
      else table_0[index] <= entry;
    end
  end

  always_ff @(posedge clk) begin
    if (next) begin
      filled[read_side] <= 1'b0;
      read_side <= !read_side;
    end
    unique case (state)
      REDUCE: begin  // request `first`: its bank and line
        if (first >= {10'd0, command.bank_count}) begin
          first <= first - {10'd0, command.bank_count};
          place.line <= place.line + request_lines;
        end else begin
          place.bank <= first[5:0];
          tile_place <= place;
          tile_place.bank <= first[5:0];
          state <= WALK;
        end
      end
      WALK:
      if (!filled[fill_side]) begin
        place <= stepped;
        index <= index + 8'd1;
        if (index == last) begin
          index <= 8'd0;
          filled[fill_side] <= 1'b1;
          fill_side <= !fill_side;
          stripe <= stripe + 6'd1;
          if (stripe == 6'(STRIPES - 1)) begin
            stripe <= 6'd0;
            tile_place <= stepped;
          end else begin
            place <= tile_place;
          end
        end
      end
      default: ;
    endcase
    if (start) begin
      state <= REDUCE;
      place <= '0;
      first <= command.first;
      index <= 8'd0;
      stripe <= 6'd0;
      filled <= 2'b00;
      fill_side <= 1'b0;
      read_side <= 1'b0;
    end
    if (rst) begin
      state <= IDLE;
      filled <= 2'b00;
    end
  end
endmodule
