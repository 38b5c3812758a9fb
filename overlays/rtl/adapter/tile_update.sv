// SPDX-License-Identifier: Apache-2.0
// Keeps a stripe of an array's FP32 results, all rows; adds scale*u to eight columns of a row at a time, a column a
// cycle (docs/numbers.md, 7.3: the product is rounded, then the sum); gives the stripe back, FP32 and FP16, as it
// came: a column of every row a cycle.
module tile_update
  import float_types::*;
#(
    parameter int ROWS = 1
) (
    input  logic               clk,
    input  logic               rst,
    input  logic [2:0]         stripe_log,   // of columns
    input  logic               sums_valid,
    input  logic [32*ROWS-1:0] sums,
    output logic               stripe_here,
    output logic               stripe_free,  // a stripe may come
    // updates
    input  logic [2:0]         row,
    input  logic [1:0]         part,         // of the stripe: eight columns
    input  logic [31:0]        low,          // columns from here to `high` alone are added to
    input  logic [31:0]        high,
    input  logic [31:0]        column_first, // of the stripe
    input  logic [31:0]        scale,
    input  logic               u_valid,      // eight of them follow each other
    input  logic [31:0]        u,
    output logic               free,
    output logic               added,        // one cycle: all eight
    // results
    input  logic               give,         // one cycle: the stripe is complete
    output logic               given,        // one cycle
    output logic               value_valid,
    output logic [32*ROWS-1:0] single,
    output logic [16*ROWS-1:0] half
);
  logic [5:0] here, width, giving;
  logic gives, product_valid, sum_valid, write_sum;
  logic [31:0] product, sum, base, column;
  logic [2:0] product_place, sum_place;
  logic [4:0] read_column, write_column;
  logic busy;
  assign width = 6'd1 << stripe_log;
  assign stripe_here = here == width;
  assign stripe_free = here == 6'd0;
  assign free = !busy && !u_valid;

  float_multiply times_scale (
      .clk(clk),
      .valid(u_valid),
      .a(scale),
      .b(u),
      .product_valid(product_valid),
      .product(product)
  );
  float_add add (
      .clk(clk),
      .valid(product_valid),
      .a(base),
      .b(product),
      .sum_valid(sum_valid),
      .sum(sum)
  );

  assign read_column = gives ? giving[4:0] : {part, product_place};
  assign write_column = sums_valid ? here[4:0] : {part, sum_place};
  assign column = column_first + {27'd0, part, sum_place};
  assign write_sum = sum_valid && column >= low && column < high;
  assign added = sum_valid && sum_place == 3'd7;
  assign given = gives && giving + 6'd1 == width;
  logic [31:0] read[ROWS];
  if (ROWS == 1) begin : only_row
    assign base = read[0];
  end else begin : one_row
    assign base = read[row[$clog2(ROWS)-1:0]];
  end
  for (genvar r = 0; r < ROWS; r++) begin : rows
    logic [31:0] kept[32];
    logic writes;
    assign writes = sums_valid || (write_sum && row == r[2:0]);
    always_ff @(posedge clk) begin
      if (writes) kept[write_column] <= sums_valid ? sums[32*r+:32] : sum;
      if (gives) begin
        single[32*r+:32] <= canonical(read[r]);
        half[16*r+:16] <= float_to_half(read[r]);
      end
    end
    assign read[r] = kept[read_column];
  end

  always_ff @(posedge clk) begin
    if (sums_valid) here <= here + 6'd1;
    if (product_valid) product_place <= product_place + 3'd1;
    if (sum_valid) sum_place <= sum_place + 3'd1;
    if (u_valid) busy <= 1'b1;
    if (added) busy <= 1'b0;
    if (give) begin
      gives <= 1'b1;
      giving <= 6'd0;
    end
    if (gives) giving <= giving + 6'd1;
    value_valid <= gives;
    if (given) begin
      gives <= 1'b0;
      here <= 6'd0;
    end
    if (rst) begin
      here <= 6'd0;
      product_place <= 3'd0;
      sum_place <= 3'd0;
      busy <= 1'b0;
      gives <= 1'b0;
      value_valid <= 1'b0;
    end
  end
endmodule
