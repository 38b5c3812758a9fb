// SPDX-License-Identifier: Apache-2.0
// GIE, IER and ISR, as the vendor's kernels have them: ISR keeps what was enabled when it happened, bit 0 done,
// bit 1 ready, which come together here; a one written to a bit of ISR changes it.
module interrupt_registers
  import abi_types::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        host_valid,
    input  logic        host_write,
    input  logic [10:0] host_word,
    input  logic [31:0] host_stored,
    input  logic        done,
    output logic        mine,       // `host_word` is one of them
    output logic [31:0] data,
    output logic        interrupt
);
  localparam logic [10:0] GIE = 11'(LORA_REG_GIE / 4), IER = 11'(LORA_REG_IER / 4),
      ISR = 11'(LORA_REG_ISR / 4);
  logic global_enable, was_done, writes;
  logic [1:0] enable, status, toggled;
  assign writes = host_valid && host_write;
  assign toggled = writes && host_word == ISR ? host_stored[1:0] : 2'd0;
  assign mine = host_word == GIE || host_word == IER || host_word == ISR;
  assign data = host_word == GIE ? 32'(global_enable) : host_word == IER ? 32'(enable) : 32'(status);
  always_ff @(posedge clk) begin
    was_done <= done;
    if (writes && host_word == GIE) global_enable <= host_stored[0];
    if (writes && host_word == IER) enable <= host_stored[1:0];
    status <= (status ^ toggled) | (done && !was_done ? enable : 2'd0);
    interrupt <= global_enable && status != 2'd0;
    if (rst) {was_done, global_enable, enable, status, interrupt} <= '0;
  end
endmodule
