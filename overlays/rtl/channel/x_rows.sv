// SPDX-License-Identifier: Apache-2.0
// A row's x beside its channel: 512 lines of 64 bytes in block RAM, written by the broadcast, read two cycles after the
// address (the memory's own register, then the one behind it). No reset; begins with any bits.
module x_rows (
    input  logic         clk,
    input  logic         write,
    input  logic [8:0]   write_at,
    input  logic [511:0] write_data,
    input  logic         read,
    input  logic [8:0]   read_at,
    output logic [511:0] read_data
);
  (* ram_style = "block" *) logic [511:0] kept[512];
  logic [511:0] found;
  logic read_1;
  always_ff @(posedge clk) begin
    if (write) kept[write_at] <= write_data;
    if (read) found <= kept[read_at];
    read_1 <= read;
    if (read_1) read_data <= found;
  end
endmodule
