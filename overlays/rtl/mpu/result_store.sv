// SPDX-License-Identifier: Apache-2.0
// Collects a stripe's results, one column of every row a cycle, writes them to y as lines, counts
// values that are not finite and notes the first row that has one (docs/numbers.md, 1.2).
module result_store
  import mpu_types::*;
#(
    parameter int LANES = 32,
    parameter int ROWS = 1
) (
    input  logic               clk,
    input  logic               rst,
    input  logic               start,      // one cycle: a new command
    input  logic               next_rows,  // one cycle: the rows after these, from stripe 0 on
    input  command_t           command,
    input  logic [3:0]         rows,       // of the array that are in use
    input  logic               value_valid,
    input  logic [32*ROWS-1:0] single,
    input  logic [16*ROWS-1:0] half,
    output logic               free,
    output logic [31:0]        stored,     // stripes of these rows
    output logic               write_valid,
    input  logic               write_ready,
    output logic [5:0]         write_bank,
    output logic [31:0]        write_line,
    output logic [63:0]        write_bytes,  // which of the line
    output logic [511:0]       write_data,
    output logic [31:0]        nonfinite_count,
    output logic [31:0]        nonfinite_row
);
  logic [1023:0] values[ROWS];  // of a column tile
  logic [1023:0] tile_values;   // of one row
  logic [127:0] bytes;
  logic collecting, writing, high;
  logic [5:0] lane;
  logic [31:0] column, tile, row_line, first_line, first_row;
  logic [4:0] element;
  logic [3:0] row;
  logic real_column, line_done;

  assign free = !collecting && !writing && !value_valid;
  assign real_column = column < command.n;
  assign element = column[4:0];

  always_ff @(posedge clk) begin
    if (value_valid) begin
      for (int r = 0; r < ROWS; r++) begin
        if (command.y_single) values[r][32*element+:32] <= single[32*r+:32];
        else values[r][16*element+:16] <= half[16*r+:16];
      end
    end
  end

  // lines of the tile whose bytes are wanted are written row by row
  assign write_valid = writing && write_bytes != 64'd0;
  assign write_bank = command.y_bank;
  assign write_line = command.y_single ? row_line + {tile[30:0], high} : row_line + tile;
  assign write_bytes = high ? bytes[127:64] : bytes[63:0];
  if (ROWS == 1) begin : only_row
    assign tile_values = values[0];
  end else begin : one_row
    assign tile_values = values[row[$clog2(ROWS)-1:0]];
  end
  assign write_data = high ? tile_values[1023:512] : tile_values[511:0];
  assign line_done = writing && (write_ready || write_bytes == 64'd0);

  always_ff @(posedge clk) begin
    if (value_valid) begin
      if (real_column) begin
        automatic logic [31:0] bad_count = 32'd0;
        automatic logic [31:0] bad_row = nonfinite_row;
        for (int r = ROWS - 1; r >= 0; r--) begin
          if (r[3:0] < rows &&
              (command.y_single ? single[32*r+23+:8] == 8'hff : half[16*r+10+:5] == 5'h1f)) begin
            bad_count = bad_count + 32'd1;
            if (first_row + r < nonfinite_row) bad_row = first_row + r;
          end
        end
        nonfinite_count <= nonfinite_count + bad_count;
        nonfinite_row <= bad_row;
        if (command.y_single) bytes[{element, 2'b00}+:4] <= 4'hf;
        else bytes[{1'b0, element, 1'b0}+:2] <= 2'b11;
      end
      tile <= {5'd0, column[31:5]};
      column <= column + 32'd1;
      lane <= lane + 6'd1;
      collecting <= 1'b1;
      if (lane == 6'(LANES - 1)) begin
        lane <= 6'd0;
        collecting <= 1'b0;
        writing <= 1'b1;
        row <= 4'd0;
        row_line <= first_line;
        high <= 1'b0;
      end
    end
    if (line_done) begin
      high <= !high;
      if (high) begin
        row <= row + 4'd1;
        row_line <= row_line + command.y_stride;
        if (row + 4'd1 == rows) begin
          writing <= 1'b0;
          bytes <= 128'd0;
          stored <= stored + 32'd1;
          if (column >= command.n) first_line <= row_line + command.y_stride;
        end
      end
    end
    if (start || next_rows) begin
      column <= 32'd0;
      stored <= 32'd0;
      lane <= 6'd0;
      bytes <= 128'd0;
      first_row <= start ? 32'd0 : first_row + ROWS;
    end
    if (start) begin
      first_line <= command.y_line;
      nonfinite_count <= 32'd0;
      nonfinite_row <= 32'hffffffff;
    end
    if (rst) begin
      collecting <= 1'b0;
      writing <= 1'b0;
    end
  end
endmodule
