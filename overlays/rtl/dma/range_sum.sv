// SPDX-License-Identifier: Apache-2.0
// CHECKSUM: CRC-32 of a range, a line a cycle. Bytes of the first line before the range count as zero, and so do those
// of the last one behind it: the state is taken back by as many zeros, before and afterwards.
module range_sum
  import abi_types::*;
  import router_types::crc_line;
  import router_types::crc_back;
  import dma_types::*;
(
    input  logic             clk,
    input  logic             rst,
    input  logic             start,        // one cycle; the inputs are held
    input  checksum_record_t command,
    output logic             look,
    output range_t           range,
    input  logic             look_over,
    input  logic             covered,
    output logic             copy_valid,
    input  logic             copy_ready,
    output copy_t            copy,
    input  logic             settled,      // no copy is under way
    input  logic             sum_valid,
    input  logic [511:0]     sum_line,
    output logic             done,         // one cycle
    output logic [7:0]       status,
    output logic [31:0]      value
);
  typedef enum logic [2:0] {IDLE, LOOK, ANSWER, BEFORE, COPY, LINES, BEHIND} state_t;
  state_t state;
  logic [31:0] sum;
  logic [5:0] zeros;
  logic [2:0] k;
  logic [63:0] offset;
  assign offset = {command.offset_hi, command.offset_lo};
  assign look = state == LOOK;
  assign range = '{
      bank: command.bank[31:8] == 24'd0 ? command.bank[7:0] : 8'hff,
      first: offset[63:55] == 9'd0 ? offset[55:0] : '1,
      bytes: 40'(command.bytes)
  };
  assign copy_valid = state == COPY;
  assign copy = '{
      from_bank: command.bank[5:0], from: offset[37:0], from_step: 7'd0,
      to_bank: command.bank[5:0], to: offset[37:0], to_step: 7'd0,
      rows: 17'd1, bytes: command.bytes, backward: 1'b0, sums: 1'b1
  };
  assign value = ~sum;
  always_ff @(posedge clk) begin
    done <= 1'b0;
    if (sum_valid) sum <= crc_line(sum, sum_line);
    unique case (state)
      LOOK: state <= ANSWER;
      ANSWER:
      if (look_over) begin
        state <= BEFORE;
        zeros <= offset[5:0];
        k <= 3'd0;
        if (!covered || command.bytes == 32'd0) begin
          if (!covered) status <= 8'(LORA_ERR_ADDRESS);
          done <= 1'b1;
          state <= IDLE;
        end
      end
      BEFORE, BEHIND: begin
        if (zeros[0]) sum <= crc_back(sum, k);
        zeros <= zeros >> 1;
        k <= k + 3'd1;
        if (k == 3'd5) begin
          done <= state == BEHIND;
          state <= state == BEHIND ? IDLE : COPY;
        end
      end
      COPY: if (copy_ready) state <= LINES;
      LINES:
      if (settled) begin
        zeros <= 6'd0 - (offset[5:0] + command.bytes[5:0]);
        k <= 3'd0;
        state <= BEHIND;
      end
      default:
      if (start) begin
        sum <= ~command.crc;
        status <= 8'(LORA_OK);
        state <= LOOK;
      end
    endcase
    if (rst) begin
      state <= IDLE;
      done <= 1'b0;
    end
  end
endmodule
