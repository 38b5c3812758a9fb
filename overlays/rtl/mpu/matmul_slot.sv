// SPDX-License-Identifier: Apache-2.0
// Matmuls and the adapters' A*x as a part of a unit of the sequencer: checks a command as the kernels do, with their
// status, as soon as it is told; lets its array fetch weights meanwhile; starts array and adapter unit, and tells
// the result. What channels have been told they hold themselves, so the command behind it is checked at once and may be
// announced too. Rows in other banks than the on-chip buffer, weights and tables are checked by the memory port while
// they run. What the arrays cannot do is refused: K beyond MAX_K, rows that begin between lines, rows written over
// others that are still to be read.
module matmul_slot
  import abi_types::*;
  import mpu_types::*;
#(
    parameter int ROWS  = 1,               // the arrays'
    parameter int MAX_K = 32 * MAX_UNITS - 1,
    parameter int AHEAD = 1                // commands that may be told and did not start
) (
    input  logic              clk,
    input  logic              rst,
    // sequencer
    input  logic              unit_announce,
    input  logic [511:0]      unit_line,
    input  logic [6:0]        unit_rows,
    output logic              room,                  // for one more announce
    input  logic              unit_start,
    input  logic              unit_abort,
    output logic              unit_idle,
    output logic              result_valid,
    input  logic              result_ready,
    output logic [1:0]        result_state,
    output logic [7:0]        result_status,
    output logic [31:0]       result_nonfinite_count,
    output logic [31:0]       result_nonfinite_row,  // of the step
    // list, held while a command is told or runs
    input  logic [31:0]       onchip_bytes,
    input  logic [24:0]       adapter_columns,
    output logic [5:0]        row,                   // of the command; in the next cycle:
    output logic              row_selected,          // it counts among the selected rows
    input  logic [5:0]        row_number,            // in the step
    // memory port, beside the units'
    input  logic [MATMUL-1:0] line_refused,
    input  logic [MATMUL-1:0] line_error,
    input  logic              write_refused,
    input  logic              write_error,
    input  logic              write_open,
    // both arrays and the adapter unit
    output logic [MATMUL-1:0] abort_valid,
    output logic [MATMUL-1:0] announce_valid,
    output logic [MATMUL-1:0] command_valid,
    input  logic [MATMUL-1:0] command_ready,
    input  logic [MATMUL-1:0] idle,
    input  logic [MATMUL-1:0] early,                 // `array_command` may be announced while one runs here, and is held there
    input  logic [MATMUL-1:0] done,
    input  logic [MATMUL-1:0][31:0] nonfinite_count,
    input  logic [MATMUL-1:0][31:0] nonfinite_row,
    input  logic [1:0]        verdict,               // of adapter
    input  logic [5:0]        adapter_row,
    output logic              command_told,          // with command_valid: the first announced one, not `array_command`
    output command_t          array_command,
    output logic              down,
    output logic [15:0]       matrix,
    output logic [31:0]       h_offset,
    output logic [31:0]       h_stride
);
  typedef logic [MATMUL-1:0] units_t;
  typedef enum logic [2:0] {EMPTY, FIELDS, RANGES, CHECKED, TELL} state_t;
  state_t state;  // of `command`: the next one, until its units have it
  matrix_record_t command;
  logic [511:0] told;
  logic [6:0] told_rows, rows;
  logic told_here, starts, announced, begins, busy;
  assign room = !told_here;

  // An adapter's command has its fields where a matmul has them.
  function automatic matrix_record_t fields_of(input logic [511:0] line);
    adapter_record_t from;
    matrix_record_t found;
    from = line;
    found = line;
    if (from.opcode == 8'(LORA_CMD_ADAPTER)) begin
      found.k = from.k;
      found.x_bank = 8'(LORA_BANK_ONCHIP);
      found.x_offset = from.x_offset;
      found.x_stride = from.x_stride;
      found.h_offset = from.h_offset;
      found.h_stride = from.h_stride;
      found.adapter = from.adapter;
    end
    return found;
  endfunction

  // --- fields --------------------------------------------------------------------------------------
  logic [7:0] kind;
  logic [3:0] group;
  logic four_bit, integers, known, row_scales, has_h, selected;
  units_t units;
  assign kind = command.weight_type & 8'(LORA_WEIGHT_TYPE_MASK);
  assign group = command.weight_type[7:4];
  assign down = command.opcode == 8'(LORA_CMD_ADAPTER);
  assign four_bit = kind == 8'(LORA_WEIGHT_W4A8) || kind == 8'(LORA_WEIGHT_W4A16);
  assign integers = !down && (kind == 8'(LORA_WEIGHT_INT8) || kind == 8'(LORA_WEIGHT_W4A8));
  assign known = four_bit ? group >= 4'd5 && group <= 4'd7
                          : (kind == 8'(LORA_WEIGHT_FP16) || kind == 8'(LORA_WEIGHT_INT8)) && group == 4'd0;
  assign row_scales = !down && (command.flags & 16'(LORA_FLAG_ROW_SCALES)) != '0;
  assign selected = (command.flags & 16'(LORA_FLAG_SELECTED)) != '0;
  assign has_h = down || command.adapter != '0;
  always_comb begin
    units = '0;
    units[FP16_ARRAY] = !down && !integers;
    units[INT8_ARRAY] = integers;
    units[ADAPTER] = has_h;
  end
  assign matrix = down ? command.adapter : command.adapter - 16'd1;
  assign h_offset = command.h_offset;
  assign h_stride = command.h_stride;
  assign array_command = '{
      k: command.k[15:0], n: command.n, rows: rows, weight_line: command.weight_line, first: command.first,
      merge: command.merge, bank_first: command.bank_first[5:0], bank_count: command.bank_count[5:0],
      has_bias: integers ? (command.flags & 16'(LORA_FLAG_NO_BIAS)) == '0 : command.bias_bank != 8'(LORA_NO_BANK),
      bias_bank: command.bias_bank[5:0], bias_line: command.bias_line, x_bank: command.x_bank[5:0],
      x_line: {6'd0, command.x_offset[31:6]}, x_stride: {6'd0, command.x_stride[31:6]},
      y_bank: command.y_bank[5:0], y_line: {6'd0, command.y_offset[31:6]},
      y_stride: {6'd0, command.y_stride[31:6]}, y_single: command.y_type == 8'(LORA_FP32), eight_bit: !four_bit,
      four_bit: four_bit, group_log: 2'(group - 4'd5), row_scales: row_scales, adapted: has_h
  };

  // --- what is wrong with them, in the order of the kernels ------------------------------------------
  localparam logic [31:0] MAX_COLUMNS = 32'd1 << 24;
  logic [7:0] fault, status;
  logic misplaced, biased;
  assign biased = integers || command.bias_bank != 8'(LORA_NO_BANK);
  always_comb begin
    fault = 8'(LORA_OK);
    if (command.k > MAX_K) fault = 8'(LORA_ERR_SIZE);
    if (row_scales && !integers) fault = 8'(LORA_ERR_OPCODE);
    if (!down && four_bit && (command.k[6:0] & ~(7'h7f << group)) != '0) fault = 8'(LORA_ERR_SIZE);
    if (!down && !known) fault = 8'(LORA_ERR_OPCODE);
    if (command.k == '0 || command.k > MAX_COLUMNS ||
        (!down && (command.n > MAX_COLUMNS || command.bank_count == '0 || command.merge == '0)))
      fault = 8'(LORA_ERR_SIZE);
    if (!down && command.opcode != 8'(LORA_CMD_MATRIX)) fault = 8'(LORA_ERR_OPCODE);
    misplaced = command.x_offset[5:0] != '0 || command.x_stride[5:0] != '0;
    if (!down)
      misplaced = misplaced || command.y_offset[5:0] != '0 || command.y_stride[5:0] != '0 ||
          9'(command.bank_first) + 9'(command.bank_count) > 9'(LORA_MAX_BANKS) ||
          (biased && command.bias_bank > 8'(LORA_BANK_ONCHIP));
  end

  // --- rows of x, y and h: within the on-chip buffer, and apart ----------------------------------------
  // An operand lies apart from another one where it ends before that begins.
  typedef enum logic [1:0] {X, Y, H} operand_t;
  operand_t checked, other;
  logic fits, apart, fit_before;
  logic [2:0] step;
  logic [7:0] bank;
  logic [31:0] offset, stride, bytes, limit, asked_limit;
  logic [1:0] size;
  assign apart = step >= 3'd3;
  always_comb begin
    unique case (step)
      3'd0: {checked, other} = {X, X};
      3'd1: {checked, other} = {Y, Y};
      3'd2: {checked, other} = {H, H};
      3'd3: {checked, other} = {X, Y};
      3'd4: {checked, other} = {Y, X};
      3'd5: {checked, other} = {down ? X : Y, H};
      default: {checked, other} = {H, down ? X : Y};
    endcase
    unique case (checked)
      X: begin
        {bank, offset, stride} = {command.x_bank, command.x_offset, command.x_stride};
        bytes = row_scales ? {command.k[31:6] + 26'(command.k[5:0] != '0) + 26'd1, 6'd0}  // struct lora_row_scale
                           : command.k << !integers;
        size = row_scales ? 2'd2 : {1'b0, !integers};
      end
      Y: begin
        {bank, offset, stride} = {command.y_bank, command.y_offset, command.y_stride};
        size = array_command.y_single ? 2'd2 : 2'd1;
        bytes = command.n << size;
      end
      default: begin
        {bank, offset, stride} = {8'(LORA_BANK_ONCHIP), command.h_offset, command.h_stride};
        bytes = {6'd0, adapter_columns, 1'b0};
        size = 2'd1;
      end
    endcase
    limit = onchip_bytes;
    if (apart) begin
      bank = 8'(LORA_BANK_ONCHIP);
      size = 2'd0;
      limit = other == X ? command.x_offset : other == Y ? command.y_offset : command.h_offset;
    end
  end
  always_ff @(posedge clk) asked_limit <= limit;
  row_range range (
      .clk(clk),
      .bank(bank),
      .offset(offset),
      .stride(stride),
      .more(6'(rows - 7'd1)),
      .bytes(bytes),
      .element(size),
      .onchip_bytes(asked_limit),  // of what was asked in the cycle before
      .fits(fits)
  );
  logic outside;  // what was asked in the cycle before
  always_comb begin
    unique case (step)
      3'd1: outside = !fits;
      3'd2: outside = !fits && !down;
      3'd3: outside = !fits && has_h;
      // rows that the array takes at once are read before y is written; kernels read a row's scale again
      3'd5: outside = !fits && !fit_before && !down && command.x_bank == command.y_bank &&
          (rows > 7'(ROWS) || row_scales);
      3'd7: outside = !fits && !fit_before && (down || (has_h && command.y_bank == 8'(LORA_BANK_ONCHIP)));
      default: outside = 1'b0;
    endcase
  end

  // --- the next command, and the one that runs -------------------------------------------------------
  units_t run_units, of_next;
  logic run_selected, early_refused, early_failed, late_refused, late_failed, nothing;
  logic run_valid, run_ready, run_done, run_abort, looks, at_end;
  logic [5:0] look_row;
  logic may_announce, kept, parks, begins_parked;
  // Those that wait in the channels for their start, the oldest first: only whether rows are selected ones.
  localparam int COUNT = $clog2(AHEAD + 1);
  logic [AHEAD-1:0] parked_selected;
  logic [COUNT-1:0] parked;
  assign parks = state == CHECKED && announced && kept && !begins;
  assign begins_parked = parked != '0 && starts && !busy;
  assign nothing = !down && command.n == '0;
  assign begins = state == CHECKED && starts && !busy && parked == '0;
  assign of_next = state == CHECKED && announced ? units : '0;
  assign may_announce = state == CHECKED && !announced && status == 8'(LORA_OK) && !nothing && !down;
  always_comb begin
    announce_valid = units & {MATMUL{may_announce}} & ((idle & ~(run_units & {MATMUL{busy}})) | early);
    announce_valid[ADAPTER] = 1'b0;  // it would read nothing yet
  end
  assign at_end = run_valid ? run_ready : result_valid;
  always_ff @(posedge clk) begin
    if (unit_start) starts <= 1'b1;
    for (int i = 0; i < AHEAD; i++) begin
      if (begins_parked && i + 1 < AHEAD) parked_selected[i] <= parked_selected[(i+1)%AHEAD];
      if (parks && parked - COUNT'(begins_parked) == COUNT'(i)) parked_selected[i] <= selected;
    end
    parked <= parked + COUNT'(parks) - COUNT'(begins_parked);
    if (begins_parked) begin
      starts <= 1'b0;
      run_units <= units_t'(1) << INT8_ARRAY;
      run_selected <= parked_selected[0];
      command_told <= 1'b1;
    end
    unique case (state)
      EMPTY:
      if (told_here) begin
        told_here <= 1'b0;
        command <= fields_of(told);
        rows <= told_rows;
        announced <= 1'b0;
        {early_refused, early_failed} <= 2'b00;
        state <= FIELDS;
      end
      FIELDS: begin
        step <= 3'd0;
        status <= fault;
        state <= fault == 8'(LORA_OK) ? RANGES : CHECKED;
        if (fault == 8'(LORA_OK) && misplaced) status <= 8'(LORA_ERR_ADDRESS);
      end
      RANGES: begin
        step <= step + 3'd1;
        fit_before <= fits;
        if (outside) status <= 8'(LORA_ERR_ADDRESS);
        if (step == 3'd7) state <= CHECKED;
      end
      CHECKED: begin
        if (announce_valid != '0) announced <= 1'b1;
        if (announce_valid != '0) kept <= early[INT8_ARRAY] && integers;
        if ((line_refused & of_next) != '0) early_refused <= 1'b1;
        if ((line_error & of_next) != '0) early_failed <= 1'b1;
        if (begins) begin
          starts <= 1'b0;
          run_units <= units;
          run_selected <= selected;
          command_told <= 1'b0;
          state <= TELL;
        end else if (parks) state <= EMPTY;
      end
      default: if (at_end) state <= EMPTY;
    endcase
    late_refused <= begins && (early_refused || (line_refused & of_next) != '0);
    late_failed <= begins && (early_failed || (line_error & of_next) != '0);
    if (unit_announce) {told_here, told, told_rows} <= {1'b1, unit_line, unit_rows};
    if (rst || unit_abort) begin
      {told_here, starts} <= 2'b00;
      parked <= '0;
      state <= EMPTY;
    end
  end

  // --- units -----------------------------------------------------------------------------------------
  logic adapts;
  logic [1:0] which;
  assign adapts = run_units[ADAPTER];
  assign which = run_units[FP16_ARRAY] ? 2'(FP16_ARRAY) : run_units[INT8_ARRAY] ? 2'(INT8_ARRAY) : 2'(ADAPTER);
  assign run_ready = (command_ready | ~run_units) == '1;
  assign command_valid = run_units & {MATMUL{run_valid && run_ready}};  // all in one cycle
  assign abort_valid = (run_units & {MATMUL{run_abort}}) | {MATMUL{unit_abort}};
  assign run_done = done[which];
  assign row = looks ? look_row : adapter_row;
  assign row_selected = run_selected;
  assign unit_idle = idle == '1 && !told_here && state == EMPTY && parked == '0 && !busy && !write_open;
  unit_run runs (
      .clk(clk),
      .rst(rst),
      .unit_abort(unit_abort),
      .start(begins || begins_parked),
      .status(begins_parked ? 8'(LORA_OK) : status),
      .nothing(nothing && !begins_parked),
      .busy(busy),
      .abort_valid(run_abort),
      .command_valid(run_valid),
      .command_ready(run_ready),
      .done(run_done),
      .bad_index(adapts && verdict == adapter_types::BAD_SIZE),
      .nonfinite_count(nonfinite_count[which]),
      .nonfinite_row(nonfinite_row[which]),
      .line_refused((line_refused & run_units) != '0 || late_refused ||
                    (run_done && adapts && verdict == adapter_types::BAD_ADDRESS)),
      .line_error((line_error & run_units) != '0 || late_failed),
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
