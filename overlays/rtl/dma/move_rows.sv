// SPDX-License-Identifier: Apache-2.0
// MOVE_ROWS: checks the ranges of all rows, then moves row by row.
module move_rows
  import abi_types::*;
  import dma_types::*;
(
    input  logic              clk,
    input  logic              rst,
    input  logic              start,           // one cycle; the inputs are held
    input  move_rows_record_t command,
    input  logic [31:0]       row_count,
    input  logic [31:0]       selected_count,
    output logic [5:0]        row,             // of the step; in the next cycle:
    input  logic [15:0]       row_selected,    // the selected row of that number
    output logic              look,
    output range_t            range,
    input  logic              look_over,
    input  logic              covered,
    output logic              copy_valid,
    input  logic              copy_ready,
    output copy_t             copy,
    input  logic              settled,         // no copy is under way
    output logic              done,            // one cycle
    output logic [7:0]        status
);
  typedef enum logic [2:0] {IDLE, SPAN, LOOK, ANSWER, ROW, PICK, PLACE, COPY} state_t;
  state_t state;
  logic pack, selects, target;  // the range of the target
  logic [6:0] all, chosen, rows, count, number, from;
  logic [15:0] picked;
  logic [31:0] offset;
  address_t x_reach, y_reach, reach, x_at, y_at;
  function automatic logic [6:0] most(input logic [31:0] count_of);
    return count_of < 32'(LORA_MAX_ROWS) ? count_of[6:0] : 7'(LORA_MAX_ROWS);
  endfunction
  assign pack = (command.flags & 16'(LORA_FLAG_PACK)) != 16'd0;
  assign selects = pack || (command.flags & 16'(LORA_FLAG_SELECTED)) != 16'd0;
  assign all = most(row_count);
  assign chosen = (command.flags & 16'(LORA_FLAG_VOTES)) != 16'd0 ? {6'd0, all != 7'd0} :
      selects ? most(selected_count) : all;
  // rows that the range has
  assign count = target || !pack ? rows : all;
  assign offset = target ? command.y_offset : command.x_offset;
  assign reach = target ? y_reach : x_reach;
  assign look = state == LOOK;
  assign range = '{
      bank: target ? command.y_bank : command.x_bank,
      first: 56'(offset),
      bytes: count == 7'd0 ? 40'd0 : 40'(reach) + 40'(command.bytes)
  };
  assign row = number[5:0];
  assign picked = pack ? row_selected : 16'(number);
  assign copy_valid = state == COPY && (settled || command.x_bank != command.y_bank);
  assign x_at = 38'(command.x_offset) + x_reach;
  assign y_at = 38'(command.y_offset) + y_reach;
  assign copy = '{
      from_bank: command.x_bank[5:0], from: x_at, from_step: 7'd0,
      to_bank: command.y_bank[5:0], to: y_at, to_step: 7'd0,
      rows: 17'd1, bytes: command.bytes,
      backward: command.x_bank == command.y_bank && y_at > x_at, sums: 1'b0
  };

  always_ff @(posedge clk) begin
    done <= 1'b0;
    unique case (state)
      SPAN: begin
        x_reach <= 38'(from) * 38'(command.x_stride);
        y_reach <= 38'(number) * 38'(command.y_stride);
        status <= 8'(LORA_OK);
        target <= 1'b0;
        number <= 7'd0;
        state <= LOOK;
        if (rows == 7'd0) begin
          done <= 1'b1;
          state <= IDLE;
        end
      end
      LOOK: state <= ANSWER;
      ANSWER:
      if (look_over) begin
        target <= 1'b1;
        state <= target ? ROW : LOOK;
        if (!covered) begin
          status <= 8'(LORA_ERR_ADDRESS);
          done <= 1'b1;
          state <= IDLE;
        end
      end
      ROW: state <= PICK;
      PICK: begin
        from <= picked[6:0];
        state <= PLACE;
        if (picked >= 16'(all)) begin
          status <= 8'(LORA_ERR_ROW);
          done <= 1'b1;
          state <= IDLE;
        end
      end
      PLACE: begin
        x_reach <= 38'(from) * 38'(command.x_stride);
        y_reach <= 38'(number) * 38'(command.y_stride);
        state <= COPY;
      end
      COPY:
      if (copy_valid && copy_ready) begin
        number <= number + 7'd1;
        state <= ROW;
        if (number + 7'd1 == rows) begin
          done <= 1'b1;
          state <= IDLE;
        end
      end
      default:
      if (start) begin
        rows <= chosen;
        number <= chosen - 7'd1;
        from <= pack ? all - 7'd1 : chosen - 7'd1;
        state <= SPAN;
      end
    endcase
    if (rst) begin
      state <= IDLE;
      done <= 1'b0;
    end
  end
endmodule
