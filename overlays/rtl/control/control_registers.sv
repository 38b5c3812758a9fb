// SPDX-License-Identifier: Apache-2.0
// lora_ctrl's register file. The host sees the rules of AP_CTRL and registers that it cannot write; the
// core's side has neither. A word read is there a cycle later. Where a core has stopped
// stands behind its state; no record is written, so it is not done.
module control_registers
  import abi_types::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        core_valid,
    input  logic [3:0]  core_write,  // bytes; none: read
    input  logic [10:0] core_word,
    input  logic [31:0] core_stored,
    output logic [31:0] core_data,
    input  logic        host_valid,
    input  logic        host_write,
    input  logic [10:0] host_word,
    input  logic [31:0] host_stored,
    output logic [31:0] host_data,
    input  logic [2:0][31:0] identity,  // at IDENTITY_BOARD and behind it
    input  logic        stopped,
    input  logic [3:0]  stopped_cause,
    input  logic [31:0] stopped_pc,
    output logic        host_writes,  // and it may: an arena's record may have changed
    output logic        clearing,
    output logic        done
);
  localparam logic [10:0] AP_CTRL = 11'(LORA_REG_AP_CTRL / 4);
  logic [3:0] ap;
  logic core_asks_ap, host_asks_ap;
  logic [3:0] core_ap, host_ap;
  logic [31:0] words[2048], core_read, host_read;
  assign host_writes = host_valid && host_write &&
      (host_word < 11'(LORA_REG_IDENTITY_ABI / 4) || host_word == 11'(LORA_REG_WATCHDOG_MS / 4) ||
       host_word == 11'(LORA_REG_TOKEN / 4) || host_word == 11'(LORA_REG_CANCEL / 4) ||
       host_word >= 11'(LORA_REG_ARENAS / 4));
  assign done = ap[1];

  localparam logic [8:0] IDENTITY = 9'(LORA_REG_IDENTITY_BOARD / 4);
  logic [8:0] cleared;
  logic [8:0] which;
  logic [1:0] told;  // of what a stopped core leaves to be said
  logic tells;
  logic [3:0] write;
  logic [10:0] word;
  logic [31:0] stored;
  assign clearing = cleared != 9'(LORA_REG_ARENAS / 4);
  assign tells = stopped && !clearing && told != 2'd3;
  assign which = cleared - IDENTITY;
  assign write = clearing || tells ? 4'hf : core_valid ? core_write : 4'd0;
  always_comb begin
    word = core_word;
    stored = core_stored;
    if (clearing) begin
      word = 11'(cleared);
      stored = which < 9'd3 ? identity[which[1:0]] : 32'd0;
    end else if (tells)
      case (told)
        2'd0: {word, stored} = {11'(LORA_REG_STOP_CAUSE / 4), 28'd0, stopped_cause};
        2'd1: {word, stored} = {11'(LORA_REG_STOP_PC / 4), stopped_pc};
        default: {word, stored} = {11'(LORA_REG_FIRMWARE_STATE / 4), LORA_FW_STOPPED};
      endcase
  end
  // a memory of two ports, each with its own process: always_ff may not share what it writes
  always @(posedge clk) begin
    for (int lane = 0; lane < 4; lane++)
      if (write[lane]) words[word][8*lane+:8] <= stored[8*lane+:8];
    core_read <= words[word];
    cleared <= rst ? 9'd0 : cleared + 9'(clearing);
    told <= rst ? 2'd0 : told + 2'(tells);
  end
  always @(posedge clk) begin
    if (host_writes) words[host_word] <= host_stored;
    host_read <= words[host_word];
  end

  // Done clears when the host reads it; what the core writes in the same cycle stays.
  always_ff @(posedge clk) begin
    if (host_valid && host_word == AP_CTRL) begin
      if (!host_write) ap[1] <= 1'b0;
      else if (host_stored[0]) ap <= 4'(LORA_AP_START);
    end
    if (core_valid && core_write[0] && core_word == AP_CTRL) ap <= core_stored[3:0];
    if (rst) ap <= 4'd0;
    core_asks_ap <= core_word == AP_CTRL;
    host_asks_ap <= host_word == AP_CTRL;
    core_ap <= ap;
    host_ap <= ap;
  end
  assign core_data = core_asks_ap ? 32'(core_ap) : core_read;
  assign host_data = host_asks_ap ? 32'(host_ap) : host_read;
endmodule
