// SPDX-License-Identifier: Apache-2.0
// The arenas that the host has written to lora_ctrl, by pages, for the window: a record a cycle.
module arena_table
  import abi_types::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        write,      // the host, to register `word`
    input  logic [10:0] word,
    input  logic [31:0] stored,
    input  logic        look,       // one cycle: find (bank, page)
    input  logic [31:0] bank,
    input  logic [31:0] page,
    output logic        over,       // one cycle; the rest is there with it
    output logic        covered,
    output logic [35:0] address     // of the page, in pages
);
  localparam int FIRST = LORA_REG_ARENAS / 4;
  // words of struct lora_arena_record
  localparam int BASE = 0, OFFSET = 2, BYTES = 4, BANK = 6, VALID = 7;

  logic [19:0] base_low[LORA_MAX_ARENAS], offset_low[LORA_MAX_ARENAS];
  logic [15:0] base_high[LORA_MAX_ARENAS];
  logic [11:0] offset_high[LORA_MAX_ARENAS], bytes_high[LORA_MAX_ARENAS];
  logic [20:0] bytes_low[LORA_MAX_ARENAS];  // pages, and whether a part of one is left
  logic [15:0] banks[LORA_MAX_ARENAS];
  logic [0:0] valid[LORA_MAX_ARENAS];
  logic [10:0] place;
  logic [6:0] record;
  logic mine;
  logic [7:0] count;
  assign place = word - 11'(FIRST);
  assign record = place[9:3];
  assign mine = write && word >= 11'(FIRST) && !place[10];
  always_ff @(posedge clk)
    if (mine)
      case (place[2:0])
        3'(BASE): base_low[record] <= stored[31:12];
        3'(BASE + 1): base_high[record] <= stored[15:0];
        3'(OFFSET): offset_low[record] <= stored[31:12];
        3'(OFFSET + 1): offset_high[record] <= stored[11:0];
        3'(BYTES): bytes_low[record] <= {stored[31:12], stored[11:0] != 12'd0};
        3'(BYTES + 1): bytes_high[record] <= stored[11:0];
        3'(BANK): banks[record] <= stored[15:0];
        3'(VALID): valid[record] <= stored[0];
        default: ;
      endcase

  // One record is read while the one before it is compared.
  logic reading, comparing;
  logic [6:0] next;
  logic [7:0] compared;
  logic [35:0] base;
  logic [31:0] first, pages;
  logic [32:0] distance;
  logic part, right, fits;
  assign distance = {1'b0, page} - {1'b0, first};
  assign fits = right && !distance[32] &&
                (distance[31:0] < pages || (part && distance[31:0] == pages));
  always_ff @(posedge clk) begin
    over <= 1'b0;
    if (look) begin
      reading <= 1'b1;
      comparing <= 1'b0;
      next <= 7'd0;
      compared <= 8'd0;
    end else if (reading) begin
      comparing <= 1'b1;
      next <= next + 7'd1;
      if (comparing) compared <= compared + 8'd1;
      if (comparing && (fits || compared == count)) begin
        reading <= 1'b0;
        over <= 1'b1;
        covered <= fits && compared != count;
        address <= base + {4'd0, distance[31:0]};
      end
    end
    base <= {base_high[next], base_low[next]};
    first <= {offset_high[next], offset_low[next]};
    pages <= {bytes_high[next], bytes_low[next][20:1]};
    part <= bytes_low[next][0];
    right <= valid[next][0] && {16'd0, banks[next]} == bank;
    if (write && word == 11'(LORA_REG_ARENA_COUNT / 4))
      count <= stored > 32'(LORA_MAX_ARENAS) ? 8'(LORA_MAX_ARENAS) : stored[7:0];
    if (rst) {reading, over, count} <= '0;
  end
endmodule
