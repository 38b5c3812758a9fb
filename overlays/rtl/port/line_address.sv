// SPDX-License-Identifier: Apache-2.0
// Where lines of banks lie in board memory, one after the other. Of each bank the two arenas that were accessed last are
// kept: a line of one of them passes in a cycle. Others are looked up first. A line that no arena covers is refused.
module line_address
  import abi_types::*;
  import arena_types::*;
#(
    parameter int REST_BITS = 16,  // what goes with a line
    parameter int BANKS = 64       // or 1: all lines are of one bank, which is not the on-chip buffer
) (
    input  logic                 clk,
    input  logic                 rst,
    input  logic                 changed,       // records of arenas: what is kept counts no more
    input  logic [31:0]          onchip_lines,
    input  logic                 in_valid,
    output logic                 in_ready,
    input  bank_t                in_bank,
    input  logic [31:0]          in_line,
    input  logic [REST_BITS-1:0] in_rest,
    output logic                 out_valid,
    input  logic                 out_ready,
    output logic                 out_refused,
    output logic                 out_onchip,    // a line of the on-chip buffer
    output logic [41:0]          out_line,
    output logic [REST_BITS-1:0] out_rest,
    // range_table
    output logic                 look,          // until `look_ready`
    input  logic                 look_ready,
    output range_t               range,
    input  logic                 over,
    input  logic                 covered,
    input  arena_t               arena
);
  localparam int WAYS = 2;

  // the line that is looked at, with what is kept of its bank
  typedef enum logic [1:0] {MATCH, LOOK, ANSWER, REFUSE} state_t;
  state_t state;
  logic valid, moves, onchip, stale, victim;
  bank_t bank;
  logic [31:0] line;
  logic [REST_BITS-1:0] rest;
  arena_t [WAYS-1:0] ways;
  logic [WAYS-1:0] lives, hits;
  logic there, recent;  // which of the two was accessed last
  always_comb
    for (int w = 0; w < WAYS; w++)
      hits[w] = lives[w] && line >= ways[w].first && {1'b0, line} < ways[w].behind;
  assign onchip = BANKS != 1 && bank == bank_t'(LORA_BANK_ONCHIP);
  assign there = onchip || hits != '0;
  assign moves = valid && (!out_valid || out_ready) && (state == MATCH ? there : state == REFUSE);
  assign in_ready = !valid || moves;
  assign look = state == LOOK;
  assign range = '{bank: {2'd0, bank}, first: {18'd0, line, 6'd0}, bytes: 40'd64};
  assign victim = lives == '1 ? !recent : lives[0];
  logic fills, taken, recent_now;
  assign fills = state == ANSWER && over && covered && !stale && !changed;
  assign taken = in_valid && in_ready;
  assign recent_now = moves && !onchip && state == MATCH;
  always_ff @(posedge clk) begin
    if (out_ready) out_valid <= 1'b0;
    if (moves) begin
      valid <= 1'b0;
      out_valid <= 1'b1;
      out_refused <= state == REFUSE || (onchip && line >= onchip_lines);
      out_onchip <= onchip;
      out_line <= {10'd0, line} + (onchip ? 42'd0 : hits[0] ? ways[0].shift : ways[1].shift);
      out_rest <= rest;
      state <= MATCH;
    end
    unique case (state)
      MATCH: if (valid && !there) state <= LOOK;
      LOOK: begin
        stale <= 1'b0;
        if (look_ready) state <= ANSWER;
      end
      ANSWER: begin
        if (changed) stale <= 1'b1;
        if (over) state <= covered || stale || changed ? MATCH : REFUSE;
      end
      default: ;
    endcase
    if (taken) begin
      valid <= 1'b1;
      {bank, line, rest} <= {in_bank, in_line, in_rest};
    end
    if (rst) begin
      {valid, out_valid} <= '0;
      state <= MATCH;
    end
  end
  if (BANKS == 1) begin : of_one
    always_ff @(posedge clk) begin
      if (fills) ways[victim] <= arena;
      if (fills) lives[victim] <= 1'b1;
      if (recent_now) recent <= !hits[0];
      if (changed || rst) lives <= '0;
    end
  end else begin : of_all
    arena_t first_way[BANKS], second_way[BANKS];
    logic [BANKS-1:0][WAYS-1:0] live;
    logic [BANKS-1:0] recents;
    assign recent = recents[bank];
    always_ff @(posedge clk) begin
      if (fills && !victim) first_way[bank] <= arena;
      if (fills && victim) second_way[bank] <= arena;
    end
    always_ff @(posedge clk) begin
      if (recent_now) recents[bank] <= !hits[0];
      if (fills) begin
        ways[victim] <= arena;
        lives[victim] <= 1'b1;
        live[bank][victim] <= 1'b1;
      end
      if (taken) begin
        ways <= {second_way[in_bank], first_way[in_bank]};
        lives <= live[in_bank];
      end
      if (changed || rst) {live, lives} <= '0;
    end
  end

`ifndef SYNTHESIS
  if (BANKS != 1 && BANKS != 64) begin : wrong_banks
    $error("BANKS: 1 or 64");
  end
`endif
endmodule
