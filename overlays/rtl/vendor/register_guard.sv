// SPDX-License-Identifier: Apache-2.0
// Between a shell's AXI4-Lite and host_port. The shell's reset ends before the kernel's: until then nothing is taken.
// Addresses beyond the registers are no registers again 8 KiB further. Until the control program begins, registers are
// those of before the reset, and are read as zeros: they are cleared in the first 256 cycles behind `restart`.
module register_guard (
    input  logic        clk,
    input  logic        rst,
    input  logic        restart,
    // the shell
    input  logic        awvalid,
    output logic        awready,
    input  logic [15:0] awaddr,
    input  logic        wvalid,
    output logic        wready,
    input  logic        arvalid,
    output logic        arready,
    input  logic [15:0] araddr,
    output logic [31:0] rdata,
    // host_port
    output logic        port_awvalid,
    input  logic        port_awready,
    output logic [12:0] port_awaddr,
    output logic        port_wvalid,
    input  logic        port_wready,
    output logic        port_arvalid,
    input  logic        port_arready,
    output logic [12:0] port_araddr,
    input  logic [31:0] port_rdata
);
  function automatic logic [12:0] register_address(input logic [15:0] address);
    return address[15:13] == 3'd0 ? address[12:0] : 13'h1ffc;
  endfunction

  logic [8:0] settles;
  always_ff @(posedge clk) settles <= rst || restart ? '1 : settles - 9'(settles != '0);
  assign rdata = settles == '0 ? port_rdata : 32'd0;
  assign {port_awvalid, awready} = {awvalid, port_awready} & {2{!rst}};
  assign {port_wvalid, wready} = {wvalid, port_wready} & {2{!rst}};
  assign {port_arvalid, arready} = {arvalid, port_arready} & {2{!rst}};
  assign port_awaddr = register_address(awaddr);
  assign port_araddr = register_address(araddr);
endmodule
