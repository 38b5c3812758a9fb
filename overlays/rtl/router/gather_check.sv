// SPDX-License-Identifier: Apache-2.0
// What a gather's command and list say, checked as the emulator checks it: which boards take part, where the rows lie,
// and which port leads where.
module gather_check
  import abi_types::*;
(
    input  logic           clk,
    input  logic           rst,
    input  logic           start,           // one cycle; the inputs are held
    input  gather_record_t command,
    input  logic [6:0]     rows,
    input  logic [7:0]     list_rank,
    input  logic [7:0]     list_boards,
    input  logic           list_ring,
    input  logic [7:0]     port_next,
    input  logic [7:0]     port_previous,
    input  logic [7:0]     stage_boards,    // 0: no stages
    input  logic [31:0]    onchip_bytes,
    output logic           done,            // one cycle
    output logic [7:0]     status,
    output logic [6:0]     rank,            // among the boards of the gather
    output logic [7:0]     boards,
    output logic [6:0]     owners,
    output logic           ring,
    output logic           has_next,
    output logic           has_previous,
    output logic [1:0]     shift            // log2 of an element's bytes
);
  typedef enum logic [1:0] {IDLE, STAGE, SPAN, RANGE} state_t;
  state_t state;
  logic [7:0] first, stage_first;
  logic [8:0] boards_wide;
  logic refused, fits, in_span, ports_right;
  logic [6:0] last_row;
  logic [34:0] width;
  logic [38:0] reach;  // behind the last row

  always_comb begin
    unique case (command.element_bytes)
      16'd1: shift = 2'd0;
      16'd2: shift = 2'd1;
      16'd4: shift = 2'd2;
      default: shift = 2'd3;
    endcase
  end
  assign refused = command.element_bytes != 16'd1 << shift || command.columns == '0 ||
      command.share_unit == '0 || command.segment_unit == '0 || list_boards == 8'd0 ||
      list_boards > 8'(LORA_MAX_BOARDS) || list_rank >= list_boards;
  assign width = {3'd0, command.columns} << shift;
  // ends of a path have one neighbor
  assign has_next = boards > 8'd1 && rows != 7'd0 && (ring || {1'b0, rank} + 8'd1 < boards);
  assign has_previous = boards > 8'd1 && rows != 7'd0 && (ring || rank != 7'd0);
  assign ports_right = !(has_next && port_next >= 8'(LORA_PORTS)) &&
      !(has_previous && port_previous >= 8'(LORA_PORTS)) &&
      !(has_next && has_previous && port_next == port_previous);
  assign last_row = rows - 7'd1;
  assign fits = reach <= 39'(onchip_bytes);

  always_comb begin
    boards_wide = {stage_boards, 1'b0};
    stage_first = first;
    in_span = 1'b1;
    unique case (command.span)
      16'(LORA_SPAN_ALL): begin
        boards_wide = {1'b0, list_boards};
        stage_first = 8'd0;
      end
      16'(LORA_SPAN_STAGE): boards_wide = {1'b0, stage_boards};
      16'(LORA_SPAN_FROM_PREVIOUS): begin
        in_span = first != 8'd0;
        stage_first = first - stage_boards;
      end
      default: in_span = command.span == 16'(LORA_SPAN_TO_NEXT);
    endcase
    if (boards_wide == 9'd0 || {1'b0, stage_first} + boards_wide > {1'b0, list_boards}) in_span = 1'b0;
  end

  always_ff @(posedge clk) begin
    done <= 1'b0;
    unique case (state)
      STAGE: begin  // the stage of this board
        if (stage_boards != 8'd0 && first + stage_boards <= list_rank) first <= first + stage_boards;
        else state <= SPAN;
      end
      SPAN: begin
        if (!in_span) status <= 8'(LORA_ERR_SIZE);
        boards <= 8'(boards_wide);
        owners <= 7'(command.span == 16'(LORA_SPAN_ALL) ? list_boards : stage_boards);
        ring <= command.span == 16'(LORA_SPAN_ALL) && list_ring;
        rank <= 7'(list_rank - stage_first);
        reach <= {7'd0, command.offset} + 39'(width) + 39'(command.stride) * 39'(last_row);
        if (rows == 7'd0) reach <= {7'd0, command.offset};
        state <= RANGE;
      end
      RANGE: begin
        if (status == 8'(LORA_OK)) begin
          if (!fits || width > 35'(command.stride)) status <= 8'(LORA_ERR_ADDRESS);
          else if (!ports_right) status <= 8'(LORA_ERR_LINK_DOWN);
        end
        done <= 1'b1;
        state <= IDLE;
      end
      default:
      if (start) begin
        status <= refused ? 8'(LORA_ERR_SIZE) : 8'(LORA_OK);
        first <= 8'd0;
        state <= refused ? SPAN : STAGE;
      end
    endcase
    if (rst) begin
      state <= IDLE;
      done <= 1'b0;
    end
  end
endmodule
