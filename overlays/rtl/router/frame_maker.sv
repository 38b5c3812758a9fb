// SPDX-License-Identifier: Apache-2.0
// Makes a frame from its header and pieces of its payload: lines of the sender's buffer, then the CRC, made line by
// line; the zeros that stand behind the last byte meanwhile are taken back in six steps.
module frame_maker
  import router_types::*;
(
    input  logic         clk,
    input  logic         rst,
    input  logic         start,         // one cycle
    input  frame_t       header,        // held until it is done
    input  logic         piece_valid,   // in order; header.length bytes of them
    input  logic [5:0]   piece_byte,    // of the frame's line
    input  logic [6:0]   piece_count,
    input  logic         piece_ends_line,
    input  logic         piece_ends,
    // where its user turns bytes to their place in a line: of a piece, or of the CRC
    output logic         seals,
    output logic [31:0]  seal,
    output logic [5:0]   end_byte,      // behind the payload, of its line
    input  logic [511:0] turned,
    output logic         write_valid,
    output logic [6:0]   write_line,
    output logic [511:0] write_data,
    output logic         done           // one cycle, with the last line
);
  typedef enum logic [2:0] {IDLE, FILL, SUM, UNPAD, SEAL, SPILL} state_t;
  state_t state;
  logic [511:0] line, full_line, placed, hashed;
  logic full_valid, hashes;
  logic [6:0] line_at, crc_bytes;
  logic [5:0] pad;
  logic [2:0] step;
  logic [31:0] crc;

  assign end_byte = header.length[5:0] + 6'(HEADER_BYTES);
  assign pad = -end_byte;
  assign seals = state == SEAL || state == SPILL;
  assign seal = ~crc;
  assign crc_bytes = state == SEAL ? 7'd4 : {1'b0, end_byte} + 7'd4 - 7'd64;
  assign placed = line | only(turned, state == FILL ? bytes_from(piece_byte, piece_count) :
                              bytes_from(state == SEAL ? end_byte : 6'd0, crc_bytes));
  assign hashes = full_valid || (state == SUM && end_byte != 6'd0);
  assign hashed = only(full_valid ? full_line : line, ~(64'(line_at == 7'd0) << HOP_BYTE));
  assign write_valid = full_valid || seals;
  assign write_line = line_at;
  assign write_data = full_valid ? full_line : placed;
  assign done = (state == SEAL && end_byte <= 6'd60) || state == SPILL;

  always_ff @(posedge clk) begin
    full_valid <= state == FILL && piece_valid && piece_ends_line;
    if (state == FILL && piece_valid) begin
      full_line <= placed;
      line <= piece_ends_line ? '0 : placed;
    end
    if (full_valid) line_at <= line_at + 7'd1;
    if (hashes) crc <= crc_line(crc, hashed);
    unique case (state)
      FILL: if (piece_valid && piece_ends) state <= SUM;
      SUM: begin
        step <= 3'd5;
        if (!full_valid) state <= end_byte == 6'd0 ? SEAL : UNPAD;
      end
      UNPAD: begin  // the state before the zeros behind the frame's last byte
        if (pad[step]) crc <= crc_back(crc, step);
        step <= step - 3'd1;
        if (step == 3'd0) state <= SEAL;
      end
      SEAL, SPILL: begin
        line <= '0;
        line_at <= line_at + 7'd1;
        state <= done ? IDLE : SPILL;
      end
      default:
      if (start) begin
        line <= 512'(header);
        line_at <= 7'd0;
        crc <= '1;
        state <= header.length == '0 ? SUM : FILL;
      end
    endcase
    if (rst) begin
      state <= IDLE;
      full_valid <= 1'b0;
    end
  end
endmodule
