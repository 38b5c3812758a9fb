// SPDX-License-Identifier: Apache-2.0
// The host's registers as an AXI4-Lite slave in the shell's clock, one access at a time. What lies outside
// of the registers, and a write of parts of a word, is answered with an error and does nothing; so is an
// access that a reset of the control has cut off.
module host_port
  import abi_types::*;
(
    input  logic        host_clk,
    input  logic        host_rst,
    input  logic        awvalid,
    output logic        awready,
    input  logic [12:0] awaddr,
    input  logic        wvalid,
    output logic        wready,
    input  logic [31:0] wdata,
    input  logic [3:0]  wstrb,
    output logic        bvalid,
    input  logic        bready,
    output logic [1:0]  bresp,
    input  logic        arvalid,
    output logic        arready,
    input  logic [12:0] araddr,
    output logic        rvalid,
    input  logic        rready,
    output logic [31:0] rdata,
    output logic [1:0]  rresp,
    // the control's clock; a word read is there a cycle later
    input  logic        clk,
    input  logic        rst,
    output logic        host_valid,
    output logic        host_write,
    output logic [10:0] host_word,
    output logic [31:0] host_stored,
    input  logic [31:0] host_data
);
  localparam logic [10:0] END = 11'(LORA_REG_ARENAS / 4 + LORA_MAX_ARENAS * 8);
  localparam logic [1:0] OKAY = 2'd0, SLVERR = 2'd2;

  logic host_stop, host_clear, stop, clear;
  reset_pair resets (
      .a_clk(host_clk),
      .a_rst(host_rst),
      .a_stop(host_stop),
      .a_clear(host_clear),
      .b_clk(clk),
      .b_rst(rst),
      .b_stop(stop),
      .b_clear(clear)
  );

  // --- the shell's clock -----------------------------------------------------------------------------
  typedef enum logic [2:0] {IDLE, SEND, WAIT, WRITTEN, READ} state_t;
  state_t state;
  logic has_aw, has_w, has_ar, writes, wrote_last;
  logic [10:0] aw_word, ar_word;
  logic [31:0] stored;
  logic [3:0] strobe;
  logic sent, answered;
  logic [31:0] answer;
  assign awready = !has_aw;
  assign wready = !has_w;
  assign arready = !has_ar;
  assign bvalid = state == WRITTEN;
  assign rvalid = state == READ;
  always_ff @(posedge host_clk) begin
    if (awvalid && awready) begin
      has_aw <= 1'b1;
      aw_word <= awaddr[12:2];
    end
    if (wvalid && wready) begin
      has_w <= 1'b1;
      stored <= wdata;
      strobe <= wstrb;
    end
    if (arvalid && arready) begin
      has_ar <= 1'b1;
      ar_word <= araddr[12:2];
    end
    case (state)
      IDLE:
      if (has_aw && has_w && !(has_ar && wrote_last)) begin
        {writes, wrote_last} <= 2'b11;
        bresp <= SLVERR;
        state <= aw_word < END && strobe == 4'hf ? SEND : WRITTEN;
      end else if (has_ar) begin
        {writes, wrote_last} <= 2'b00;
        rresp <= SLVERR;
        rdata <= 32'd0;
        state <= ar_word < END ? SEND : READ;
      end
      SEND: if (sent) state <= WAIT;
      WAIT:
      if (answered || host_stop) begin
        state <= writes ? WRITTEN : READ;
        if (answered) begin
          bresp <= OKAY;
          rresp <= OKAY;
          rdata <= answer;
        end
      end
      WRITTEN:
      if (bready) begin
        {has_aw, has_w} <= 2'b00;
        state <= IDLE;
      end
      READ:
      if (rready) begin
        has_ar <= 1'b0;
        state <= IDLE;
      end
      default: state <= IDLE;
    endcase
    if (host_rst) begin
      {has_aw, has_w, has_ar, wrote_last} <= '0;
      state <= IDLE;
    end
  end

  // --- the control's clock ---------------------------------------------------------------------------
  typedef enum logic [1:0] {ASKED, FETCH, GIVE} step_t;
  step_t step;
  logic asked, given;
  logic [31:0] data;
  word_cross #(
      .WIDTH(44)
  ) question (
      .from_clk(host_clk),
      .from_stop(host_stop),
      .from_clear(host_clear),
      .in_valid(state == SEND),
      .in_ready(sent),
      .in_word({writes, writes ? aw_word : ar_word, stored}),
      .to_clk(clk),
      .to_stop(stop),
      .to_clear(clear),
      .out_valid(asked),
      .out_ready(step == GIVE && given),
      .out_word({host_write, host_word, host_stored})
  );
  assign host_valid = asked && step == ASKED;
  always_ff @(posedge clk) begin
    case (step)
      ASKED: if (asked) step <= FETCH;
      FETCH: begin
        data <= host_data;
        step <= GIVE;
      end
      default: if (given) step <= ASKED;
    endcase
    if (stop) step <= ASKED;
  end
  word_cross #(
      .WIDTH(32)
  ) reply (
      .from_clk(clk),
      .from_stop(stop),
      .from_clear(clear),
      .in_valid(step == GIVE),
      .in_ready(given),
      .in_word(data),
      .to_clk(host_clk),
      .to_stop(host_stop),
      .to_clear(host_clear),
      .out_valid(answered),
      .out_ready(state == WAIT),
      .out_word(answer)
  );
endmodule
