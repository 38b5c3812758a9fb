// SPDX-License-Identifier: Apache-2.0
// The vector unit: a LORA_CMD_VECTOR, row by row, group by group (vfu_types' shape_t), at most 32 columns
// at a time. Of these it reads what the operation needs, runs a program on it (vfu_program), and folds or
// writes what the program stored.
module vfu
  import float_types::*;
  import vfu_types::*;
  import vfu_program::*;
(
    input  logic         clk,
    input  logic         rst,
    input  logic         abort_valid,    // what runs; `command_ready` afterwards. There is no announce: see docs/rtl.md
    input  logic         command_valid,
    output logic         command_ready,
    // held until done, or until `command_ready` after an abort
    input  logic [7:0]   op,             // one of vfu_types' operations
    input  logic         has_a,          // tables: else a is 1, b adds nothing
    input  logic         has_b,
    input  logic         one_plus,       // RMSNorms: 1 + gamma, numerator in b_line
    input  logic [31:0]  columns,
    input  logic [6:0]   rows,           // at least 1
    input  logic [31:0]  head_dim,       // of operations on heads, which divides the columns
    input  logic [31:0]  count,          // of z's elements that are folded
    input  logic [31:0]  first,          // number of the first local column
    input  logic [31:0]  record,         // of the first group, in z
    input  logic [5:0]   x_bank,
    input  logic [31:0]  x_offset,       // bytes, and so are the next ones; at elements
    input  logic [31:0]  x_stride,
    input  logic [5:0]   z_bank,
    input  logic [31:0]  z_offset,
    input  logic [31:0]  z_stride,
    input  logic [5:0]   a_bank,
    input  logic [31:0]  a_line,
    input  logic [5:0]   b_bank,
    input  logic [31:0]  b_line,
    input  logic [5:0]   y_bank,
    input  logic [31:0]  y_offset,
    input  logic [31:0]  y_stride,
    input  logic [31:0]  scalar,
    input  logic [31:0]  extra,
    input  logic [5:0]   vector_bank,    // of rows that bring a vector
    // of the step's row that is asked for, in the next cycle
    output logic [6:0]   row,
    input  logic         row_is_vector,  // then row_token is the vector's offset in bytes
    input  logic [31:0]  row_token,
    input  logic [31:0]  row_position,
    output logic         done,
    output logic         bad_index,      // PERMUTE's table has one beyond the row
    output logic [31:0]  nonfinite_count,
    output logic [31:0]  nonfinite_row,  // ~0 none
    output logic         read_valid,
    input  logic         read_ready,
    output logic [5:0]   read_bank,
    output logic [31:0]  read_line,
    output logic [15:0]  read_tag,
    input  logic         line_valid,
    input  logic [15:0]  line_tag,
    input  logic [511:0] line_data,
    output logic         write_valid,
    input  logic         write_ready,
    output logic [5:0]   write_bank,
    output logic [31:0]  write_line,
    output logic [63:0]  write_bytes,
    output logic [511:0] write_data
);
  shape_t shape;
  vfu_operation operation (
      .op(op),
      .has_a(has_a),
      .has_b(has_b),
      .shape(shape)
  );
  logic gemma;
  logic [31:0] numerator, plus;
  assign gemma = one_plus && shape.is_norm && op != VEC_LN_APPLY;
  assign numerator = op == VEC_EMBED_SCALED || op == VEC_RESIDUAL_SCALED ? scalar : gemma ? b_line : FLOAT_ONE;
  assign plus = gemma ? FLOAT_ONE : FLOAT_NEGATIVE_ZERO;

  typedef enum logic [4:0] {
    IDLE, ROW, GROUP, SEGMENT, CHUNK, START, READ, RUN, GATHER, FOLD, WRITE, FOLDED, WRITTEN, NEXT_GROUP,
    NEXT_ROW, DONE
  } state_t;
  state_t state;
  phase_t phase;
  logic again;    // the second pass of folding and finishing
  logic [31:0] x_row, z_row, y_row;
  logic [37:0] a_row, b_row;
  logic [5:0] a_row_bank;
  logic [31:0] group, group_end;      // columns
  logic [3:0] segment;
  logic [31:0] column, column_end;    // of the group's columns, or of z's elements, that are left
  logic [31:0] number;                // of the group: where its record lies
  logic [5:0] length;                 // columns of this chunk
  logic [6:0] under_way;
  logic runs, clear, line_here;
  logic asks_read, read_taken, asks_write, write_taken;
  unit_port memory_port (
      .clk(clk),
      .rst(rst),
      .abort_valid(abort_valid),
      .runs(runs),
      .clear(clear),
      .unit_read_valid(asks_read),
      .unit_read_ready(read_taken),
      .unit_write_valid(asks_write),
      .unit_write_ready(write_taken),
      .unit_line_valid(line_here),
      .read_valid(read_valid),
      .read_ready(read_ready),
      .line_valid(line_valid),
      .write_valid(write_valid),
      .write_ready(write_ready)
  );
  assign command_ready = runs && state == IDLE;
  logic ended;
  assign done = ended && runs;

  // segments of a group, or of d
  logic [31:0] width, segment_first, segment_end;
  logic segment_here;
  assign width = shape.segments ? extra : head_dim;
  assign segment_first = segment_column(segment, width);
  assign segment_end = segment_column(segment + 4'd1, width);
  assign segment_here = segment_first != segment_end &&
      (!shape.segments || (segment_first >= first && segment_end - first <= columns));

  // streams and results
  place_t place;
  banks_t banks;
  addresses_t addresses;
  sizes_t sizes;
  logic [3:0] wanted;
  logic [37:0] y_address;
  logic [1:0] y_element;
  logic [31:0] half;
  logic folds, applies;
  assign folds = phase == FOLDS;
  assign applies = phase == APPLIES;
  assign half = head_dim >> 1;
  assign place = '{phase: phase, again: again, x_row: x_row, z_row: z_row, y_row: y_row, a_row: a_row, b_row: b_row,
                   group: group, segment: segment, column: column, number: number, length: length};
  vfu_addresses where (
      .shape(shape),
      .place(place),
      .half(half),
      .wide(extra[1]),
      .x_bank(x_bank),
      .z_bank(z_bank),
      .a_bank(a_row_bank),
      .b_bank(b_bank),
      .banks(banks),
      .addresses(addresses),
      .sizes(sizes),
      .wanted(wanted),
      .y_address(y_address),
      .y_element(y_element)
  );
  logic asks, stream_valid;
  logic [5:0] stream_bank;
  logic [31:0] stream_line;
  logic [3:0] stream_tag;
  logic [LANES-1:0][31:0] words, halves;
  instruction_t instruction;
  logic [2:0] beat;
  logic [5:0] gathered;  // of PERMUTE
  vfu_streams streams (
      .clk(clk),
      .rst(clear),
      .start(state == START),
      .wanted(wanted),
      .banks(banks),
      .addresses(addresses),
      .sizes(sizes),
      .busy(asks),
      .read_valid(stream_valid),
      .read_ready(read_taken),
      .read_bank(stream_bank),
      .read_line(stream_line),
      .read_tag(stream_tag),
      .line_valid(line_here && !line_tag[5]),
      .line_tag(line_tag[3:0]),
      .line_data(line_data),
      .stream(state == GATHER ? STREAM_A : instruction.b[1:0]),
      .op(state == GATHER ? OP_LOAD_SINGLE : instruction.op),
      .beat(state == GATHER ? gathered[4:2] : beat),
      .words(words),
      .halves(halves)
  );

  // PERMUTE: a read for each element
  logic gathers;
  logic [31:0] wanted_index, gather_address;
  logic [5:0] place_in_line[32];
  assign wanted_index = words[gathered[1:0]];
  assign gather_address = x_row + (extra[1] ? wanted_index << 1 : wanted_index);
  assign gathers = state == GATHER && gathered != length && wanted_index < columns;
  assign asks_read = stream_valid || gathers;
  assign read_bank = gathers ? x_bank : stream_bank;
  assign read_line = gathers ? {6'd0, gather_address[31:6]} : stream_line;
  assign read_tag = gathers ? {10'd0, 1'b1, gathered[4:0]} : {12'd0, stream_tag};
  logic [511:0] arrived;
  logic placed_valid;
  logic [4:0] placed_at;
  always_ff @(posedge clk) begin
    if (gathers) place_in_line[gathered[4:0]] <= gather_address[5:0];
    placed_valid <= line_here && line_tag[5];
    placed_at <= line_tag[4:0];
    if (line_here && line_tag[5]) arrived <= line_data;
    under_way <= under_way + {6'd0, asks_read && read_taken} - {6'd0, line_here};
    if (clear) under_way <= 7'd0;
  end

  // programs
  logic core_finished, stores_2;
  logic [2:0] beat_2;
  logic [3:0] rest;  // cycles of a row's begin
  logic [7:0][31:0] folded;
  logic [31:0] folded_index;
  scalars_t scalars;
  logic [LANES-1:0][31:0] loaded, stored;
  logic [LANES-1:0] stored_bad;
  always_comb begin
    scalars.folded = folded;
    scalars.index = folded_index;
    scalars.length = segment_end - segment_first;
    scalars.command = scalar;
    scalars.numerator = numerator;
    scalars.plus = plus;
    scalars.columns = extra;
  end
  for (genvar lane = 0; lane < LANES; lane++) begin : loads
    logic [4:0] e;
    assign e = {beat, 2'(lane)};
    always_comb begin
      if (instruction.op == OP_LENGTHS)
        loaded[lane] = e < 5'd8 ? segment_column({1'b0, e[2:0]} + 4'd1, extra) - segment_column({1'b0, e[2:0]}, extra)
            : 32'd0;
      else if (instruction.op != OP_LOAD_HALF) loaded[lane] = words[lane];
      else if (instruction.b[1:0] == STREAM_A && !has_a) loaded[lane] = FLOAT_ONE;
      else if (instruction.b[1:0] == STREAM_B && !has_b) loaded[lane] = shape.is_norm ? 32'd0 : FLOAT_NEGATIVE_ZERO;
      else loaded[lane] = halves[lane];
    end
  end
  logic all_here;
  assign all_here = !asks && under_way == 7'd0;
  vector_core core (
      .clk(clk),
      .rst(clear),
      .start(state == READ && all_here && !shape.permute),
      .at(phase == FOLDS ? (again ? shape.fold_again_at : shape.fold_at)
          : phase == FINISHES ? (again ? shape.finish_again_at : shape.finish_at)
          : phase == ROTATES ? AT_ROPE_HIGH : shape.apply_at),
      .last_divided(phase == FINISHES ? 3'd1 : 3'd7),  // sums have eight elements
      .scalars(scalars),
      .instruction(instruction),
      .beat(beat),
      // verilator lint_off PINCONNECTEMPTY
      .next_beat(),
      // verilator lint_on PINCONNECTEMPTY
      .loaded(loaded),
      .finished(core_finished),
      .stores(stores_2),
      .stored_beat(beat_2),
      .stored(stored),
      .stored_bad(stored_bad)
  );

  // maxima and scales are not counted, nor is what is folded
  logic counts;
  logic [31:0] bad_now;
  assign counts = phase == FINISHES ? shape.fold == FOLD_ADD || (shape.fold == FOLD_FIRST && columns != 32'd0)
      : phase != FOLDS;
  always_comb begin
    bad_now = 32'd0;
    for (int lane = 0; lane < LANES; lane++) begin
      if (stores_2 && counts && stored_bad[lane] && {1'b0, beat_2, 2'(lane)} < length) bad_now = bad_now + 32'd1;
    end
  end

  // where it goes
  logic [1023:0] values;
  logic writes;
  vfu_result result (
      .clk(clk),
      .rst(clear),
      .address(y_address),
      .element(y_element),
      .count(length),
      .store(stores_2),
      .beat(beat_2),
      .stored(stored),
      .place(placed_valid),
      .placed_at(placed_at),
      .placed(arrived[{place_in_line[placed_at], 3'd0}+:16]),
      .values(values),
      .start(state == WRITE),
      .busy(writes),
      .write_valid(asks_write),
      .write_ready(write_taken),
      .write_line(write_line),
      .write_bytes(write_bytes),
      .write_data(write_data)
  );
  assign write_bank = phase == FINISHES && !shape.record_in_y ? z_bank : y_bank;
  logic fold_busy;
  vfu_fold fold (
      .clk(clk),
      .rst(clear),
      .clear(state == GROUP || (state == WRITTEN && phase == FINISHES && !shape.fold_once)),
      .kind(shape.fold),
      .start(state == FOLD),
      .count(length),
      .segment(shape.tree ? segment[2:0] : 3'd0),
      .first(first + column),
      .values(values),
      .busy(fold_busy),
      .folded(folded),
      .index(folded_index)
  );

  logic [31:0] left;
  assign left = column_end - column;
  always_ff @(posedge clk) begin
    ended <= 1'b0;
    if (bad_now != 32'd0) begin
      nonfinite_count <= nonfinite_count + bad_now;
      if (nonfinite_row == 32'hffffffff) nonfinite_row <= {25'd0, row};
    end
    unique case (state)
      IDLE:
      if (command_valid && runs) begin
        state <= ROW;
        row <= 7'd0;
        x_row <= x_offset;
        z_row <= z_offset;
        y_row <= y_offset;
        nonfinite_count <= 32'd0;
        nonfinite_row <= 32'hffffffff;
        bad_index <= 1'b0;
        rest <= 4'd0;
      end
      ROW: begin  // the row's token and position are here in the next cycle
        rest <= rest + 4'd1;
        group <= 32'd0;
        number <= record;
        if (rest == 4'd1) begin
          a_row_bank <= shape.by_token && row_is_vector ? vector_bank : a_bank;
          if (shape.by_token && row_is_vector) a_row <= {6'd0, row_token};
          else if (shape.by_token) a_row <= {a_line + row_token * ((columns + 32'd31) >> 5), 6'd0};
          else if (shape.rotate) a_row <= {a_line + row_position * ((extra + 32'd15) >> 4), 6'd0};
          else a_row <= {a_line, 6'd0};
          b_row <= {b_line + (shape.by_position ? (row_position + extra) * ((columns + 32'd31) >> 5) : 32'd0), 6'd0};
          state <= GROUP;
        end
      end
      GROUP: begin
        group_end <= shape.heads ? group + head_dim : columns;
        segment <= 4'd0;
        again <= 1'b0;
        column <= shape.fold_z ? 32'd0 : group;
        column_end <= shape.fold_z ? count : shape.heads ? group + head_dim : columns;
        phase <= FOLDS;
        if (shape.heads && group == columns) state <= NEXT_ROW;
        else if (shape.segments || shape.tree) state <= SEGMENT;
        else if (shape.fold != FOLD_NONE) state <= CHUNK;
        else state <= FOLDED;
      end
      SEGMENT: begin
        column <= shape.segments ? segment_first - first : group + segment_first;
        column_end <= shape.segments ? segment_end - first : group + segment_end;
        phase <= FOLDS;
        again <= 1'b0;
        if (segment == 4'd8) state <= shape.segments ? NEXT_ROW : FOLDED;
        else if (segment_here) state <= CHUNK;
        else segment <= segment + 4'd1;
      end
      CHUNK: begin
        length <= left < 32'd32 ? left[5:0] : 6'd32;
        if (left == 32'd0) begin
          state <= applies ? NEXT_GROUP : FOLDED;
          if (folds && shape.tree) begin
            segment <= segment + 4'd1;
            state <= SEGMENT;
          end
        end else state <= START;
      end
      FOLDED: begin
        phase <= shape.finish ? FINISHES : APPLIES;
        length <= 6'd1;
        state <= START;
        if (!shape.finish) begin
          column <= group;
          column_end <= shape.rotate ? group + half : group_end;
          state <= CHUNK;
        end
      end
      START: state <= READ;
      READ:
      if (all_here) begin
        gathered <= 6'd0;
        state <= shape.permute ? GATHER : RUN;
      end
      RUN: if (core_finished) state <= folds ? FOLD : phase == FINISHES && !shape.records ? WRITTEN : WRITE;
      GATHER: begin
        if (gathered != length) begin
          if (wanted_index >= columns) begin
            bad_index <= 1'b1;
            gathered <= length;
          end else if (read_taken) gathered <= gathered + 6'd1;
        end else if (under_way == 7'd0 && !placed_valid && !line_here) state <= bad_index ? DONE : WRITE;
      end
      FOLD: state <= WRITTEN;
      WRITE: state <= WRITTEN;
      WRITTEN:
      if (!writes && !fold_busy) begin
        state <= CHUNK;
        unique case (phase)
          FOLDS: column <= column + {26'd0, length};
          FINISHES:
          if (shape.twice && !again) begin
            again <= 1'b1;
            column <= segment_first - first;
            phase <= FOLDS;
            if (shape.fold_once) begin
              phase <= FINISHES;
              state <= START;
            end
          end else if (shape.segments) begin
            segment <= segment + 4'd1;
            state <= SEGMENT;
          end else begin
            phase <= APPLIES;
            column <= group;
            column_end <= shape.rotate ? group + half : group_end;
            state <= shape.apply ? CHUNK : NEXT_GROUP;
          end
          APPLIES:
          if (shape.rotate) begin
            phase <= ROTATES;
            state <= START;
          end else column <= column + {26'd0, length};
          default: begin
            phase <= APPLIES;
            column <= column + {26'd0, length};
          end
        endcase
      end
      NEXT_GROUP: begin
        group <= group_end;
        number <= number + 32'd1;
        state <= shape.heads && group_end != columns ? GROUP : NEXT_ROW;
      end
      NEXT_ROW: begin
        row <= row + 7'd1;
        x_row <= x_row + x_stride;
        z_row <= z_row + z_stride;
        y_row <= y_row + y_stride;
        rest <= 4'd0;
        state <= row + 7'd1 == rows ? DONE : ROW;
      end
      DONE: begin
        ended <= 1'b1;
        state <= IDLE;
      end
      default: state <= IDLE;
    endcase
    if (clear) begin
      state <= IDLE;
      ended <= 1'b0;
    end
  end
endmodule
