// SPDX-License-Identifier: Apache-2.0
// The frequent vector operations, many columns a cycle: residual sums, quantizing by a static scale, RMSNorm, rotation of
// heads, SwiGLU, argmax, as the programs of vfu have them. Lines are read ahead (pipe_lines), a block of 32 columns goes
// through the columns in a few cycles, and its results are written behind it, in order. What folds a row to a few words
// reads and writes by itself (pipe_sums, pipe_maximum).
module vector_pipes
  import float_types::*;
  import vfu_types::*;
  import pipe_types::*;
#(
    parameter int COLUMNS = 16  // a cycle, 8 or 16; of SwiGLU half as many
) (
    input  logic          clk,
    input  logic          rst,
    input  logic          abort_valid,
    input  logic          command_valid,
    output logic          command_ready,
    input  pipe_command_t command,       // held until done
    output logic [6:0]    row,           // whose position is asked for, in the next cycle
    input  logic [31:0]   row_position,
    output logic          done,
    output logic [31:0]   nonfinite_count,
    output logic [31:0]   nonfinite_row,
    output logic          read_valid,
    input  logic          read_ready,
    output logic [5:0]    read_bank,
    output logic [31:0]   read_line,
    output logic [15:0]   read_tag,
    input  logic          line_valid,
    input  logic [15:0]   line_tag,
    input  logic [511:0]  line_data,
    output logic          write_valid,
    input  logic          write_ready,
    output logic [5:0]    write_bank,
    output logic [31:0]   write_line,
    output logic [63:0]   write_bytes,
    output logic [511:0]  write_data
);
  localparam int ACTIVE = COLUMNS / 2;
  typedef enum logic [2:0] {IDLE, ROW, FACTOR, GROUP, BLOCKS, FOLDING, DRAIN} state_t;
  state_t state;
  pipe_kind_t kind;
  assign kind = kind_of(command.op);
  logic rotates, sums_rows, folds, start;
  assign rotates = kind == ROTATES_HEADS;
  assign sums_rows = kind == SUMS;
  assign folds = sums_rows || kind == MAXIMUM;

  // --- memory --------------------------------------------------------------------------------------------------
  logic runs, clear, line_here, lines_valid, lines_ready, results_valid, results_ready;
  logic [31:0] lines_line;
  logic [5:0] lines_bank;
  logic [6:0] lines_tag;
  logic [511:0] result_data;
  // of what folds rows: what it asks of memory, and when a row or the last one is over
  typedef struct packed {
    logic         read_valid;
    logic [31:0]  read_line;
    logic [5:0]   read_tag;
    logic         write_valid;
    logic [31:0]  write_line;
    logic [63:0]  write_bytes;
    logic [511:0] write_data;
  } fold_t;
  fold_t by_sums, by_maximum, fold;
  assign fold = sums_rows ? by_sums : by_maximum;
  typedef struct packed {
    logic       finished;
    logic       bad_valid;
    logic [3:0] bad;
    logic [6:0] row;
  } row_end_t;
  row_end_t sums_end, maximum_end, row_end;
  assign row_end = sums_rows ? sums_end : maximum_end;
  logic ended;
  // until a command that was aborted is out of the pipes
  unit_port #(
      .CLEAR_CYCLES(256)
  ) memory_port (
      .clk(clk),
      .rst(rst),
      .abort_valid(abort_valid),
      .runs(runs),
      .clear(clear),
      .unit_read_valid(state == FOLDING ? fold.read_valid : lines_valid),
      .unit_read_ready(lines_ready),
      .unit_write_valid(state == FOLDING ? fold.write_valid : results_valid),
      .unit_write_ready(results_ready),
      .unit_line_valid(line_here),
      .read_valid(read_valid),
      .read_ready(read_ready),
      .line_valid(line_valid),
      .write_valid(write_valid),
      .write_ready(write_ready)
  );
  assign command_ready = runs && state == IDLE;
  assign start = command_valid && command_ready;
  assign done = ended && runs;

  // --- rows that become a few words -----------------------------------------------------------------------------
  pipe_sums sums (
      .clk(clk),
      .rst(clear),
      .start(start && kind == SUMS),
      .command(command),
      .finished(sums_end.finished),
      .bad_valid(sums_end.bad_valid),
      .bad(sums_end.bad),
      .row(sums_end.row),
      .read_valid(by_sums.read_valid),
      .read_ready(lines_ready && state == FOLDING && sums_rows),
      .read_line(by_sums.read_line),
      .read_tag(by_sums.read_tag),
      .line_valid(line_here && state == FOLDING && sums_rows),
      .line_tag(line_tag[5:0]),
      .line_data(line_data),
      .write_valid(by_sums.write_valid),
      .write_ready(results_ready && state == FOLDING && sums_rows),
      .write_line(by_sums.write_line),
      .write_bytes(by_sums.write_bytes),
      .write_data(by_sums.write_data)
  );
  pipe_maximum maximum (
      .clk(clk),
      .rst(clear),
      .start(start && kind == MAXIMUM),
      .command(command),
      .finished(maximum_end.finished),
      .bad_valid(maximum_end.bad_valid),
      .row(maximum_end.row),
      .read_valid(by_maximum.read_valid),
      .read_ready(lines_ready && state == FOLDING && !sums_rows),
      .read_line(by_maximum.read_line),
      .read_tag(by_maximum.read_tag),
      .line_valid(line_here && state == FOLDING && !sums_rows),
      .line_tag(line_tag[5:0]),
      .line_data(line_data),
      .write_valid(by_maximum.write_valid),
      .write_ready(results_ready && state == FOLDING && !sums_rows),
      .write_line(by_maximum.write_line),
      .write_bytes(by_maximum.write_bytes),
      .write_data(by_maximum.write_data)
  );
  assign maximum_end.bad = 4'd1;

  // --- lines ---------------------------------------------------------------------------------------------------
  logic [3:0][1:0] lines, here, used;
  logic [3:0] look_second;
  logic [3:0][511:0] data;
  always_comb begin
    lines = '0;
    lines[STREAM_X] = 2'd1;
    if (kind == ADDS || kind == ACTIVATES || rotates) lines[STREAM_Z] = 2'd1;
    if (kind == NORMS && command.has_a) lines[STREAM_A] = 2'd1;
    if (rotates) {lines[STREAM_B], lines[STREAM_A]} = {2'd2, 2'd2};
  end
  pipe_lines ahead (
      .clk(clk),
      .rst(clear),
      .start(start && !folds),
      .command(command),
      .kind(kind),
      .lines(lines),
      .row(row),
      .row_position(row_position),
      .read_valid(lines_valid),
      .read_ready(lines_ready && state != FOLDING),
      .read_bank(lines_bank),
      .read_line(lines_line),
      .read_tag(lines_tag),
      .line_valid(line_here && state != FOLDING),
      .line_tag(line_tag[6:0]),
      .line_data(line_data),
      .here(here),
      .second(look_second),
      .data(data),
      .used(used)
  );
  assign read_bank = state == FOLDING ? command.x_bank : lines_bank;
  assign read_line = state == FOLDING ? fold.read_line : lines_line;
  assign read_tag = state == FOLDING ? {10'd0, fold.read_tag} : {9'd0, lines_tag};

  // --- a norm's factor -----------------------------------------------------------------------------------------
  logic gemma, factor_start, factor_busy;
  logic [31:0] norm_factor, numerator, plus;
  assign gemma = command.one_plus && kind == NORMS;
  assign plus = gemma ? FLOAT_ONE : FLOAT_NEGATIVE_ZERO;
  assign numerator = command.op == VEC_RESIDUAL_SCALED ? command.scalar : gemma ? command.b_line : FLOAT_ONE;
  assign factor_start = state == ROW && kind == NORMS && here[STREAM_Z] != 2'd0;
  pipe_factor factor_of_row (
      .clk(clk),
      .rst(clear),
      .start(factor_start),
      .sums(data[STREAM_Z][255:0]),
      .columns(command.extra),
      .eps(command.scalar),
      .numerator(numerator),
      .busy(factor_busy),
      .factor(norm_factor)
  );

  // --- blocks: a beat a cycle ----------------------------------------------------------------------------------
  // A rotation passes a block twice: first for the head's first half, then for the second one.
  logic [6:0] block_row;
  logic [31:0] y_row, group_line, half_lines, group_lines, line, left, row_columns;
  logic [5:0] waiting;  // results that are not written
  logic [6:0] length;   // columns of the next one
  logic [2:0] beat, last_beat;
  logic second, begins, issues, block_ends, all_here;
  assign half_lines = {6'd0, command.head_dim[31:6]};
  assign group_lines = rotates ? half_lines : (command.columns + 32'd31) >> 5;
  assign last_beat = kind == ACTIVATES ? 3'(32 / ACTIVE - 1) : 3'(32 / COLUMNS - 1);
  always_comb begin
    all_here = 1'b1;
    for (int s = 0; s < 4; s++) if (here[s] < lines[s]) all_here = 1'b0;
  end
  assign begins = beat == 3'd0 && !second;
  assign issues = state == BLOCKS && (!begins || (all_here && waiting < 6'(AHEAD - 1)));
  assign block_ends = issues && beat == last_beat && (second || !rotates);
  assign used = block_ends ? lines : factor_start ? {2'd0, 2'd0, 2'd1, 2'd0} : '0;
  always_comb begin
    length = kind == QUANTIZES ? 7'd64 : 7'd32;
    if (!rotates && left < {25'd0, length}) length = left[6:0];
  end

  // where results belong: a line of a block, of bytes of two
  logic [4:0] told, formed, written;
  logic [5:0] formed_count;
  logic tells, result_taken, formed_now;
  pipe_result_t place[AHEAD];
  pipe_result_t place_told, place_formed, place_written;
  assign tells = issues && beat == 3'd0 && !(kind == QUANTIZES && line[0]);
  assign place_told = '{line: y_row + (kind == QUANTIZES ? line >> 1 : group_line + line + (second ? half_lines : 32'd0)),
                        length: length, alone: length <= 7'd32, row: block_row};
  assign place_formed = place[formed];
  assign place_written = place[written];
  always_ff @(posedge clk) begin
    if (tells) place[told] <= place_told;
    told <= told + {4'd0, tells};
    formed <= formed + {4'd0, formed_now};
    written <= written + {4'd0, result_taken};
    waiting <= waiting + {5'd0, tells} - {5'd0, result_taken};
    formed_count <= formed_count + {5'd0, formed_now} - {5'd0, result_taken};
    if (start || clear) {told, formed, written, waiting, formed_count} <= '0;
  end

  // --- columns -------------------------------------------------------------------------------------------------
  logic valid_1, valid_2, second_1, second_2;
  logic [COLUMNS-1:0][15:0] x_1, z_1;
  logic [COLUMNS-1:0][31:0] a_1, b_1, x_2, z_2, a_2, b_2;
  always_comb begin
    look_second = 4'd0;
    if (rotates) look_second[3:2] = {2{COLUMNS == 16 ? beat[0] : beat[1]}};
  end
  always_ff @(posedge clk) begin
    valid_1 <= issues;
    second_1 <= second;
    valid_2 <= valid_1;
    second_2 <= second_1;
    for (int i = 0; i < COLUMNS; i++) begin
      if (kind == ACTIVATES) begin
        x_1[i] <= data[STREAM_X][{beat, 4'd0} * ACTIVE + 16*(i % ACTIVE)+:16];
        z_1[i] <= data[STREAM_Z][{beat, 4'd0} * ACTIVE + 16*(i % ACTIVE)+:16];
      end else begin
        x_1[i] <= data[STREAM_X][{beat, 4'd0} * COLUMNS + 16*i+:16];
        z_1[i] <= data[STREAM_Z][{beat, 4'd0} * COLUMNS + 16*i+:16];
      end
      a_1[i] <= {16'd0, data[STREAM_A][{beat, 4'd0} * COLUMNS + 16*i+:16]};
      if (rotates) a_1[i] <= data[STREAM_A][(COLUMNS == 16 ? 0 : 256 * beat[0]) + 32*i+:32];
      b_1[i] <= data[STREAM_B][(COLUMNS == 16 ? 0 : 256 * beat[0]) + 32*i+:32];
      x_2[i] <= half_to_float(x_1[i]);
      z_2[i] <= half_to_float(z_1[i]);
      a_2[i] <= rotates ? a_1[i] : command.has_a ? half_to_float(a_1[i][15:0]) : FLOAT_ONE;
      b_2[i] <= b_1[i];
    end
  end
  logic [COLUMNS-1:0] result_valid, result_bad;
  logic [COLUMNS-1:0][15:0] result_half;
  logic [COLUMNS-1:0][7:0] result_eight;
  for (genvar i = 0; i < COLUMNS; i++) begin : columns
    logic silu_valid;
    logic [31:0] silu, up;
    if (i < ACTIVE) begin : activates
      logic [15:0] up_half;
      pipe_silu silu_of_column (
          .clk(clk),
          .valid(valid_2 && kind == ACTIVATES),
          .g(x_2[i]),
          .silu_valid(silu_valid),
          .silu(silu)
      );
      pipe_delay #(
          .WIDTH(16),
          .CYCLES(SILU_CYCLES + 1)
      ) delay_up (
          .clk(clk),
          .word(z_1[i]),
          .later(up_half)
      );
      assign up = half_to_float(up_half);
    end else begin : none
      assign {silu_valid, silu, up} = '0;
    end
    pipe_column column (
        .clk(clk),
        .kind(kind),
        .factor(kind == NORMS ? norm_factor : command.scalar),
        .numerator(numerator),
        .plus(plus),
        .valid(valid_2 && kind != ACTIVATES),
        .second(second_2),
        .x(x_2[i]),
        .z(z_2[i]),
        .a(a_2[i]),
        .b(b_2[i]),
        .silu_valid(silu_valid),
        .silu(silu),
        .up(up),
        .result_valid(result_valid[i]),
        .half(result_half[i]),
        .eight(result_eight[i]),
        .bad(result_bad[i])
    );
  end

  // --- results: beats become lines -----------------------------------------------------------------------------
  logic [511:0] shaped, shaped_next;
  logic [2:0] formed_beat, formed_last;
  logic [4:0] bad_now;
  logic [511:0] results[AHEAD];
  assign formed_last = kind == QUANTIZES && !place_formed.alone ? {last_beat[1:0], 1'b1} : last_beat;
  assign formed_now = result_valid[0] && formed_beat == formed_last;
  always_comb begin
    shaped_next = kind == ACTIVATES ? {result_half[ACTIVE-1:0], shaped[511:16*ACTIVE]}
        : {result_half, shaped[511:16*COLUMNS]};
    if (kind == QUANTIZES) begin
      shaped_next = {result_eight, shaped[511:8*COLUMNS]};
    end
    bad_now = 5'd0;
    for (int i = 0; i < COLUMNS; i++) begin
      if (kind == ACTIVATES) begin
        if (i < ACTIVE && result_bad[i] && 7'(formed_beat) * 7'(ACTIVE) + 7'(i) < place_formed.length)
          bad_now = bad_now + 5'd1;
      end else if (result_bad[i] && 7'(formed_beat) * 7'(COLUMNS) + 7'(i) < place_formed.length)
        bad_now = bad_now + 5'd1;
    end
  end
  assign results_valid = formed_count != 6'd0;
  assign result_taken = results_valid && results_ready && state != FOLDING;
  assign result_data = results[written];
  always_comb begin
    write_bank = state == FOLDING && sums_rows ? command.z_bank : command.y_bank;
    write_line = state == FOLDING ? fold.write_line : place_written.line;
    write_data = place_written.alone && kind == QUANTIZES ? {256'd0, result_data[511:256]} : result_data;
    write_bytes = ~(~64'd0 << (kind == QUANTIZES ? place_written.length : {place_written.length[5:0], 1'b0}));
    if (state == FOLDING) {write_bytes, write_data} = {fold.write_bytes, fold.write_data};
  end
  always_ff @(posedge clk) begin
    if (result_valid[0]) begin
      shaped <= shaped_next;
      formed_beat <= formed_now ? 3'd0 : formed_beat + 3'd1;
      if (formed_now) results[formed] <= shaped_next;
    end
    if (start || clear) formed_beat <= 3'd0;
  end

  // --- the command ---------------------------------------------------------------------------------------------
  logic counts, folded;
  assign folded = state == FOLDING && row_end.bad_valid;
  assign counts = folded ? row_end.bad != 4'd0 : result_valid[0] && bad_now != 5'd0;
  always_ff @(posedge clk) begin
    ended <= 1'b0;
    if (counts) begin
      nonfinite_count <= nonfinite_count + (folded ? {28'd0, row_end.bad} : {27'd0, bad_now});
      if (nonfinite_row == 32'hffffffff) nonfinite_row <= {25'd0, folded ? row_end.row : place_formed.row};
    end
    unique case (state)
      ROW: begin
        left <= command.columns;
        row_columns <= command.columns;
        group_line <= 32'd0;
        if (kind != NORMS) state <= GROUP;
        else if (factor_start) state <= FACTOR;
      end
      FACTOR: if (!factor_busy) state <= GROUP;
      GROUP: begin
        line <= 32'd0;
        {beat, second} <= '0;
        state <= BLOCKS;
      end
      BLOCKS:
      if (issues) begin
        beat <= beat + 3'd1;
        if (beat == last_beat) begin
          beat <= 3'd0;
          second <= rotates && !second;
        end
        if (block_ends) begin
          line <= line + 32'd1;
          left <= left - 32'd32;
          if (line + 32'd1 == group_lines) begin
            group_line <= group_line + (half_lines << 1);
            row_columns <= row_columns - command.head_dim;
            state <= GROUP;
            if (!rotates || row_columns == command.head_dim) begin
              block_row <= block_row + 7'd1;
              y_row <= y_row + {6'd0, command.y_stride[31:6]};
              // a norm's next factor waits until this one is out of the columns
              state <= block_row + 7'd1 == command.rows || kind == NORMS ? DRAIN : ROW;
            end
          end
        end
      end
      FOLDING:
      if (row_end.finished) begin
        ended <= 1'b1;
        state <= IDLE;
      end
      DRAIN:
      if (waiting == 6'd0) begin
        state <= ROW;
        if (block_row == command.rows) begin
          ended <= 1'b1;
          state <= IDLE;
        end
      end
      default: ;
    endcase
    if (start) begin
      nonfinite_count <= 32'd0;
      nonfinite_row <= 32'hffffffff;
      block_row <= 7'd0;
      y_row <= {6'd0, command.y_offset[31:6]};
      state <= folds ? FOLDING : ROW;
    end
    if (clear) begin
      state <= IDLE;
      ended <= 1'b0;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) if (!rst) begin
    assert (COLUMNS == 8 || COLUMNS == 16) else $fatal(1, "pipes of 8 or 16 columns");
    assert (!start || pipes_take(command)) else $fatal(1, "a command that pipes do not take");
    assert (clear || waiting <= 6'(AHEAD)) else $fatal(1, "more results than there is room for");
    assert (clear || !result_valid[0] || waiting > formed_count) else $fatal(1, "a result of no block");
  end
`endif
endmodule
