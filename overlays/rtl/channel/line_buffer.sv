// SPDX-License-Identifier: Apache-2.0
// The prefetch buffer's memory: lines of 512 bits and their fault, one written and one read a cycle. UltraRAM: 8 of them
// for 4,096 lines. Data is there two cycles after its address: the memory's own register, then the one behind it.
// No reset; begins with any bits.
module line_buffer #(
    parameter int LINES = 4096
) (
    input  logic                     clk,
    input  logic                     write,
    input  logic [$clog2(LINES)-1:0] write_at,
    input  logic [513:0]             write_data,
    input  logic                     read,
    input  logic [$clog2(LINES)-1:0] read_at,
    output logic [513:0]             read_data
);
  (* ram_style = "ultra" *) logic [513:0] kept[LINES];
  logic [513:0] found;
  logic read_1;
  always_ff @(posedge clk) begin
    if (write) kept[write_at] <= write_data;
    if (read) found <= kept[read_at];
    read_1 <= read;
    if (read_1) read_data <= found;
  end
endmodule
