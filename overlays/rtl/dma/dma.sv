// SPDX-License-Identifier: Apache-2.0
// The DMA unit, a unit of the sequencer: row moves, K and V into slots and pages, checksums, one command at a time, as
// docs/rtl.md has it. Fields of the list are those that REGISTER accepts; all others may have any value.
module dma
  import abi_types::*;
  import dma_types::*;
(
    input  logic         clk,
    input  logic         rst,
    // sequencer
    input  logic         unit_announce,
    input  logic [511:0] unit_line,
    input  logic         unit_start,
    input  logic         unit_abort,
    output logic         unit_idle,
    output logic         result_valid,
    input  logic         result_ready,
    output logic [1:0]   result_state,
    output logic [7:0]   result_status,
    output logic [31:0]  result_value,       // CHECKSUM
    // what the host writes to registers: arenas
    input  logic         arena_write,
    input  logic [10:0]  arena_word,
    input  logic [31:0]  arena_stored,
    input  logic [31:0]  onchip_bytes,
    // list, held while the unit runs
    input  logic [15:0]  kv_type,
    input  logic [15:0]  head_dim,
    input  logic [15:0]  kv_layers,
    input  logic [15:0]  kv_heads_count,
    input  logic [16:0]  page_count,
    input  logic [7:0]   kv_bank_first,
    input  logic [7:0]   kv_bank_count,
    input  logic [31:0]  kv_line,
    input  logic [31:0]  spill_page,
    input  logic [7:0]   spill_bank_first,
    input  logic [7:0]   spill_bank_count,
    input  logic [31:0]  spill_line,
    input  logic [7:0]   control_bank,
    input  logic [7:0]   table_bank,
    input  logic [31:0]  table_line,
    input  logic [31:0]  max_scratch,
    input  logic [31:0]  max_sequences,
    input  logic [31:0]  max_tiles,
    // step, held too
    input  logic [31:0]  row_count,
    input  logic [31:0]  selected_count,
    input  logic [31:0]  op_count,
    input  logic [31:0]  ops_offset,
    input  logic [31:0]  path_count,
    input  logic [31:0]  path_offset,
    output logic [5:0]   row,                // in the next cycle:
    input  logic [31:0]  row_slot,           // of that row
    input  logic [15:0]  row_selected,       // the selected row of that number
    // memory
    output logic         read_valid,
    input  logic         read_ready,
    output logic [5:0]   read_bank,
    output logic [31:0]  read_line,
    output logic [6:0]   read_tag,
    input  logic         line_valid,
    input  logic [6:0]   line_tag,
    input  logic [511:0] line_data,
    input  logic         line_error,         // with the line: it is none
    output logic         write_valid,
    input  logic         write_ready,
    output logic [5:0]   write_bank,
    output logic [31:0]  write_line,
    output logic [63:0]  write_bytes,
    output logic [511:0] write_data,
    input  logic         write_open,         // a write that was taken may still fail, or be behind a read
    input  logic         write_error         // one of them has failed: one cycle
);
  localparam int DEPTH_BITS = 6;
  typedef enum logic [2:0] {IDLE, BEGIN, RUN, SETTLE, FAIL, RESULT} state_t;
  state_t state;
  logic [511:0] told, command;
  command_record_t header;
  logic starts, stops, runs, clear;
  assign header = command;
  always_ff @(posedge clk) if (unit_announce) told <= unit_line;

  layout_t layout;
  assign layout = '{
      kind: kv_type, head_dim: head_dim, layers: kv_layers, heads: kv_heads_count, page_count: page_count,
      bank_first: kv_bank_first, bank_count: kv_bank_count, line: kv_line, spill_page: spill_page,
      spill_bank_first: spill_bank_first, spill_bank_count: spill_bank_count, spill_line: spill_line
  };

  // --- commands --------------------------------------------------------------------------------------
  localparam int STORE = 0, COMMIT = 1, MOVE = 2, SUM = 3, HEADS = 4;
  logic [3:0] is, over;
  logic [3:0][7:0] statuses;
  logic [4:0] looks;
  range_t [4:0] ranges;
  logic [31:0] sum;
  logic look_over, covered, settled, moved, move_failed, fetch_start, fetch_busy;
  bank_t fetch_bank;
  address_t fetch_address;
  logic [4:0] fetch_count;
  logic [127:0] fetched;
  logic [1:0] move_starts;
  move_t [1:0] moves;
  logic [2:0] copies, copy_takes;
  copy_t [2:0] copy_of;
  logic copy_ready, sum_valid;
  logic [511:0] sum_line;
  logic [2:0][5:0] rows;
  assign is[STORE] = header.opcode == 8'(LORA_CMD_KV_STORE);
  assign is[COMMIT] = header.opcode == 8'(LORA_CMD_KV_COMMIT);
  assign is[MOVE] = header.opcode == 8'(LORA_CMD_MOVE_ROWS);
  assign is[SUM] = header.opcode == 8'(LORA_CMD_CHECKSUM);

  kv_store store (
      .clk(clk),
      .rst(clear),
      .start(state == BEGIN && is[STORE]),
      .command(command),
      .layout(layout),
      .max_scratch(max_scratch),
      .row_count(row_count),
      .row(rows[0]),
      .row_slot(row_slot),
      .look(looks[STORE]),
      .range(ranges[STORE]),
      .look_over(look_over),
      .covered(covered),
      .move_start(move_starts[STORE]),
      .move(moves[STORE]),
      .move_done(moved),
      .move_failed(move_failed),
      .done(over[STORE]),
      .status(statuses[STORE])
  );
  kv_commit commit (
      .clk(clk),
      .rst(clear),
      .start(state == BEGIN && is[COMMIT]),
      .command(command),
      .layout(layout),
      .control_bank(control_bank),
      .table_bank(table_bank),
      .table_line(table_line),
      .max_scratch(max_scratch),
      .max_sequences(max_sequences),
      .max_tiles(max_tiles),
      .op_count(op_count),
      .ops_offset(ops_offset),
      .path_count(path_count),
      .path_offset(path_offset),
      .fetch_start(fetch_start),
      .fetch_bank(fetch_bank),
      .fetch_address(fetch_address),
      .fetch_count(fetch_count),
      .fetch_busy(fetch_busy),
      .fetched(fetched),
      .look(looks[COMMIT]),
      .range(ranges[COMMIT]),
      .look_over(look_over),
      .covered(covered),
      .move_start(move_starts[COMMIT]),
      .move(moves[COMMIT]),
      .move_done(moved),
      .move_failed(move_failed),
      .settled(settled),
      .done(over[COMMIT]),
      .status(statuses[COMMIT])
  );
  move_rows packer (
      .clk(clk),
      .rst(clear),
      .start(state == BEGIN && is[MOVE]),
      .command(command),
      .row_count(row_count),
      .selected_count(selected_count),
      .row(rows[1]),
      .row_selected(row_selected),
      .look(looks[MOVE]),
      .range(ranges[MOVE]),
      .look_over(look_over),
      .covered(covered),
      .copy_valid(copies[0]),
      .copy_ready(copy_takes[0]),
      .copy(copy_of[0]),
      .settled(settled),
      .done(over[MOVE]),
      .status(statuses[MOVE])
  );
  range_sum summer (
      .clk(clk),
      .rst(clear),
      .start(state == BEGIN && is[SUM]),
      .command(command),
      .look(looks[SUM]),
      .range(ranges[SUM]),
      .look_over(look_over),
      .covered(covered),
      .copy_valid(copies[1]),
      .copy_ready(copy_takes[1]),
      .copy(copy_of[1]),
      .settled(settled),
      .sum_valid(sum_valid),
      .sum_line(sum_line),
      .done(over[SUM]),
      .status(statuses[SUM]),
      .value(sum)
  );
  kv_store_record_t stored;
  assign stored = command;
  kv_heads heads (
      .clk(clk),
      .rst(clear),
      .start(move_starts != 2'b00),
      .move(is[STORE] ? moves[STORE] : moves[COMMIT]),
      .layout(layout),
      .stride(stored.stride),
      .scale_stride(stored.scale_stride),
      .row(rows[2]),
      .row_lane(row_slot[4:0]),
      .look(looks[HEADS]),
      .range(ranges[HEADS]),
      .look_over(look_over),
      .covered(covered),
      .copy_valid(copies[2]),
      .copy_ready(copy_takes[2]),
      .copy(copy_of[2]),
      .done(moved),
      .failed(move_failed)
  );
  logic storing;  // kv_heads has the rows
  always_ff @(posedge clk) storing <= !clear && (move_starts[STORE] || (storing && !moved));
  assign row = is[MOVE] ? rows[1] : storing ? rows[2] : rows[0];

  // --- what they share -------------------------------------------------------------------------------
  range_t range;
  copy_t copy;
  always_comb begin
    range = ranges[HEADS];
    for (int i = 0; i < HEADS; i++) if (looks[i]) range = ranges[i];
    copy = copy_of[2];
    if (copies[0]) copy = copy_of[0];
    if (copies[1]) copy = copy_of[1];
  end
  assign copy_takes = copies & {3{copy_ready}};
  range_table arenas (
      .clk(clk),
      .rst(rst),
      .clear(clear),
      .write(arena_write),
      .word(arena_word),
      .stored(arena_stored),
      .onchip_bytes(onchip_bytes),
      .look(looks != '0),
      .range(range),
      .over(look_over),
      .covered(covered),
      // verilator lint_off PINCONNECTEMPTY
      .arena()
      // verilator lint_on PINCONNECTEMPTY
  );
  logic walk_idle, piece_valid, piece_ready, mover_idle;
  piece_t piece;
  copy_walk walk (
      .clk(clk),
      .rst(clear),
      .copy_valid(copies != '0),
      .copy_ready(copy_ready),
      .copy(copy),
      .piece_valid(piece_valid),
      .piece_ready(piece_ready),
      .piece(piece),
      .idle(walk_idle)
  );
  logic asks_read, read_taken, asks_write, write_taken, line_here;
  logic fetch_reads, fetch_second, mover_reads;
  bank_t fetch_read_bank, mover_bank;
  logic [31:0] fetch_line, mover_line;
  logic [DEPTH_BITS-1:0] mover_tag;
  line_mover #(
      .DEPTH_BITS(DEPTH_BITS)
  ) mover (
      .clk(clk),
      .rst(clear),
      .piece_valid(piece_valid),
      .piece_ready(piece_ready),
      .piece(piece),
      .idle(mover_idle),
      .sum_valid(sum_valid),
      .sum_line(sum_line),
      .read_valid(mover_reads),
      .read_ready(read_taken),
      .read_bank(mover_bank),
      .read_line(mover_line),
      .read_tag(mover_tag),
      .line_valid(line_here && !line_tag[DEPTH_BITS] && !line_error),
      .line_tag(line_tag[DEPTH_BITS-1:0]),
      .line_data(line_data),
      .write_valid(asks_write),
      .write_ready(write_taken),
      .write_bank(write_bank),
      .write_line(write_line),
      .write_bytes(write_bytes),
      .write_data(write_data)
  );
  memory_fetch fetch (
      .clk(clk),
      .rst(clear),
      .start(fetch_start),
      .bank(fetch_bank),
      .address(fetch_address),
      .count(fetch_count),
      .busy(fetch_busy),
      .found(fetched),
      .read_valid(fetch_reads),
      .read_ready(read_taken),
      .read_bank(fetch_read_bank),
      .read_line(fetch_line),
      .read_second(fetch_second),
      .line_valid(line_here && line_tag[DEPTH_BITS] && !line_error),
      .line_second(line_tag[0]),
      .line_data(line_data)
  );
  // a fetch begins when no copy is under way, so they never ask both
  assign asks_read = fetch_reads || mover_reads;
  assign read_bank = fetch_reads ? fetch_read_bank : mover_bank;
  assign read_line = fetch_reads ? fetch_line : mover_line;
  assign read_tag = fetch_reads ? {1'b1, {(DEPTH_BITS - 1) {1'b0}}, fetch_second} : {1'b0, mover_tag};
  assign settled = walk_idle && mover_idle && !write_open;
  unit_port port (
      .clk(clk),
      .rst(rst),
      .abort_valid(stops),
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

  // --- how it goes -----------------------------------------------------------------------------------
  logic bus_failed, busy;
  assign busy = state == RUN || state == SETTLE;
  assign bus_failed = busy && ((line_here && line_error) || write_error);
  assign stops = unit_abort || bus_failed;
  assign unit_idle = state == IDLE && runs && !starts && !write_open;
  assign result_valid = state == RESULT;
  assign result_state = result_status == 8'(LORA_OK) ? 2'(LORA_UNIT_DONE) : 2'(LORA_UNIT_FAILED);
  assign result_value = sum;
  always_ff @(posedge clk) begin
    starts <= unit_start;
    unique case (state)
      IDLE:
      if (starts) begin
        command <= told;
        state <= BEGIN;
      end
      BEGIN: begin
        result_status <= 8'(LORA_ERR_OPCODE);
        state <= is == 4'd0 ? RESULT : RUN;
      end
      RUN: begin
        for (int i = 0; i < 4; i++)
          if (over[i]) begin
            result_status <= statuses[i];
            state <= SETTLE;
          end
      end
      SETTLE: if (settled) state <= RESULT;
      FAIL: if (runs && !write_open) state <= RESULT;  // nothing is left at the memory port
      default: if (result_ready) state <= IDLE;
    endcase
    if (bus_failed) begin
      result_status <= 8'(LORA_ERR_UNIT);
      state <= FAIL;
    end
    if (rst || unit_abort) begin
      state <= IDLE;
      starts <= 1'b0;
    end
  end
endmodule
