// SPDX-License-Identifier: Apache-2.0
// The vector unit as a unit of the sequencer: checks a command as the kernels do, with their status, works out what the
// unit needs besides the command's fields, and tells the result. Rows in other banks than the on-chip buffer, and
// tables, are checked by the memory port while the unit runs.
module vector_slot
  import abi_types::*;
(
    input  logic         clk,
    input  logic         rst,
    // sequencer
    input  logic         unit_announce,
    input  logic [511:0] unit_line,
    input  logic [6:0]   unit_rows,
    input  logic         unit_start,
    input  logic         unit_abort,
    output logic         unit_idle,
    output logic         result_valid,
    input  logic         result_ready,
    output logic [1:0]   result_state,
    output logic [7:0]   result_status,
    output logic [31:0]  result_nonfinite_count,
    output logic [31:0]  result_nonfinite_row,   // of the step
    // list and step, held while the unit runs
    input  logic [31:0]  onchip_bytes,
    input  logic [15:0]  list_head_dim,
    input  logic [7:0]   control_bank,
    input  logic [31:0]  block_offset,
    output logic [5:0]   row,                    // of the command; in the next cycle:
    output logic         row_selected,           // it counts among the selected rows
    input  logic [5:0]   row_number,             // in the step
    input  logic [31:0]  row_flags,              // struct lora_row
    input  logic [31:0]  row_token,
    input  logic [31:0]  row_position,
    // memory port, beside the unit's
    input  logic         line_refused,
    input  logic         line_error,
    input  logic         write_refused,
    input  logic         write_error,
    input  logic         write_open,
    // vector unit
    output logic         abort_valid,
    output logic         command_valid,
    input  logic         command_ready,
    output logic [7:0]   op,
    output logic         has_a,
    output logic         has_b,
    output logic         one_plus,
    output logic [31:0]  columns,
    output logic [6:0]   rows,
    output logic [31:0]  head_dim,
    output logic [31:0]  count,
    output logic [31:0]  first,
    output logic [31:0]  record,
    output logic [5:0]   x_bank,
    output logic [31:0]  x_offset,
    output logic [31:0]  x_stride,
    output logic [5:0]   z_bank,
    output logic [31:0]  z_offset,
    output logic [31:0]  z_stride,
    output logic [5:0]   a_bank,
    output logic [31:0]  a_line,
    output logic [5:0]   b_bank,
    output logic [31:0]  b_line,
    output logic [5:0]   y_bank,
    output logic [31:0]  y_offset,
    output logic [31:0]  y_stride,
    output logic [31:0]  scalar,
    output logic [31:0]  extra,
    output logic [5:0]   vector_bank,
    input  logic [6:0]   unit_row,
    output logic         vector_row,
    output logic [31:0]  vector_token,
    output logic [31:0]  vector_position,
    input  logic         done,
    input  logic         bad_index,
    input  logic [31:0]  nonfinite_count,
    input  logic [31:0]  nonfinite_row
);
  typedef enum logic [2:0] {IDLE, FIELDS, DIVIDE, RANGES, ROWS, VERDICT, RUN} state_t;
  state_t state;
  vector_record_t told, command;
  logic [6:0] told_rows;
  logic held;

  // --- what the operation asks for -----------------------------------------------------------------
  logic known, wrong, wrong_late, heads, row_heads, in_place, rotates, x_in_y_bank, row_in_y, z_by_columns;
  logic a_needed, b_needed, by_token, runs_empty;
  logic [2:0] has;
  logic [2:0][1:0] element;
  logic [6:0] z_bytes;
  vector_operands operands (
      .command(command),
      .known(known),
      .wrong(wrong),
      .wrong_late(wrong_late),
      .heads(heads),
      .row_heads(row_heads),
      .in_place(in_place),
      .rotates(rotates),
      .x_in_y_bank(x_in_y_bank),
      .has(has),
      .element(element),
      .row_in_y(row_in_y),
      .z_by_columns(z_by_columns),
      .z_bytes(z_bytes),
      .a_needed(a_needed),
      .b_needed(b_needed),
      .by_token(by_token),
      .runs_empty(runs_empty)
  );

  // --- heads: of a row, of all boards' rows, and before these columns ------------------------------
  logic divided, dividing, uneven;
  logic [1:0] step;  // which division, which operand
  logic [31:0] dividend, quotient, remainder, head_count;
  assign dividend = heads || step == 2'd1 ? command.columns : step == 2'd0 ? command.extra : command.first;
  divide heads_of (
      .clk(clk),
      .rst(rst || unit_abort),
      .start(state == DIVIDE && !dividing),
      .dividend(dividend),
      .divisor(heads ? command.extra : 32'(list_head_dim)),
      .done(divided),
      .quotient(quotient),
      .remainder(remainder)
  );

  // --- rows of x, y and z --------------------------------------------------------------------------
  logic fits, outside, looking;
  logic [7:0] bank;
  logic [31:0] offset, stride, bytes;
  logic [1:0] size;
  logic [3:0] asked;
  assign asked = {1'b0, has};
  always_comb begin
    size = step == 2'd0 ? element[0] : step == 2'd1 ? element[1] : element[2];
    bytes = command.columns << size;
    unique case (step)
      2'd0: {bank, offset, stride} = {x_in_y_bank ? command.y_bank : 8'(LORA_BANK_ONCHIP), command.x_offset,
                                      command.x_stride};
      2'd1: begin
        {bank, offset, stride} = {command.y_bank, command.y_offset, command.y_stride};
        if (row_in_y) bytes = 32'd8;
      end
      default: begin
        {bank, offset, stride} = {8'(LORA_BANK_ONCHIP), command.z_offset, command.z_stride};
        if (heads || row_heads) bytes = head_count << size;
        else if (!z_by_columns) bytes = 32'(z_bytes);
      end
    endcase
  end
  row_range range (
      .clk(clk),
      .bank(bank),
      .offset(offset),
      .stride(stride),
      .more(6'(rows - 7'd1)),
      .bytes(bytes),
      .element(size),
      .onchip_bytes(onchip_bytes),
      .fits(fits)
  );

  // --- rows of the step ----------------------------------------------------------------------------
  logic looks, vector_odd;
  logic [5:0] look_row, check_row, checked;
  logic [31:0] vector_start;
  assign row_selected = (command.flags & 16'(LORA_FLAG_SELECTED)) != '0;
  assign row = state == ROWS ? check_row : looks ? look_row : unit_row[5:0];
  assign vector_start = block_offset + {command.first[30:0], 1'b0};
  assign vector_row = (row_flags & LORA_ROW_VECTOR) != '0;
  assign vector_token = vector_row ? vector_start + row_token : row_token;
  assign vector_position = row_position;
  assign vector_odd = vector_row && vector_token[0];

  // --- fields --------------------------------------------------------------------------------------
  assign op = command.op;
  assign has_a = command.a_bank != 8'(LORA_NO_BANK);
  assign has_b = command.b_bank != 8'(LORA_NO_BANK);
  assign one_plus = (command.flags & 16'(LORA_FLAG_ONE_PLUS)) != '0;
  assign columns = command.columns;
  assign head_dim = heads ? command.extra : command.op == 8'(LORA_VEC_HEAD_SUMS) ? 32'(list_head_dim) : command.columns;
  assign count = row_heads ? head_count : command.extra;
  assign first = command.first;
  assign x_bank = in_place || x_in_y_bank ? command.y_bank[5:0] : 6'(LORA_BANK_ONCHIP);
  assign x_offset = in_place ? command.y_offset : command.x_offset;
  assign x_stride = in_place ? command.y_stride : command.x_stride;
  assign z_bank = 6'(LORA_BANK_ONCHIP);
  assign z_offset = command.z_offset;
  assign z_stride = command.z_stride;
  assign a_bank = command.a_bank[5:0];
  assign a_line = command.a_line;
  assign b_bank = command.b_bank[5:0];
  assign b_line = command.b_line;
  assign y_bank = rotates ? 6'(LORA_BANK_ONCHIP) : command.y_bank[5:0];
  assign y_offset = rotates ? command.x_offset : command.y_offset;
  assign y_stride = rotates ? command.x_stride : command.y_stride;
  assign scalar = command.scalar;
  assign extra = command.extra;
  assign vector_bank = control_bank[5:0];

  // --- checks, in the order of the kernels -----------------------------------------------------------
  localparam int SCALE_WORD = int'(LORA_ROW_MAXIMA);  // struct lora_row_scale: `scale` lies behind the maxima
  logic [31:0] head_first;
  logic tables_wrong, begins, busy, over;
  logic [7:0] status;
  assign tables_wrong = (a_needed && command.a_bank > 8'(LORA_BANK_ONCHIP)) ||
      (b_needed && command.b_bank > 8'(LORA_BANK_ONCHIP));
  always_comb begin
    unique case (command.op)
      8'(LORA_VEC_HEAD_SUMS): record = head_first;
      8'(LORA_VEC_ROW_MAX): record = command.first;
      8'(LORA_VEC_QUANTIZE_ROW): record = 32'(SCALE_WORD);
      default: record = 32'd0;
    endcase
  end
  always_ff @(posedge clk) begin
    if (unit_announce) {held, told, told_rows} <= {1'b1, unit_line, unit_rows};
    unique case (state)
      FIELDS: begin
        step <= 2'd0;
        {uneven, outside, dividing, looking} <= 4'b0000;
        check_row <= 6'd0;
        status <= 8'(LORA_OK);
        if (command.columns > 32'd1 << 24) status <= 8'(LORA_ERR_SIZE);
        else if (!known) status <= 8'(LORA_ERR_OPCODE);
        else if (wrong || (row_heads && list_head_dim == '0)) status <= 8'(LORA_ERR_SIZE);
        state <= VERDICT;
        if (command.columns <= 32'd1 << 24 && known && !wrong && !(row_heads && list_head_dim == '0))
          state <= heads || row_heads ? DIVIDE : RANGES;
      end
      DIVIDE: begin
        dividing <= 1'b1;
        if (divided) begin
          dividing <= 1'b0;
          step <= step + 2'd1;
          if (remainder != '0) uneven <= 1'b1;
          if (step == 2'd0) head_count <= quotient;
          head_first <= quotient;
          if (heads || step == 2'd2) begin
            step <= 2'd0;
            state <= RANGES;
            if (uneven || remainder != '0) begin
              status <= 8'(LORA_ERR_SIZE);
              state <= VERDICT;
            end
          end
        end
      end
      RANGES: begin  // one a cycle; what was asked in the cycle before is here
        step <= step + 2'd1;
        looking <= asked[step];
        if (looking && !fits) outside <= 1'b1;
        if (step == 2'd3) begin
          state <= by_token ? ROWS : VERDICT;
          looking <= 1'b0;
        end
      end
      ROWS: begin  // a vector begins at an element
        check_row <= check_row + 6'd1;
        looking <= 1'b1;
        checked <= check_row;
        if (looking && vector_odd) outside <= 1'b1;
        if (looking && {1'b0, checked} + 7'd1 == rows) state <= VERDICT;
      end
      VERDICT: state <= RUN;
      RUN: if (over) state <= IDLE;
      default: ;
    endcase
    begins <= state == VERDICT;
    if (state == VERDICT && status == 8'(LORA_OK)) begin
      if (outside || tables_wrong) status <= 8'(LORA_ERR_ADDRESS);
      else if (wrong_late) status <= 8'(LORA_ERR_SIZE);
    end
    if (unit_start) begin
      held <= 1'b0;
      command <= told;
      rows <= told_rows;
      state <= FIELDS;
    end
    if (rst || unit_abort) begin
      held <= 1'b0;
      begins <= 1'b0;
      state <= IDLE;
    end
  end
  assign over = state == RUN && !busy && !begins;
  assign unit_idle = (state == IDLE || over) && !held && command_ready && !write_open;
  unit_run runs (
      .clk(clk),
      .rst(rst),
      .unit_abort(unit_abort),
      .start(begins),
      .status(status),
      .nothing(command.columns == '0 && !runs_empty),
      .busy(busy),
      .abort_valid(abort_valid),
      .command_valid(command_valid),
      .command_ready(command_ready),
      .done(done),
      .bad_index(bad_index),
      .nonfinite_count(nonfinite_count),
      .nonfinite_row(nonfinite_row),
      .line_refused(line_refused),
      .line_error(line_error),
      .write_refused(write_refused),
      .write_error(write_error),
      .write_open(write_open),
      .looks(looks),
      .look_row(look_row),
      .row_number(row_number),
      .result_valid(result_valid),
      .result_ready(result_ready),
      .result_state(result_state),
      .result_status(result_status),
      .result_nonfinite_count(result_nonfinite_count),
      .result_nonfinite_row(result_nonfinite_row)
  );
endmodule
