// SPDX-License-Identifier: Apache-2.0
// Whether bytes of a bank lie in one arena. Arenas are those that the host writes to lora_ctrl, whole lines; the
// on-chip buffer is one by itself. First it looks at the arena that held the bank's last range, then at all, one a
// cycle.
module range_table
  import abi_types::*;
  import arena_types::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        clear,         // forget the question
    input  logic        write,         // the host, to register `word`
    input  logic [10:0] word,
    input  logic [31:0] stored,
    input  logic [31:0] onchip_bytes,
    input  logic        look,          // one cycle
    input  range_t      range,
    output logic        over,          // one cycle; the rest is there with it
    output logic        covered,
    output arena_t      arena          // that one; nothing of the on-chip buffer
);
  localparam int FIRST = LORA_REG_ARENAS / 4;
  // words of struct lora_arena_record
  localparam int BASE = 0, OFFSET = 2, BYTES = 4, BANK = 6, VALID = 7;
  localparam logic [56:0] LIMIT = 57'd1 << 38;  // bytes that a bank can have

  logic [31:0] offset_low[LORA_MAX_ARENAS], bytes_low[LORA_MAX_ARENAS];  // low six bits are 0
  logic [5:0] offset_high[LORA_MAX_ARENAS], bytes_high[LORA_MAX_ARENAS];
  logic [25:0] base_low[LORA_MAX_ARENAS];  // lines
  logic [15:0] base_high[LORA_MAX_ARENAS];
  logic [5:0] banks[LORA_MAX_ARENAS];
  logic [0:0] valid[LORA_MAX_ARENAS], offset_beyond[LORA_MAX_ARENAS], bank_beyond[LORA_MAX_ARENAS];
  logic [6:0] hints[64];
  logic [10:0] place;
  logic [6:0] record;
  logic mine;
  logic [7:0] count;
  assign place = word - 11'(FIRST);
  assign record = place[9:3];
  assign mine = write && word >= 11'(FIRST) && !place[10];
  always_ff @(posedge clk) begin
    if (mine)
      case (place[2:0])
        3'(BASE): base_low[record] <= stored[31:6];
        3'(BASE + 1): base_high[record] <= stored[15:0];
        3'(OFFSET): offset_low[record] <= {stored[31:6], 6'd0};
        3'(OFFSET + 1): begin
          offset_high[record] <= stored[5:0];
          offset_beyond[record] <= stored[31:6] != '0;
        end
        3'(BYTES): bytes_low[record] <= {stored[31:6], 6'd0};
        3'(BYTES + 1): bytes_high[record] <= stored[5:0];
        3'(BANK): begin
          banks[record] <= stored[5:0];
          bank_beyond[record] <= stored[31:6] != '0;
        end
        3'(VALID): valid[record] <= stored[0];
        default: ;
      endcase
    if (write && word == 11'(LORA_REG_ARENA_COUNT / 4))
      count <= stored > 32'(LORA_MAX_ARENAS) ? 8'(LORA_MAX_ARENAS) : stored[7:0];
    if (rst) count <= '0;
  end

  typedef enum logic [1:0] {IDLE, BEGIN, SCAN} state_t;
  state_t state;
  bank_t bank;
  logic no_bank, hinted, live, last;
  logic [56:0] first, behind;
  logic [7:0] index, found_index;
  logic [37:0] offset, bytes;
  logic [41:0] base;
  logic right, fits;
  always_ff @(posedge clk)  // of the record that was compared last
    arena <= '{first: offset[37:6], behind: {1'b0, offset[37:6]} + {1'b0, bytes[37:6]},
               shift: base - 42'(offset[37:6])};
  assign fits = live && right && first >= 57'(offset) && behind <= 57'(offset) + 57'(bytes);
  always_ff @(posedge clk) begin
    over <= 1'b0;
    unique case (state)
      BEGIN: begin
        index <= {1'b0, hints[bank]};
        hinted <= 1'b1;
        live <= 1'b0;
        last <= 1'b0;
        state <= SCAN;
        if (no_bank || behind > LIMIT || bank == bank_t'(LORA_BANK_ONCHIP)) begin
          over <= 1'b1;
          covered <= !no_bank && bank == bank_t'(LORA_BANK_ONCHIP) && behind <= 57'(onchip_bytes);
          state <= IDLE;
        end
      end
      SCAN: begin  // a record is read while the one before it is compared
        hinted <= 1'b0;
        index <= hinted ? 8'd0 : index + 8'd1;
        found_index <= index;
        offset <= {offset_high[index[6:0]], offset_low[index[6:0]]};
        bytes <= {bytes_high[index[6:0]], bytes_low[index[6:0]]};
        base <= {base_high[index[6:0]], base_low[index[6:0]]};
        right <= valid[index[6:0]][0] && banks[index[6:0]] == bank && !bank_beyond[index[6:0]][0] &&
            !offset_beyond[index[6:0]][0];
        live <= index < count;
        last <= !hinted && index >= count;
        if (fits || last) begin
          over <= 1'b1;
          covered <= fits;
          state <= IDLE;
        end
        if (fits) hints[bank] <= found_index[6:0];
      end
      default: ;
    endcase
    if (look) begin
      bank <= range.bank[5:0];
      no_bank <= range.bank[7:6] != 2'd0;
      first <= {1'b0, range.first};
      behind <= {1'b0, range.first} + 57'(range.bytes);
      state <= BEGIN;
    end
    if (clear) begin
      state <= IDLE;
      over <= 1'b0;
    end
  end
endmodule
