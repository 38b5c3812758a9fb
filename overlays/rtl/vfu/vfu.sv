// The vector unit: a LORA_CMD_VECTOR, row by row, 32 columns at a time. It reads the lines that an
// operation needs, runs the operation's program on them (vfu_program) and writes what it stored. Norms
// run a program on the row's sums first. Lines may come back in any order: each brings its tag.
module vfu
  import float_types::*;
  import vfu_types::*;
  import vfu_program::*;
(
    input  logic         clk,
    input  logic         rst,
    input  logic         command_valid,
    output logic         command_ready,
    // held until done
    input  logic [7:0]   op,             // one of vfu_types' operation
    input  logic         has_a,          // tables: else a is 1, b adds nothing
    input  logic         has_b,
    input  logic         one_plus,       // RMS_APPLY: 1 + gamma, numerator in b_line
    input  logic [31:0]  columns,        // at least 1
    input  logic [6:0]   rows,           // at least 1
    input  logic [5:0]   x_bank,
    input  logic [31:0]  x_line,
    input  logic [31:0]  x_stride,       // lines, and so are the others
    input  logic [5:0]   z_bank,
    input  logic [31:0]  z_line,
    input  logic [31:0]  z_stride,
    input  logic [5:0]   a_bank,
    input  logic [31:0]  a_line,
    input  logic [5:0]   b_bank,
    input  logic [31:0]  b_line,
    input  logic [5:0]   y_bank,
    input  logic [31:0]  y_line,
    input  logic [31:0]  y_stride,
    input  logic [31:0]  scalar,
    input  logic [31:0]  extra,
    // of the step's row that is asked for, in the next cycle
    output logic [6:0]   row,
    input  logic [31:0]  row_token,
    input  logic [31:0]  row_position,
    output logic         done,
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
  logic [8:0] program_row, program_line;  // the first is for a row's sums; all ones: none
  logic [4:0] reads;  // x, x as FP32, z, table a, table b
  logic [1:0] element;  // of y: 0 FP16, 1 FP32, 2 INT8
  logic is_norm, by_token;
  logic [31:0] numerator, plus;
  vfu_operation operation (
      .op(op),
      .has_a(has_a),
      .has_b(has_b),
      .program_row(program_row),
      .program_line(program_line),
      .reads(reads),
      .element(element),
      .by_token(by_token),
      .is_norm(is_norm)
  );
  assign numerator = op == VEC_EMBED_SCALED || op == VEC_RESIDUAL_SCALED ? scalar
      : one_plus && op == VEC_RMS_APPLY ? b_line : FLOAT_ONE;
  assign plus = one_plus && op == VEC_RMS_APPLY ? FLOAT_ONE : FLOAT_NEGATIVE_ZERO;

  typedef enum logic [3:0] {IDLE, ROW, SUMS, CHUNK, READ, ARRIVE, FETCH, ISSUE, DIVIDE, DIVIDING, DRAIN, WRITE, DONE} state_t;
  state_t state;
  logic [31:0] x_row, z_row, y_row, a_row, b_row, chunk, left, row_lines;
  logic in_sums;  // the row's program runs
  logic [2:0] place;      // of the line that is asked for
  logic [5:0] wanted;     // lines still to ask for
  logic [2:0] under_way;
  logic last_chunk, last_row;
  logic [511:0] lines[6];
  assign row_lines = (columns + 32'd31) >> 5;
  assign left = columns - {chunk[26:0], 5'd0};
  assign last_chunk = left <= 32'd32;
  assign last_row = row + 7'd1 == rows;
  assign command_ready = state == IDLE;

  // reading
  always_comb begin
    place = 3'd0;
    for (int i = 5; i >= 0; i--) if (wanted[i]) place = 3'(i);
    read_bank = x_bank;
    read_line = x_row + (reads[1] ? {chunk[30:0], 1'b0} : chunk);
    unique case (place)
      3'd1: read_line = x_row + {chunk[30:0], 1'b1};
      LINE_OF_Z, LINE_OF_SUMS: begin
        read_bank = z_bank;
        read_line = z_row + chunk;
      end
      LINE_OF_A: begin
        read_bank = a_bank;
        read_line = a_row + chunk;
      end
      LINE_OF_B: begin
        read_bank = b_bank;
        read_line = b_row + chunk;
      end
      default: ;
    endcase
  end
  assign read_valid = state == READ && wanted != 6'd0;
  assign read_tag = {13'd0, place};
  always_ff @(posedge clk) begin
    if (line_valid) lines[line_tag[2:0]] <= line_data;
    under_way <= under_way + {2'd0, read_valid && read_ready} - {2'd0, line_valid};
    if (state == CHUNK) begin
      if (!reads[3]) lines[LINE_OF_A] <= {32{16'h3c00}};
      if (!reads[4]) lines[LINE_OF_B] <= {32{is_norm ? 16'h0000 : 16'h8000}};
    end
    if (rst) under_way <= 3'd0;
  end

  // the program
  logic [8:0] pc;
  instruction_t instruction;
  logic [2:0] beat, last_divided;
  logic [3:0] drain;
  logic issue, divide_start, divide_write, divide_busy;
  logic [31:0] kept_scalar[4];
  function automatic instruction_t fetched(input logic [8:0] at);
    return instruction_t'(PROGRAM[at]);
  endfunction
  function automatic logic [31:0] constant(input logic [5:0] index);
    return CONSTANTS[index[4:0]];
  endfunction
  logic [31:0] scalar_a, scalar_b;
  always_comb begin
    scalar_a = instruction.a[5:0] < SCALAR_COMMAND ? constant(instruction.a[5:0]) : runtime(instruction.a[2:0]);
    scalar_b = instruction.b[5:0] < SCALAR_COMMAND ? constant(instruction.b[5:0]) : runtime(instruction.b[2:0]);
  end
  function automatic logic [31:0] runtime(input logic [2:0] index);
    unique case (index)
      3'd0: return scalar;
      3'd1: return numerator;
      3'd2: return plus;
      3'd3: return extra;
      default: return kept_scalar[index[1:0]];
    endcase
  endfunction
  assign issue = state == ISSUE || state == DIVIDE;
  assign last_divided = in_sums ? 3'd1 : 3'd7;  // sums have eight elements

  // segments of a row of `extra` columns
  function automatic logic [31:0] segment_column(input logic [3:0] s, input logic [31:0] d);
    logic [31:0] units, start;
    units = (d + 32'd31) >> 5;
    start = ((32'(s) * units) >> 3) << 5;
    return start < d ? start : d;
  endfunction

  logic [31:0] read_a[LANES], read_b[LANES], loaded[LANES], kept[LANES], stored[LANES];
  logic [LANES-1:0] stored_bad, busy;
  logic [2:0] turn;  // how far elements are rotated
  assign turn = instruction.op == OP_ROTATE_1 ? 3'd1 : instruction.op == OP_ROTATE_2 ? 3'd2
      : instruction.op == OP_ROTATE_4 ? 3'd4 : 3'd0;
  assign divide_busy = busy[0];
  for (genvar lane = 0; lane < LANES; lane++) begin : lanes
    logic [1:0] from;
    logic [2:0] a_beat, ahead;
    logic [4:0] e;
    logic [511:0] line, line_after;
    logic [31:0] length, chord_word;
    logic [10:0] chord_place;
    logic chord_shift;
    assign chord_word = chord_shift ? GELU_SHIFTS[chord_place] : GELU_SLOPES[chord_place];
    assign from = 2'(lane) + turn[1:0];
    assign ahead = 3'(lane) - {1'b0, turn[1:0]};  // negative: of the next beat
    assign a_beat = beat + {2'd0, turn[2] || ahead[2]};
    assign e = {beat, 2'(lane)};
    assign line = lines[instruction.b[2:0]];
    assign line_after = lines[LINE_OF_X+1];
    assign length = e < 5'd8 ? segment_column({1'b0, e[2:0]} + 4'd1, extra) - segment_column({1'b0, e[2:0]}, extra) : 32'd0;
    always_comb begin
      unique case (instruction.op)
        OP_LOAD_HALF: loaded[lane] = half_to_float(line[16*e+:16]);
        OP_LOAD_SINGLE: loaded[lane] = e[4] ? line_after[32*e[3:0]+:32] : line[32*e[3:0]+:32];
        OP_LOAD_PAIR: loaded[lane] = line[64*e[2:0]+:32];
        OP_LOAD_ODD: loaded[lane] = line[64*e[2:0]+32+:32];
        default: loaded[lane] = length;
      endcase
    end
    vector_lane one (
        .clk(clk),
        .rst(rst),
        .issue(issue),
        .instruction(instruction),
        .beat(beat),
        .a_beat(a_beat),
        .read_a(read_a[lane]),
        .read_b(read_b[lane]),
        .a(instruction.a[6] ? scalar_a : read_a[from]),
        .b(instruction.b[6] ? scalar_b : read_b[lane]),
        .loaded(loaded[lane]),
        .chord_place(chord_place),
        .chord_shift(chord_shift),
        .chord_word(chord_word),
        .divide_start(divide_start),
        .divide_write(divide_write),
        .divide_busy(busy[lane]),
        .kept(kept[lane]),
        .stored(stored[lane]),
        .stored_bad(stored_bad[lane])
    );
  end
  assign divide_start = state == DIVIDING && drain == 4'd0;
  assign divide_write = state == DIVIDING && drain != 4'd0 && drain != 4'd1 && !divide_busy;

  // what is stored, two cycles after issue
  logic stores_1, stores_2, keeps_1;
  logic [2:0] beat_1, beat_2;
  logic [1:0] keep_to_1;
  logic [1023:0] out;
  logic [31:0] bad_now;
  logic high;
  always_comb begin
    bad_now = 32'd0;
    for (int lane = 0; lane < LANES; lane++) begin
      if (stores_2 && stored_bad[lane] && {27'd0, beat_2, 2'(lane)} < left) bad_now = bad_now + 32'd1;
    end
  end
  always_ff @(posedge clk) begin
    stores_1 <= state == ISSUE && (instruction.op == OP_STORE_HALF || instruction.op == OP_STORE_SINGLE ||
                                   instruction.op == OP_STORE_INT8);
    stores_2 <= stores_1;
    keeps_1 <= state == ISSUE && instruction.op == OP_KEEP && beat == 3'd0;
    keep_to_1 <= instruction.to[1:0];
    beat_1 <= beat;
    beat_2 <= beat_1;
    if (keeps_1) kept_scalar[keep_to_1] <= kept[0];
    if (stores_2) begin
      for (int lane = 0; lane < LANES; lane++) begin
        if (element == 2'd1) out[128*beat_2+32*lane+:32] <= stored[lane];
        else if (element == 2'd2) out[{1'b0, chunk[0], beat_2, 5'd0} + 10'(8*lane)+:8] <= stored[lane][7:0];
        else out[{1'b0, beat_2, 6'd0} + 10'(16*lane)+:16] <= stored[lane][15:0];
      end
    end
  end

  // writing: bytes of the columns that there are
  logic [127:0] bytes;
  logic [7:0] count;
  assign count = last_chunk ? left[7:0] : 8'd32;
  always_comb begin
    bytes = ~(~128'd0 << (element == 2'd1 ? count << 2 : element == 2'd2 ? count : count << 1));
    if (element == 2'd2 && chunk[0]) bytes = bytes << 32;
  end
  assign write_valid = state == WRITE;
  assign write_bank = y_bank;
  assign write_line = y_row + (element == 2'd1 ? {chunk[30:0], high} : element == 2'd2 ? chunk >> 1 : chunk);
  assign write_bytes = high ? bytes[127:64] : bytes[63:0];
  assign write_data = high ? out[1023:512] : out[511:0];
  logic written;
  assign written = state == WRITE && write_ready && (element != 2'd1 || high || bytes[127:64] == 64'd0);

  always_ff @(posedge clk) begin
    done <= 1'b0;
    if (bad_now != 32'd0) begin
      nonfinite_count <= nonfinite_count + bad_now;
      if (nonfinite_row == 32'hffffffff) nonfinite_row <= {25'd0, row};
    end
    unique case (state)
      IDLE:
      if (command_valid) begin
        state <= ROW;
        row <= 7'd0;
        x_row <= x_line;
        z_row <= z_line;
        y_row <= y_line;
        nonfinite_count <= 32'd0;
        nonfinite_row <= 32'hffffffff;
        drain <= 4'd0;
      end
      ROW: begin  // the row's token and position are here in the next cycle
        chunk <= 32'd0;
        drain <= drain + 4'd1;
        if (drain == 4'd1) begin
          a_row <= a_line + (by_token ? row_token * row_lines : 32'd0);
          b_row <= b_line + (is_norm ? 32'd0 : (row_position + extra) * row_lines);
          in_sums <= is_norm;
          state <= is_norm ? SUMS : CHUNK;
        end
      end
      SUMS: begin
        wanted <= 6'd1 << LINE_OF_SUMS;
        pc <= program_row;
        state <= READ;
      end
      CHUNK: begin
        in_sums <= 1'b0;
        wanted <= {1'b0, reads[4], reads[3], reads[2], reads[1] && left > 32'd16, reads[0]};
        pc <= program_line;
        state <= READ;
      end
      READ: begin
        if (read_ready && wanted != 6'd0) wanted <= wanted & (wanted - 6'd1);
        if (wanted == 6'd0) state <= ARRIVE;
      end
      ARRIVE: if (under_way == 3'd0) state <= FETCH;
      FETCH: begin
        instruction <= fetched(pc);
        pc <= pc + 9'd1;
        beat <= 3'd0;
        drain <= 4'd0;
        state <= follow(fetched(pc));
      end
      ISSUE: begin
        beat <= beat + 3'd1;
        if (beat == 3'd7) begin
          instruction <= fetched(pc);
          pc <= pc + 9'd1;
          state <= follow(fetched(pc));
        end
      end
      DIVIDE: begin  // these operands
        state <= DIVIDING;
        drain <= 4'd0;
      end
      DIVIDING: begin
        if (drain != 4'd2) drain <= drain + 4'd1;
        if (divide_write) begin
          drain <= 4'd0;
          beat <= beat + 3'd1;
          state <= DIVIDE;
          if (beat == last_divided) state <= FETCH;
        end
      end
      DRAIN: begin
        drain <= drain + 4'd1;
        if (drain == 4'd8) begin
          high <= 1'b0;
          state <= in_sums ? CHUNK : WRITE;
        end
      end
      WRITE:
      if (write_ready) begin
        high <= !high;
        if (written) begin
          high <= 1'b0;
          chunk <= chunk + 32'd1;
          state <= CHUNK;
          if (last_chunk) begin
            row <= row + 7'd1;
            x_row <= x_row + x_stride;
            z_row <= z_row + z_stride;
            y_row <= y_row + y_stride;
            drain <= 4'd0;
            state <= last_row ? DONE : ROW;
          end
        end
      end
      DONE: begin
        done <= 1'b1;
        state <= IDLE;
      end
      default: state <= IDLE;
    endcase
    if (rst) begin
      state <= IDLE;
      done <= 1'b0;
    end
  end
  function automatic state_t follow(input instruction_t next);
    if (next.op == OP_END) return DRAIN;
    return next.op == OP_DIVIDE || next.op == OP_ROOT ? DIVIDE : ISSUE;
  endfunction
endmodule
