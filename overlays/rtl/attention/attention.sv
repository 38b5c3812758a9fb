// SPDX-License-Identifier: Apache-2.0
// Attention: a LORA_CMD_ATTENTION, row by row, query head by query head (docs/numbers.md, 3.8 and 6.6). This is the plan:
// which lines are read for which pass. Of a head first K of the committed tiles, then of the scratch pages on the row's
// path, then V tile by tile: committed positions by the page table, then the slots of the path. Lines are read ahead;
// passes (kv_sums), what becomes of their sums (kv_join), scores, weights and results follow as they can.
module attention
  import attention_types::*;
#(
    parameter int TILES = 4096,  // scores that fit; a power of two
    parameter int FLOATS = 1,    // lanes of FP16; 0: K and V are static INT8
    parameter int CAPS = 1       // caps and slopes; 0: commands have none
) (
    input  logic         clk,
    input  logic         rst,
    input  logic [2:0]   unit,           // its number, and the last one's: which heads are its own (head_walk)
    input  logic [2:0]   last_unit,
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
    // of the step: of the row and of the slot that are asked for, in the next cycle, while it `looks` and has its turn
    output logic         looks,
    input  logic         turn,
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
    output logic         read_kv,         // a line of a page
    output logic [5:0]   read_bank,
    output logic [31:0]  read_line,
    output line_tag_t    read_tag,
    input  logic         line_valid,
    input  line_tag_t    line_tag,
    input  logic [511:0] line_data,
    output logic         write_valid,
    input  logic         write_ready,
    output logic [5:0]   write_bank,
    output logic [31:0]  write_line,
    output logic [63:0]  write_bytes,
    output logic [511:0] write_data
);
  // what a unit has not is known when it is built
  logic [1:0] kv, slopes;
  logic [31:0] soft_cap;
  assign kv = FLOATS != 0 ? kind : KV_INT8;
  assign {slopes, soft_cap} = CAPS != 0 ? {slope_kind, cap} : {SLOPE_NONE, 32'd0};
  layout_t layout;
  assign layout = '{kind: kv, head_dim: head_dim, layers: kv_layers, heads: kv_heads, layer: kv_layer,
                    bank_first: kv_bank_first, bank_count: kv_bank_count, line: kv_line, spill_page: spill_page,
                    spill_bank_first: spill_bank_first, spill_bank_count: spill_bank_count,
                    spill_line: spill_line};
  logic integers, half_size;
  logic [3:0] groups;
  logic [9:0] position_bytes, position_of_q;  // of a position of V, of a head of q
  assign position_of_q = integers ? {1'b0, head_dim} : {head_dim, 1'b0};
  assign integers = kv == KV_INT8;
  assign half_size = kv != KV_FP16;
  assign groups = 4'((head_dim + 9'd31) >> 5);
  assign position_bytes = half_size ? {1'b0, head_dim} : {head_dim, 1'b0};

  typedef enum logic [4:0] {
    IDLE, SPLIT, ROW, WALK, WALKED, HEAD, QUERY, SLOPE, SCORES, PAGES, BEGIN, VALUES, PATH, TABLE, TABLE_READ, FOUND, PLACE,
    PLACING, PIECE, PIECES, ENDED, NEXT_HEAD, DRAIN, NEXT_ROW, DONE
  } state_t;
  state_t state, then;  // `then`: behind the piece
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
  assign looks = state == ROW || state == WALK;
  logic ended;
  assign done = ended && runs;

  // the row
  logic [1:0] rest;
  logic [15:0] sequence_number;
  logic [17:0] committed, count, first;
  logic [7:0] depth;
  logic [6:0] path[128];   // the row's slot first
  logic [6:0] depths[128]; // of a slot on it
  logic [127:0] on_path;
  logic [3:0] pages_used;
  logic [31:0] q_row, y_row, q_head;
  // the head
  logic [15:0] head, kv_head, kv_start, of_start;
  logic own, ends_group, next_head;
  logic odd;               // lowest bit of its number among the unit's own
  logic any;               // one was scored
  logic [15:0] kv_before, kv_values;  // of the head before, of V
  logic by_heads;          // K of a head comes before V of the one before it
  logic closes;            // V of the last head
  assign by_heads = q_heads != 16'd1 && count <= 18'(16 * TILES);
  logic [1:0][5:0] q_begin;
  logic [1:0][2:0] slope_place;
  logic [1:0][31:0] slope, factor;
  logic [1:0] scoring;     // heads whose scores are not complete
  head_walk walk (
      .clk(clk),
      .begins(state == WALKED),
      .of_start(of_start),
      .group(group),
      .unit(unit),
      .last_unit(last_unit),
      .moves(next_head),
      .own(own),
      .ends_group(ends_group)
  );
  assign next_head = state == NEXT_HEAD || (state == HEAD && head != q_heads && !own);
  // the tile
  logic weighs;            // V
  logic [11:0] tile;
  logic [2:0] side;        // of a pass
  logic [17:0] base, ends, from, p, committed_ends;
  logic last_tile, chunk_ends, whole, more, seen_committed;
  logic chunk_first, head_first, cleared;
  logic [2:0] scratch_page;
  logic of_path, of_scratch;
  assign base = {1'b0, tile, 5'd0};
  assign ends = base + 18'd31 < count - 18'd1 ? base + 18'd31 : count - 18'd1;  // last position seen
  assign from = base > first ? base : first;
  assign last_tile = ends == count - 18'd1;
  assign chunk_ends = tile[6:0] == 7'd127 || last_tile;
  assign committed_ends = ends < committed ? ends : committed - 18'd1;
  assign seen_committed = from < committed;
  assign whole = from == base && base + 18'd32 <= committed;
  // the next tile may come beside this one
  assign more = {1'b0, side} + 4'd1 != 4'd1 << tiles_bits(groups) && !integers
      && (weighs ? whole && !chunk_ends && base + 18'd64 <= committed : base + 18'd32 < committed);
  logic [7:0] from_last;  // along the path
  logic [6:0] p_slot;
  assign from_last = 8'(count - 18'd1 - p);
  assign p_slot = path[from_last[6:0]];

  // table of pages, and blocks
  logic table_there, table_came, placed;
  logic [6:0] table_part;
  logic [31:0][15:0] table_data;
  logic [15:0] page, placed_page;
  logic placed_values, place_busy;
  logic [5:0] block_bank;
  logic [31:0] block_line;
  kv_place place (
      .clk(clk),
      .rst(clear),
      .start(state == PLACE),
      .layout(layout),
      .page(page),
      .head(weighs ? kv_values : kv_head),
      .values(weighs),
      .busy(place_busy),
      .bank(block_bank),
      .line(block_line)
  );

  // pieces of memory that are read, one behind the other
  typedef struct packed {
    line_kind_t  kind;
    logic [5:0]  bank;
    logic [31:0] line;
    logic [8:0]  lines;   // at least 1
    logic [4:0]  where;   // of the first; of values it is a line of the buffer
    logic [31:0] scales;  // line of the block's
    logic        ends;    // the pass
    pass_t       pass;
  } piece_t;
  piece_t piece, next_piece;
  logic piece_valid, piece_taken, offers;
  logic [13:0] path_byte;
  logic [4:0] path_lines;
  logic [8:0] row_lines;
  logic tile_done;
  assign path_byte = 14'({9'd0, p_slot[4:0]} * {4'd0, position_bytes});
  assign path_lines = 5'(({1'b0, position_bytes} + {5'd0, path_byte[5:0]} + 11'd63) >> 6);
  assign row_lines = 9'((({10'd0, committed_ends[4:0]} + 15'd1) * {5'd0, position_bytes} + 15'd63) >> 6);
  assign tile_done = of_path ? p == ends : whole || committed_ends == ends;
  always_comb begin
    next_piece = '0;
    next_piece.kind = LINE_VALUES;
    next_piece.bank = block_bank;
    next_piece.line = block_line;
    next_piece.lines = value_lines(layout);
    next_piece.scales = block_line + {23'd0, value_lines(layout)};
    next_piece.where = {2'd0, side};
    next_piece.ends = of_path || of_scratch || !more;
    next_piece.pass.values = weighs;
    next_piece.pass.scratch = of_scratch;
    next_piece.pass.path = of_path;
    next_piece.pass.tile = of_scratch ? {10'd0, scratch_page[1:0]} : tile - {9'd0, side};
    next_piece.pass.tiles = {1'b0, side} + 4'd1;
    next_piece.pass.head = odd;
    next_piece.pass.head_first = head_first;
    next_piece.pass.reads = 1'b1;
    if (of_scratch) next_piece.pass.head_last = pages_used >> scratch_page == 4'd1;
    if (weighs) begin
      next_piece.pass.row = of_path ? p[4:0] : from[4:0];
      next_piece.pass.block_row = of_path ? p_slot[4:0] : from[4:0];
      next_piece.pass.count = of_path ? 6'd1 : 6'(committed_ends - from + 18'd1);
      next_piece.pass.clear = !cleared;
      next_piece.pass.reads = tile_done && (!integers || last_tile);
      next_piece.pass.head_last = last_tile && tile_done;
      next_piece.pass.chunk_first = chunk_first;
      next_piece.pass.chunk_last = chunk_ends;
      if (of_path) begin
        next_piece.line = block_line + {24'd0, path_byte[13:6]};
        next_piece.lines = {4'd0, path_lines};
        next_piece.pass.begins = path_byte[5:0];
      end else begin
        next_piece.lines = row_lines;
      end
    end
    if (state == QUERY) begin
      next_piece.kind = LINE_Q;
      next_piece.bank = onchip_bank;
      next_piece.line = {6'd0, q_head[31:6]};
      next_piece.lines = 9'(({5'd0, q_head[5:0]} + {1'b0, position_of_q} + 11'd63) >> 6);
      next_piece.where = {odd, 4'd0};
    end
    if (state == SLOPE) begin
      next_piece.kind = LINE_SLOPE;
      next_piece.bank = slope_bank;
      next_piece.line = slope_line + {19'd0, head[15:3]};
      next_piece.lines = 9'd1;
      next_piece.where = {odd, 4'd0};
    end
    if (state == TABLE_READ) begin
      next_piece.kind = LINE_TABLE;
      next_piece.bank = table_bank;
      next_piece.line = table_line + {16'd0, sequence_number} * ({15'd0, max_tiles + 17'd31} >> 5) + {25'd0, tile[11:5]};
      next_piece.lines = 9'd1;
    end
  end
  assign offers = state == QUERY || (state == SLOPE && slopes != SLOPE_NONE) || state == TABLE_READ || state == PIECE;
  assign piece_taken = offers && !piece_valid;

  // reading: a piece when its pass and its lines have room
  logic [2:0] pass_next, pass_done;      // numbers; at most four are under way
  logic [10:0] ring_next, ring_done;
  logic [10:0] ring_ends[4];
  logic [9:0] ring_base[4];
  logic [9:0] pending[4];                // lines that are to come
  pass_t passes[4];
  logic [2:0] passes_told;
  logic reading, reads_scales, has_room, begun;
  logic [8:0] asked;
  logic last_line, next_scales;
  assign has_room = 3'(pass_next - pass_done) != 3'd4 && (piece.kind != LINE_VALUES
      || 11'(ring_next - ring_done) + {2'd0, piece.lines} <= 11'd1024);
  assign next_scales = kv == KV_INT8_HEADS && piece.kind == LINE_VALUES;
  assign last_line = reads_scales || (asked + 9'd1 == piece.lines && !next_scales);
  assign asks_read = reading;
  assign read_bank = piece.bank;
  assign read_line = reads_scales ? piece.scales : piece.line + {23'd0, asked};
  assign read_kv = piece.kind == LINE_VALUES;
  assign read_tag = '{kind: reads_scales ? LINE_SCALES : piece.kind, pass: pass_next[1:0],
                      where: piece.kind == LINE_VALUES && !reads_scales ? ring_next[9:0]
                          : {5'd0, piece.where} + (reads_scales ? 10'd0 : {1'b0, asked})};
  line_kind_t line_kind;
  logic [1:0] line_pass;
  logic [9:0] line_where;
  assign {line_kind, line_pass, line_where} = line_tag;

  // passes
  logic pass_valid, pass_taken, pass_ends, holds, held, unread_integers, joins, there, complete;
  pass_t current;
  logic [1:0] unread;
  logic [2:0] sums_slot, read_slot, read_other;
  logic [4:0] read_column;
  logic [31:0] total, value, other, one_value;
  logic [8:0] weight_place;
  logic [15:0] weight_read;
  logic [17:0] made;
  logic [2:0] passes_taken;
  assign pass_valid = passes_taken != passes_told && pending[passes_taken[1:0]] == 10'd0;
  kv_sums products (
      .clk(clk),
      .rst(clear),
      .layout(layout),
      .block_valid(line_here && line_kind == LINE_VALUES),
      .scale_valid(line_here && line_kind == LINE_SCALES),
      .q_valid(line_here && line_kind == LINE_Q),
      .line_where(line_where),
      .line_pass(line_pass),
      .line_data(line_data),
      .q_begin(q_begin),
      .weight_place(weight_place),
      .weight(weight_read),
      .there(there),
      .made(made),
      .pass_valid(pass_valid),
      .pass(passes[passes_taken[1:0]]),
      .pass_base(ring_base[passes_taken[1:0]]),
      .pass_number(passes_taken[1:0]),
      .taken(pass_taken),
      .ends(pass_ends),
      .current(current),
      .unread(unread),
      .unread_integers(unread_integers),
      .holds(holds),
      .held(held),
      .sums_slot(sums_slot),
      .total(total),
      .read_column(read_column),
      .read_slot(read_slot),
      .read_other(read_other),
      .value(value),
      .other(other),
      .one_value(one_value)
  );
  logic scores_ready, raw_valid, results_busy, total_valid, sum_valid, poisoned, bad;
  logic [31:0] raw, head_total, sum, maximum, score;
  logic [16:0] score_address;
  logic [6:0] score_slot;
  score_t raw_place;
  kv_join join_sums (
      .clk(clk),
      .rst(clear),
      .integers(integers),
      .head_dim(head_dim),
      .holds(holds),
      .summed(current),
      .summed_slot(sums_slot),
      .held(held),
      .unread(unread),
      .unread_integers(unread_integers),
      .busy(joins),
      .total(total),
      .read_column(read_column),
      .read_slot(read_slot),
      .read_other(read_other),
      .value(value),
      .other(other),
      .one_value(one_value),
      .scores_ready(scores_ready),
      .raw_valid(raw_valid),
      .raw(raw),
      .raw_place(raw_place),
      .results_busy(results_busy),
      .total_valid(total_valid),
      .head_total(head_total),
      .sum_valid(sum_valid),
      .sum(sum)
  );
  attention_scores #(
      .TILES(TILES)
  ) head_scores (
      .clk(clk),
      .rst(clear),
      .integers(integers),
      .scale(scale),
      .cap(soft_cap),
      .slope_kind(slopes),
      .first(first),
      .committed(committed),
      .count(count),
      .by_heads(by_heads),
      .on_path(on_path),
      .slot(score_slot),
      .from_last(depths[score_slot]),
      .slope(slope),
      .factor(factor),
      .raw_valid(raw_valid),
      .raw(raw),
      .raw_place(raw_place),
      .ready(scores_ready),
      .complete(complete),
      .maximum(maximum),
      .address(score_address),
      .score(score)
  );
  attention_weights #(
      .TILES(TILES)
  ) head_weights (
      .clk(clk),
      .rst(clear),
      .integers(integers),
      .by_heads(by_heads),
      .row_begins(state == WALKED),
      .first(first),
      .count(count),
      .complete(complete),
      .moves(pass_taken && passes[passes_taken[1:0]].values),
      .tile(passes[passes_taken[1:0]].tile),
      .ends(pass_ends && current.values && current.head_last),
      .address(score_address),
      .score(score),
      .maximum(maximum),
      .read_place(weight_place),
      .read_weight(weight_read),
      .there(there),
      .made(made),
      .poisoned(poisoned)
  );
  attention_results results (
      .clk(clk),
      .rst(clear),
      .integers(integers),
      .head_dim(head_dim),
      .v_scale(v_scale),
      .row_begins(state == WALKED),
      .y_row(y_row),
      .of_start(of_start),
      .group(group),
      .unit(unit),
      .last_unit(last_unit),
      .total_valid(total_valid),
      .total(head_total),
      .poisoned(poisoned),
      .sum_valid(sum_valid),
      .sum(sum),
      .busy(results_busy),
      .bad(bad),
      .write_valid(asks_write),
      .write_ready(write_taken),
      .write_line(write_line),
      .write_bytes(write_bytes),
      .write_data(write_data)
  );
  assign write_bank = onchip_bank;

  // reading, and passes under way
  always_ff @(posedge clk) begin
    if (piece_taken) begin
      piece <= next_piece;
      piece_valid <= 1'b1;
    end
    if (piece_valid && !reading && has_room) begin
      reading <= 1'b1;
      reads_scales <= 1'b0;
      asked <= 9'd0;
      if (piece.kind == LINE_VALUES) begin
        begun <= 1'b1;
        if (!begun) ring_base[pass_next[1:0]] <= ring_next[9:0];
      end
    end
    if (reading && read_taken) begin
      asked <= asked + 9'd1;
      if (piece.kind == LINE_VALUES && !reads_scales) ring_next <= ring_next + 11'd1;
      if (asked + 9'd1 == piece.lines) reads_scales <= next_scales;
      if (last_line) begin
        reading <= 1'b0;
        piece_valid <= 1'b0;
        if (piece.ends && piece.kind == LINE_VALUES) begin
          passes[pass_next[1:0]] <= piece.pass;
          ring_ends[pass_next[1:0]] <= reads_scales ? ring_next : ring_next + 11'd1;
          pass_next <= pass_next + 3'd1;
          passes_told <= passes_told + 3'd1;
          begun <= 1'b0;
        end
      end
    end
    for (int i = 0; i < 4; i++)
      pending[i] <= pending[i] + {9'd0, reading && read_taken && pass_next[1:0] == 2'(i) && piece.kind != LINE_TABLE}
          - {9'd0, line_here && line_pass == 2'(i) && line_kind != LINE_TABLE};
    if (pass_taken) passes_taken <= passes_taken + 3'd1;
    if (pass_ends) begin
      pass_done <= pass_done + 3'd1;
      ring_done <= ring_ends[pass_done[1:0]];
    end
    if (line_here) begin
      if (line_kind == LINE_TABLE) table_data <= line_data;
      if (line_kind == LINE_SLOPE) {factor[line_where[4]], slope[line_where[4]]} <=
          line_data[{slope_place[line_where[4]], 6'd0}+:64];
    end
    if (clear) begin
      {piece_valid, reading, begun} <= 3'd0;
      {pass_next, pass_done, passes_told, passes_taken} <= 12'd0;
      {ring_next, ring_done} <= 22'd0;
      for (int i = 0; i < 4; i++) pending[i] <= 10'd0;
    end
  end

  always_ff @(posedge clk) begin
    if (bad) begin
      nonfinite_count <= nonfinite_count + 32'd1;
      if (nonfinite_row == 32'hffffffff) nonfinite_row <= {25'd0, row};
    end
    if (line_here && line_kind == LINE_TABLE) table_came <= 1'b1;
    scoring <= scoring + {1'b0, state == HEAD && head != q_heads && own && scoring != 2'd2} - {1'b0, complete};
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
        rest <= rest + {1'b0, turn};
        if (rest == 2'd2) begin
          sequence_number <= row_sequence;
          committed <= row_committed;
          slot <= row_slot;
          depth <= 8'd0;
          on_path <= '0;
          pages_used <= 4'd0;
          table_there <= 1'b0;
          rest <= 2'd0;
          state <= WALK;
        end
      end
      WALK: begin
        rest <= rest + {1'b0, turn};
        if (rest == 2'd2) begin
          path[depth[6:0]] <= slot;
          depths[slot] <= depth[6:0];
          on_path[slot] <= 1'b1;
          pages_used[slot[6:5]] <= 1'b1;
          depth <= depth + 8'd1;
          slot <= slot_parent;
          rest <= 2'd0;
          if (slot_is_last || depth == 8'd127) state <= WALKED;
        end
      end
      WALKED: begin
        count <= committed + {10'd0, depth};
        head <= 16'd0;
        {odd, any, closes} <= 3'b000;
        kv_head <= kv_start;
        q_head <= q_row;
        state <= HEAD;
      end
      HEAD: begin  // two heads' q and slopes are kept; the last head's V follows that of the one before
        first <= window != 32'd0 && {14'd0, count} > window ? count - window[17:0] : 18'd0;
        if (head == q_heads) begin
          closes <= 1'b1;
          kv_values <= kv_before;
          state <= by_heads && any ? BEGIN : DRAIN;
        end else if (own && scoring != 2'd2) begin
          q_begin[odd] <= q_head[5:0];
          slope_place[odd] <= head[2:0];
          state <= QUERY;
        end
      end
      QUERY: if (piece_taken) state <= SLOPE;
      SLOPE: begin
        weighs <= 1'b0;
        placed <= 1'b0;
        tile <= first[16:5];
        side <= 3'd0;
        head_first <= 1'b1;
        scratch_page <= 3'd0;
        of_path <= 1'b0;
        if (piece_taken || slopes == SLOPE_NONE) state <= SCORES;
      end
      // pieces of K
      SCORES: begin
        of_scratch <= 1'b0;
        then <= SCORES;
        state <= base < committed ? TABLE : PAGES;
      end
      PAGES: begin
        of_scratch <= 1'b1;
        page <= {14'd0, scratch_page[1:0]};
        then <= PAGES;
        if (scratch_page == 3'd4) begin
          of_scratch <= 1'b0;
          kv_values <= by_heads ? kv_before : kv_head;
          state <= by_heads && !any ? NEXT_HEAD : BEGIN;
        end else if (pages_used[scratch_page[1:0]]) state <= FOUND;
        else scratch_page <= scratch_page + 3'd1;
      end
      // pieces of V
      BEGIN: begin
        weighs <= 1'b1;
        placed <= 1'b0;
        tile <= first[16:5];
        head_first <= 1'b1;
        chunk_first <= 1'b1;
        cleared <= 1'b0;
        state <= VALUES;
      end
      VALUES: begin
        of_path <= 1'b0;
        then <= whole ? VALUES : PATH;
        p <= from > committed ? from : committed;
        state <= seen_committed ? TABLE : PATH;
      end
      PATH: begin
        of_path <= 1'b1;
        page <= {14'd0, p_slot[6:5]};
        then <= PATH;
        if (p <= ends) state <= FOUND;
        else begin
          tile <= tile + 12'd1;
          state <= last_tile ? ENDED : VALUES;
          if (chunk_ends) {chunk_first, head_first} <= 2'b10;
          else chunk_first <= 1'b0;
          cleared <= integers;
        end
      end
      // where a block lies
      TABLE:
      if (table_there && table_part == tile[11:5]) begin
        page <= table_data[tile[4:0]];
        state <= FOUND;
      end else state <= TABLE_READ;
      TABLE_READ: begin
        table_there <= 1'b0;
        table_part <= tile[11:5];
        table_came <= 1'b0;
        if (piece_taken) state <= PIECES;
      end
      PIECES:
      if (table_came) begin
        table_there <= 1'b1;
        state <= TABLE;
      end
      FOUND: state <= placed && placed_page == page && placed_values == weighs ? PIECE : PLACE;
      PLACE: begin
        placed <= 1'b1;
        placed_page <= page;
        placed_values <= weighs;
        state <= PLACING;
      end
      PLACING: if (!place_busy) state <= PIECE;
      PIECE:
      if (piece_taken) begin
        state <= then;
        side <= next_piece.ends ? 3'd0 : side + 3'd1;
        if (of_path) begin
          p <= p + 18'd1;
          cleared <= 1'b1;
        end else if (of_scratch) begin
          scratch_page <= scratch_page + 3'd1;
          head_first <= 1'b0;
        end else if (!weighs) begin
          tile <= tile + 12'd1;
          if (next_piece.ends) head_first <= 1'b0;
        end else if (whole) begin
          tile <= tile + 12'd1;
          cleared <= integers;
          if (next_piece.ends) begin
            chunk_first <= chunk_ends;
            if (chunk_ends) head_first <= 1'b0;
          end
        end else cleared <= 1'b1;
      end
      ENDED: state <= closes ? DRAIN : NEXT_HEAD;
      NEXT_HEAD: begin
        kv_before <= kv_head;
        any <= 1'b1;
        odd <= !odd;
        state <= HEAD;
      end
      DRAIN: if (!piece_valid && pass_next == pass_done && !joins && !results_busy) state <= NEXT_ROW;
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
      default: state <= IDLE;
    endcase
    if (next_head) begin
      head <= head + 16'd1;
      kv_head <= kv_head + {15'd0, ends_group};
      q_head <= q_head + {22'd0, position_of_q};
    end
    if (clear) begin
      state <= IDLE;
      ended <= 1'b0;
      scoring <= 2'd0;
    end
  end
endmodule
