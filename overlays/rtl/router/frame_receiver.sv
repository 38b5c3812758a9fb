// SPDX-License-Identifier: Apache-2.0
// Frames from a link, each with a note of whether it is whole and its CRC holds. Bytes behind a right frame are
// taken as zero, so its state is one of 64 that are known.
module frame_receiver
  import abi_types::*;
  import router_types::*;
(
    input  logic         clk,
    input  logic         rst,
    // stream
    input  logic         rx_valid,
    output logic         rx_ready,
    input  logic [511:0] rx_data,
    input  logic [63:0]  rx_keep,
    input  logic         rx_last,
    // the frame at the head
    output logic [2:0]   free,
    output logic         head_valid,
    output logic         head_intact,
    input  logic         read_enable,
    input  logic [6:0]   read_line,
    output logic [511:0] read_data,
    input  logic         pop,
    // a poison frame anywhere in the buffer; of several of an epoch the first
    output logic         poisoned,
    output logic [31:0]  poison_epoch,
    output logic [31:0]  poison_step
);
  typedef enum logic [1:0] {TAKE, SUM, JUDGE} state_t;
  state_t state;
  frame_t first, kept, header;
  logic [6:0] at, last_line;
  logic [5:0] last_byte;
  logic take, whole, sums, keep_right, fields_right, is_poison, intact, head_poison;
  logic [511:0] line;
  logic [31:0] crc;
  logic [2:0] poisons;

  assign rx_ready = state == TAKE && (at != 7'd0 || free != 3'd0);
  assign take = rx_valid && rx_ready;
  assign first = rx_data[255:0];
  assign header = state == TAKE && at == 7'd0 ? first : kept;
  // 36 bytes besides the payload
  assign last_line = 7'((header.length[12:0] + 13'd35) >> 6);
  assign last_byte = 6'(header.length[5:0] + 6'd35);
  assign fields_right = header.magic == LORA_FRAME_MAGIC && header.length <= LORA_FRAME_PAYLOAD &&
      header.kind >= 8'(LORA_FRAME_DATA) && header.kind <= 8'(LORA_FRAME_TEST);
  assign keep_right = rx_keep == (rx_last ? bytes_from(6'd0, {1'b0, last_byte} + 7'd1) : '1);
  assign intact = whole && crc == PADDED_STATES[6'd63-last_byte];
  assign is_poison = intact && kept.kind == 8'(LORA_FRAME_POISON);
  assign poisoned = poisons != 3'd0;

  frame_buffer #(
      .NOTE_BITS(2)
  ) frames (
      .clk(clk),
      .rst(rst),
      .free(free),
      .write_valid(take && at < 7'(FRAME_LINES)),
      .write_line(at),
      .write_data(rx_data),
      .commit(state == JUDGE),
      .write_note({is_poison, intact}),
      .head_valid(head_valid),
      .head_note({head_poison, head_intact}),
      .read_enable(read_enable),
      .read_line(read_line),
      .read_data(read_data),
      .pop(pop)
  );

  always_ff @(posedge clk) begin
    sums <= take;
    if (take) begin
      line <= only(
          rx_data,
          (at == last_line ? bytes_from(6'd0, {1'b0, last_byte} + 7'd1) : '1) &
              ~(64'(at == 7'd0) << HOP_BYTE)
      );
      if (at == 7'd0) kept <= first;
      whole <= (at == 7'd0 || whole) && keep_right && fields_right && rx_last == (at == last_line);
      at <= rx_last ? 7'd0 : at == 7'(FRAME_LINES) ? at : at + 7'd1;
      if (at == 7'd0) crc <= '1;
    end
    if (sums) crc <= crc_line(crc, line);
    unique case (state)
      TAKE: if (take && rx_last) state <= SUM;
      SUM: state <= JUDGE;
      default: state <= TAKE;
    endcase
    poisons <= poisons + 3'(state == JUDGE && is_poison) - 3'(pop && head_poison);
    if (state == JUDGE && is_poison && (!poisoned || poison_epoch != kept.epoch)) begin
      poison_epoch <= kept.epoch;
      poison_step <= kept.step;
    end
    if (rst) begin
      state <= TAKE;
      at <= 7'd0;
      sums <= 1'b0;
      poisons <= 3'd0;
    end
  end
endmodule
