// SPDX-License-Identifier: Apache-2.0
// Attention: a LORA_CMD_ATTENTION, row by row, query head by query head (docs/numbers.md, 3.8 and 6.6). Tile by
// tile it scores the positions that the row sees, then it weighs them: committed positions by the page table,
// then the slots of the row's path. A tile of 32 positions may have both.
module attention
  import attention_types::*;
  import vfu_types::*;
  import vfu_program::*;
#(
    parameter int TILES = 4096  // scores that fit; a power of two
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         abort_valid,    // what runs; `command_ready` afterwards. There is no announce: see docs/rtl.md
    input  logic         command_valid,
    output logic         command_ready,
    // held until done, or until `command_ready` after an abort
    input  logic [1:0]   kind,            // enum lora_kv_type
    input  logic [8:0]   head_dim,        // at most 256; even where K and V are INT8
    input  logic [6:0]   rows,
    input  logic [15:0]  q_heads,
    input  logic [15:0]  q_first,
    input  logic [15:0]  kv_first,
    input  logic [15:0]  group,
    input  logic [5:0]   onchip_bank,
    input  logic [31:0]  q_offset,        // bytes, and so are the next three
    input  logic [31:0]  q_stride,
    input  logic [31:0]  y_offset,
    input  logic [31:0]  y_stride,
    input  logic [31:0]  scale,           // FP32, and so is the next
    input  logic [31:0]  v_scale,
    input  logic [31:0]  cap,
    input  logic [31:0]  window,
    input  logic [1:0]   slope_kind,
    input  logic [5:0]   slope_bank,
    input  logic [31:0]  slope_line,
    // the list's
    input  logic [15:0]  kv_layers,
    input  logic [15:0]  kv_heads,
    input  logic [15:0]  kv_layer,
    input  logic [5:0]   kv_bank_first,
    input  logic [5:0]   kv_bank_count,
    input  logic [31:0]  kv_line,
    input  logic [16:0]  spill_page,
    input  logic [5:0]   spill_bank_first,
    input  logic [5:0]   spill_bank_count,
    input  logic [31:0]  spill_line,
    input  logic [5:0]   table_bank,
    input  logic [31:0]  table_line,
    input  logic [16:0]  max_tiles,
    // of the step: of the row and of the slot that are asked for, in the next cycle
    output logic [6:0]   row,
    input  logic [15:0]  row_sequence,
    input  logic [17:0]  row_committed,
    input  logic [6:0]   row_slot,
    output logic [6:0]   slot,
    input  logic         slot_is_last,    // its parent is committed
    input  logic [6:0]   slot_parent,
    output logic         done,
    output logic [31:0]  nonfinite_count,
    output logic [31:0]  nonfinite_row,   // ~0 none
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
  layout_t layout;
  assign layout = '{kind: kind, head_dim: head_dim, layers: kv_layers, heads: kv_heads, layer: kv_layer,
                    bank_first: kv_bank_first, bank_count: kv_bank_count, line: kv_line, spill_page: spill_page,
                    spill_bank_first: spill_bank_first, spill_bank_count: spill_bank_count,
                    spill_line: spill_line};
  logic integers;
  logic [3:0] groups;
  assign integers = kind == KV_INT8;
  assign groups = 4'((head_dim + 9'd31) >> 5);

  typedef enum logic [5:0] {
    IDLE, SPLIT, ROW, WALK, WALKED, HEAD, SLOPE, BEGIN, TILE, TABLE, PLACE, PLACING, BURST, SCORE, SCORED, SLOTS, MOVE,
    MOVED, CAP, BIAS, MAXIMA, FOUND, WEIGHTS, COMMITTED, WEIGH, WEIGHED, PATH, SUMS, ADD, ADDED, TAKE, TAKEN, NEXT_TILE,
    TOTAL, QUOTIENT, WRITE, WRITTEN, NEXT_HEAD, NEXT_ROW, DONE, RUN, RUNNING
  } state_t;
  state_t state, then, after;  // `then`: with the block or the lines here; `after` a program
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

  // the row
  logic [1:0] rest;
  logic [15:0] sequence_number;
  logic [17:0] committed, count, first;
  logic [7:0] depth;
  logic [6:0] path[128];  // the row's slot first
  logic [31:0] q_row, y_row, q_head, y_head;
  // the head
  logic [15:0] head, kv_head, kv_start, of_group, of_start;
  logic [31:0] slope, factor;
  logic [3:0] raw_there;  // scores of scratch pages
  // the tile
  logic weighs;           // the second pass
  logic [11:0] tile;
  logic [17:0] base, ends, from, p, p_start;
  logic last_tile, chunk_ends;
  logic fresh, chunk_fresh, all_fresh, poisoned;
  logic of_slot;          // the block is a scratch page's
  logic [3:0] g;
  logic [4:0] vector;     // of g
  assign base = {1'b0, tile, 5'd0};
  assign ends = base + 18'd31 < count - 18'd1 ? base + 18'd31 : count - 18'd1;  // last position seen
  assign from = base > first ? base : first;
  assign p_start = from > committed ? from : committed;
  assign last_tile = ends == count - 18'd1;
  assign chunk_ends = tile[6:0] == 7'd127 || last_tile;
  logic [17:0] committed_ends;
  assign committed_ends = ends < committed ? ends : committed - 18'd1;
  logic [7:0] from_last;  // along the path
  logic [6:0] p_slot;
  assign from_last = 8'(count - 18'd1 - p);
  assign p_slot = path[from_last[6:0]];
  logic [31:0] seen;
  for (genvar i = 0; i < 32; i++) begin : sees
    assign seen[i] = base + i >= {1'b0, first} && base + i < {1'b0, count};
  end

  // table of pages, and blocks
  logic table_there, block_there, block_values;
  logic [6:0] table_part;
  logic [31:0][15:0] table_data;
  logic [15:0] page, block_page;
  logic place_busy;
  logic [5:0] block_bank;
  logic [31:0] block_line;
  kv_place place (
      .clk(clk),
      .rst(clear),
      .start(state == PLACE),
      .layout(layout),
      .page(page),
      .head(kv_head),
      .values(weighs),
      .busy(place_busy),
      .bank(block_bank),
      .line(block_line)
  );

  // reading
  line_kind_t read_kind;
  logic [8:0] asked, wanted, arrived;
  assign asks_read = state == BURST && asked != wanted;
  assign read_tag = {4'd0, read_kind, asked};
  logic of_block, of_q;
  line_kind_t line_kind;
  assign line_kind = line_kind_t'(line_tag[11:9]);
  assign of_block = line_here && line_kind == LINE_BLOCK;
  assign of_q = line_here && line_kind == LINE_Q;

  // products
  logic sums_busy, sum_valid;
  logic [2:0] sum_slot, sum_beat;
  logic [3:0][31:0] sums;
  logic [31:0] sum_e;
  logic [LANES-1:0][31:0] stored;
  logic [LANES-1:0] stored_bad;
  logic [3:0][15:0] weights;
  logic stores, program_done;
  logic [2:0] stored_beat;
  typedef enum logic [1:0] {TO_MEMORY, TO_WEIGHTS, TO_RESULT} target_t;
  target_t to;
  for (genvar i = 0; i < 4; i++) begin : weight
    assign weights[i] = stored[i][15:0];
  end
  kv_sums products (
      .clk(clk),
      .rst(clear),
      .layout(layout),
      .block_valid(of_block),
      .q_valid(of_q),
      .line_where(line_tag[8:0]),
      .line_data(line_data),
      .q_begin(q_head[5:0]),
      .weight_valid(stores && to == TO_WEIGHTS),
      .weight_beat(stored_beat),
      .weights(weights),
      .score(state == SCORE),
      .weigh(state == WEIGH),
      .read_sums(state == SUMS),
      .row(of_slot ? p_slot[4:0] : from[4:0]),
      .position(of_slot ? p[4:0] : from[4:0]),
      .count(of_slot ? 6'd1 : 6'(committed_ends - from + 18'd1)),
      .first(fresh),
      .busy(sums_busy),
      .sum_valid(sum_valid),
      .sum_slot(sum_slot),
      .sum_beat(sum_beat),
      .sums(sums),
      .sum_e(sum_e)
  );

  // programs
  logic [8:0] at;
  logic source_small, source_zero, target_small, finds;
  logic [11:0] source, target;
  logic [31:0] command;
  attention_vectors #(
      .TILES(TILES)
  ) vectors (
      .clk(clk),
      .rst(clear),
      .sum_valid(sum_valid),
      .sum_slot(sum_slot),
      .sum_beat(sum_beat),
      .sums(sums),
      .sum_e(sum_e),
      .start(state == RUN),
      .at(at),
      .source_small(source_small),
      .source(source),
      .source_zero(source_zero),
      .group(g),
      .command(command),
      .numerator(slope),
      .plus(factor),
      .rounded_positions(slope_kind != SLOPE_DISTANCE),
      .position(base),
      .last_position(count - 18'd1),
      .to_memory(to == TO_MEMORY),
      .target_small(target_small),
      .target(target),
      .finished(program_done),
      .stores(stores),
      .stored_beat(stored_beat),
      .stored(stored),
      .stored_bad(stored_bad),
      .move(state == MOVE),
      .move_from(p_slot),
      .move_to(p[4:0]),
      .clear_maximum(state == BEGIN),
      .find_maximum(state == MAXIMA),
      .seen(seen),
      .finds(finds),
      // verilator lint_off PINCONNECTEMPTY
      .maximum()
      // verilator lint_on PINCONNECTEMPTY
  );

  // results
  logic writes;
  logic [5:0] columns;
  logic [31:0] bad_now;
  assign columns = g == groups - 4'd1 ? 6'(head_dim - {1'b0, g[2:0], 5'd0}) : 6'd32;
  assign write_bank = onchip_bank;
  vfu_result result (
      .clk(clk),
      .rst(clear),
      .address({6'd0, y_head + {23'd0, g[2:0], 6'd0}}),
      .element(ELEMENT_HALF),
      .count(columns),
      .store(stores && to == TO_RESULT),
      .beat(stored_beat),
      .stored(stored),
      .place(1'b0),
      .placed_at(5'd0),
      .placed(16'd0),
      // verilator lint_off PINCONNECTEMPTY
      .values(),
      // verilator lint_on PINCONNECTEMPTY
      .start(state == WRITE),
      .busy(writes),
      .write_valid(asks_write),
      .write_ready(write_taken),
      .write_line(write_line),
      .write_bytes(write_bytes),
      .write_data(write_data)
  );
  always_comb begin
    bad_now = 32'd0;
    for (int i = 0; i < LANES; i++)
      if (stores && to == TO_RESULT && stored_bad[i] && {1'b0, stored_beat, 2'(i)} < columns) bad_now = bad_now + 32'd1;
  end

  // the program of each state
  assign vector = g == GROUP_E || g == groups ? {1'b0, GROUP_E} : {1'b0, g};
  always_ff @(posedge clk) begin
    if (bad_now != 32'd0) begin
      nonfinite_count <= nonfinite_count + bad_now;
      if (nonfinite_row == 32'hffffffff) nonfinite_row <= {25'd0, row};
    end
    if (stores && to == TO_WEIGHTS && integers) begin
      for (int i = 0; i < LANES; i++) if (stored_bad[i] && seen[{stored_beat, 2'(i)}]) poisoned <= 1'b1;
    end
    if (line_here) begin
      arrived <= arrived + 9'd1;
      if (line_kind == LINE_TABLE) table_data <= line_data;
      if (line_kind == LINE_SLOPE) {factor, slope} <= line_data[{head[2:0], 6'd0}+:64];
    end
    if (asks_read && read_taken) begin
      asked <= asked + 9'd1;
      read_line <= read_line + 32'd1;
    end
    ended <= 1'b0;
    unique case (state)
      IDLE:
      if (command_valid && runs) begin
        state <= SPLIT;
        row <= 7'd0;
        q_row <= q_offset;
        y_row <= y_offset;
        of_start <= q_first;
        kv_start <= 16'd0 - kv_first;
        nonfinite_count <= 32'd0;
        nonfinite_row <= 32'hffffffff;
        rest <= 2'd0;
      end
      SPLIT:  // the first head's KV head, and its number among those that share it
      if (of_start >= group) begin
        of_start <= of_start - group;
        kv_start <= kv_start + 16'd1;
      end else state <= ROW;
      ROW: begin
        rest <= rest + 2'd1;
        if (rest == 2'd2) begin
          sequence_number <= row_sequence;
          committed <= row_committed;
          slot <= row_slot;
          depth <= 8'd0;
          table_there <= 1'b0;
          rest <= 2'd0;
          state <= WALK;
        end
      end
      WALK: begin
        rest <= rest + 2'd1;
        if (rest == 2'd2) begin
          path[depth[6:0]] <= slot;
          depth <= depth + 8'd1;
          slot <= slot_parent;
          rest <= 2'd0;
          if (slot_is_last || depth == 8'd127) state <= WALKED;
        end
      end
      WALKED: begin
        count <= committed + {10'd0, depth};
        head <= 16'd0;
        kv_head <= kv_start;
        of_group <= of_start;
        q_head <= q_row;
        y_head <= y_row;
        state <= HEAD;
      end
      HEAD: begin
        first <= window != 32'd0 && {14'd0, count} > window ? count - window[17:0] : 18'd0;
        read_bank <= onchip_bank;
        read_line <= {6'd0, q_head[31:6]};
        read_kind <= LINE_Q;
        wanted <= 9'((11'(q_head[5:0]) + (integers ? {2'd0, head_dim} : {1'b0, head_dim, 1'b0}) + 11'd63) >> 6);
        asked <= 9'd0;
        arrived <= 9'd0;
        state <= BURST;
        then <= slope_kind == SLOPE_NONE ? BEGIN : SLOPE;
      end
      SLOPE: begin
        read_bank <= slope_bank;
        read_line <= slope_line + {19'd0, head[15:3]};
        read_kind <= LINE_SLOPE;
        wanted <= 9'd1;
        asked <= 9'd0;
        arrived <= 9'd0;
        state <= BURST;
        then <= BEGIN;
      end
      BURST: if (arrived == wanted) state <= then;
      BEGIN: begin
        raw_there <= 4'd0;
        block_there <= 1'b0;
        weighs <= 1'b0;
        poisoned <= 1'b0;
        tile <= first[16:5];
        fresh <= 1'b1;
        chunk_fresh <= 1'b1;
        all_fresh <= 1'b1;
        state <= TILE;
      end
      TILE: begin
        of_slot <= 1'b0;
        p <= p_start;
        source_small <= 1'b0;
        source <= tile;
        source_zero <= 1'b0;
        target_small <= 1'b0;
        target <= tile;
        to <= weighs ? TO_WEIGHTS : TO_MEMORY;
        command <= scale;
        at <= weighs ? (integers ? AT_WEIGHTS_INTEGER : AT_WEIGHTS) : (integers ? AT_SCORES_INTEGER : AT_SCORES);
        g <= 4'd0;
        then <= SCORE;
        after <= COMMITTED;
        if (weighs) fresh <= fresh || !integers;
        state <= weighs ? RUN : base < committed ? TABLE : SLOTS;
      end
      TABLE:
      if (table_there && table_part == tile[11:5]) begin
        page <= table_data[tile[4:0]];
        state <= PLACE;
      end else begin
        read_bank <= table_bank;
        read_line <= table_line + {16'd0, sequence_number} * ({15'd0, max_tiles + 17'd31} >> 5) + {25'd0, tile[11:5]};
        read_kind <= LINE_TABLE;
        wanted <= 9'd1;
        asked <= 9'd0;
        arrived <= 9'd0;
        table_there <= 1'b1;
        table_part <= tile[11:5];
        state <= BURST;
        then <= TABLE;
      end
      PLACE: begin
        state <= PLACING;
        then <= weighs ? WEIGH : SCORE;
        if (block_there && block_values == weighs && block_page == page) state <= weighs ? WEIGH : SCORE;
      end
      PLACING:
      if (!place_busy) begin
        read_bank <= block_bank;
        read_line <= block_line;
        read_kind <= LINE_BLOCK;
        wanted <= block_lines(layout);
        asked <= 9'd0;
        arrived <= 9'd0;
        block_there <= 1'b1;
        block_values <= weighs;
        block_page <= page;
        state <= BURST;
      end
      // scores
      SCORE: state <= SCORED;
      SCORED:
      if (!sums_busy && !sum_valid) begin
        if (of_slot) begin
          target_small <= 1'b1;
          target <= {7'd0, VECTOR_RAW + {3'd0, p_slot[6:5]}};
          raw_there[p_slot[6:5]] <= 1'b1;
        end
        state <= RUN;
        after <= SLOTS;
      end
      SLOTS: begin
        target_small <= 1'b0;
        target <= tile;
        of_slot <= 1'b1;
        page <= {14'd0, p_slot[6:5]};
        if (p > ends) state <= CAP;
        else state <= raw_there[p_slot[6:5]] ? MOVE : PLACE;
      end
      MOVE: state <= MOVED;
      MOVED: begin
        p <= p + 18'd1;
        state <= SLOTS;
      end
      CAP: begin
        at <= AT_SOFTCAP;
        command <= cap;
        after <= BIAS;
        state <= cap[30:0] == 31'd0 ? BIAS : RUN;
      end
      BIAS: begin
        at <= slope_kind == SLOPE_DISTANCE ? AT_SLOPE_DISTANCE : AT_SLOPE_ROUNDED;
        after <= MAXIMA;
        state <= slope_kind == SLOPE_NONE ? MAXIMA : RUN;
      end
      MAXIMA: begin
        rest <= 2'd0;
        state <= FOUND;
      end
      FOUND:
      if (!finds) begin
        rest <= rest + 2'd1;
        if (rest == 2'd2) begin
          rest <= 2'd0;
          state <= TILE;
          tile <= tile + 12'd1;
          if (last_tile) begin
            weighs <= 1'b1;
            tile <= first[16:5];
          end
        end
      end
      // weights, then sums
      COMMITTED: state <= from < committed ? TABLE : PATH;
      WEIGH: state <= WEIGHED;
      WEIGHED:
      if (!sums_busy) begin
        fresh <= 1'b0;
        if (of_slot) p <= p + 18'd1;
        state <= PATH;
      end
      PATH: begin
        of_slot <= 1'b1;
        page <= {14'd0, p_slot[6:5]};
        if (p <= ends) state <= PLACE;
        else state <= integers && !last_tile ? NEXT_TILE : SUMS;
      end
      SUMS: state <= ADD;
      ADD:
      if (!sums_busy && !sum_valid) begin
        at <= AT_ADD_ARRIVED;
        source_small <= 1'b1;
        source <= {7'd0, VECTOR_CHUNK + vector};
        source_zero <= chunk_fresh;
        target_small <= 1'b1;
        target <= {7'd0, VECTOR_CHUNK + vector};
        to <= TO_MEMORY;
        if (g == groups) g <= GROUP_E;
        after <= ADDED;
        state <= integers ? TOTAL : RUN;
      end
      ADDED: begin
        g <= g + 4'd1;
        state <= ADD;
        if (g == GROUP_E) begin
          g <= 4'd0;
          chunk_fresh <= chunk_ends;
          state <= chunk_ends ? TAKE : NEXT_TILE;
        end
      end
      TAKE: begin
        at <= AT_TAKE;
        source <= {7'd0, VECTOR_CHUNK + vector};
        source_zero <= 1'b0;
        target <= {7'd0, VECTOR_ALL + vector};
        if (g == groups) g <= GROUP_E;
        after <= TAKEN;
        state <= RUN;
      end
      TAKEN: begin  // both vectors are added
        at <= AT_ADD_TAKEN;
        source <= target;
        source_zero <= all_fresh;
        g <= g + 4'd1;
        after <= TAKE;
        if (g == GROUP_E) begin
          g <= 4'd0;
          after <= NEXT_TILE;
        end
        state <= RUN;
      end
      NEXT_TILE: begin
        if (chunk_ends) all_fresh <= 1'b0;
        tile <= tile + 12'd1;
        state <= last_tile ? TOTAL : TILE;
      end
      TOTAL: begin
        at <= poisoned ? AT_TOTAL_NAN : integers ? AT_TOTAL_INTEGER : AT_TOTAL;
        source_small <= 1'b1;
        source <= {7'd0, VECTOR_ALL + {1'b0, GROUP_E}};
        source_zero <= 1'b0;
        g <= GROUP_E;
        after <= QUOTIENT;
        state <= RUN;
      end
      QUOTIENT: begin
        at <= integers ? AT_QUOTIENT_INTEGER : AT_QUOTIENT;
        command <= v_scale;
        to <= TO_RESULT;
        g <= g == GROUP_E ? 4'd0 : g;
        source <= {7'd0, VECTOR_ALL + (g == GROUP_E ? 5'd0 : {1'b0, g})};
        after <= WRITE;
        state <= RUN;
      end
      WRITE: state <= WRITTEN;
      WRITTEN:
      if (!writes) begin
        g <= g + 4'd1;
        state <= g + 4'd1 == groups ? NEXT_HEAD : QUOTIENT;
      end
      NEXT_HEAD: begin
        head <= head + 16'd1;
        of_group <= of_group + 16'd1;
        if (of_group + 16'd1 == group) begin
          of_group <= 16'd0;
          kv_head <= kv_head + 16'd1;
        end
        q_head <= q_head + (integers ? {23'd0, head_dim} : {22'd0, head_dim, 1'b0});
        y_head <= y_head + {22'd0, head_dim, 1'b0};
        state <= head + 16'd1 == q_heads ? NEXT_ROW : HEAD;
      end
      NEXT_ROW: begin
        row <= row + 7'd1;
        q_row <= q_row + q_stride;
        y_row <= y_row + y_stride;
        rest <= 2'd0;
        state <= row + 7'd1 == rows ? DONE : ROW;
      end
      DONE: begin
        ended <= 1'b1;
        state <= IDLE;
      end
      RUN: state <= RUNNING;
      RUNNING: if (program_done) state <= after;
      default: state <= IDLE;
    endcase
    if (clear) begin
      state <= IDLE;
      ended <= 1'b0;
    end
  end
endmodule
