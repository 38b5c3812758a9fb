// SPDX-License-Identifier: Apache-2.0
// Asks for scales and bias of the tiles, in the tiles' order, ahead: each channel has room for two tiles' at its finisher.
// As soon as a command is announced; once a pass, as rows beyond the array's read the weights again.
// Reset: `rst`; finishers have nothing then. Assumes: `command` holds until `next`.
module channel_params
  import mpu_types::*;
  import channel_types::*;
#(
    parameter int CHANNELS = 32,
    parameter int ROWS = 2
) (
    input  logic                clk,
    input  logic                rst,
    input  logic                command_valid,
    /* verilator lint_off UNUSEDSIGNAL */
    input  command_t            command,
    /* verilator lint_on UNUSEDSIGNAL */
    output logic                next,   // one cycle: all has been asked for
    input  logic [CHANNELS-1:0] taken,  // one cycle: a tile's have been used
    output read_req_t           wanted,
    input  logic                asked
);
  localparam int LOG = $clog2(CHANNELS);
  typedef enum logic [1:0] {BEGIN, ROOM, LINES, TURN} state_t;
  state_t state;
  logic [1:0] room[CHANNELS];  // tiles of a channel that there is room for
  logic [CHANNELS-1:0] side;
  logic [LOG-1:0] channel;
  logic [31:0] scale_line, bias_line;
  logic [24:0] columns_left;
  logic [6:0] rows_left;
  logic [1:0] which, count;
  logic two, last_line, takes_room, has_room, last_tile, last_pass;
  params_tag_t tag;
  assign two = columns_left > 25'd16;
  assign count = 2'd1 + {1'b0, two} + {1'b0, command.has_bias};
  assign last_line = which == (command.has_bias ? 2'd2 : {1'b0, two});
  assign last_tile = columns_left <= 25'd32;
  assign last_pass = rows_left <= 7'(ROWS);
  assign has_room = room[channel] != 2'd0;
  assign takes_room = state == ROOM && has_room;
  assign tag = '{is_x: 1'b0, channel: 5'(channel), side: side[channel], which: which, count: count, zero: 2'd0};
  assign wanted = '{
      valid: state == LINES, bank: command.bias_bank,
      line: which[1] ? bias_line : scale_line + {31'd0, which[0]}, tag: tag
  };
  assign next = state == TURN && rows_left == 7'd0;
  always_ff @(posedge clk) begin
    for (int i = 0; i < CHANNELS; i++)
      room[i] <= room[i] + {1'b0, taken[i]} - {1'b0, takes_room && channel == i[LOG-1:0]};
    case (state)
      BEGIN:
      if (command_valid) begin
        rows_left <= command.rows;
        state <= TURN;
      end
      ROOM: begin
        which <= 2'd0;
        if (has_room) state <= LINES;
      end
      LINES:
      if (asked) begin
        which <= which == 2'd0 && !two ? 2'd2 : which + 2'd1;
        if (last_line) begin
          side[channel] <= !side[channel];
          channel <= channel + 1'b1;
          scale_line <= scale_line + 32'd2;
          bias_line <= bias_line + 32'd1;
          columns_left <= columns_left - 25'd32;
          state <= last_tile ? TURN : ROOM;
          if (last_tile) rows_left <= last_pass ? 7'd0 : rows_left - 7'(ROWS);
        end
      end
      default: begin  // a pass begins, or the command is done
        state <= rows_left == 7'd0 ? BEGIN : ROOM;
        channel <= command.first[LOG-1:0];
        scale_line <= command.bias_line;
        bias_line <= command.bias_line + ((command.n + 32'd15) >> 4);
        columns_left <= command.n[24:0];
      end
    endcase
    if (rst) begin
      state <= BEGIN;
      side <= '0;
      for (int i = 0; i < CHANNELS; i++) room[i] <= 2'd2;
    end
  end
endmodule
