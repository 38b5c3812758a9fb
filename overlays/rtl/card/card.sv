// A card: the control and its units behind one memory port. Vector unit and DMA unit are here; MPU and Router are told
// of their commands by `unit_*`, as the sequencer does, for those that play them. The control's own way to memory, the
// host's registers and the links are as `control` has them.
module card
  import abi_types::*;
  import card_types::*;
  import sequencer_types::*;
  import rv32_types::*;
#(
    parameter int ONCHIP_BYTES  = 16 << 20,
    parameter int CYCLES_PER_MS = 200_000
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  restart,
    input  logic [2:0][31:0]       identity,
    input  logic                  load_valid,
    output logic                  load_ready,
    input  logic [3:0]            load_write,
    input  logic [LOCAL_BITS-3:0] load_word,
    input  logic [31:0]           load_stored,
    output logic [31:0]           load_data,
    // the host's registers
    input  logic                  host_valid,
    input  logic                  host_write,
    input  logic [10:0]           host_word,
    input  logic [31:0]           host_stored,
    output logic [31:0]           host_data,
    output logic                  done,
    // board memory: the control's words and lists
    output logic                  memory_valid,
    input  logic                  memory_ready,
    output logic [47:0]           memory_address,
    output logic [3:0]            memory_write,
    output logic [31:0]           memory_stored,
    input  logic                  memory_answers,
    input  logic [511:0]          memory_line,
    input  logic                  memory_error,
    output logic                  ar_valid,
    input  logic                  ar_ready,
    output logic [41:0]           ar_line,
    output logic [3:0]            ar_beats,
    input  logic                  r_valid,
    output logic                  r_ready,
    input  logic [511:0]          r_data,
    input  logic                  r_last,
    input  logic                  r_error,
    // memory of the units, as arena_port has it
    output logic                  lines_read_valid,
    input  logic                  lines_read_ready,
    output logic                  lines_read_onchip,
    output logic [41:0]           lines_read_line,
    output logic [16:0]           lines_read_tag,
    input  logic                  lines_line_valid,
    input  logic [16:0]           lines_line_tag,
    input  logic [511:0]          lines_line_data,
    input  logic                  lines_line_error,
    output logic                  lines_write_valid,
    input  logic                  lines_write_ready,
    output logic                  lines_write_onchip,
    output logic [41:0]           lines_write_line,
    output logic [63:0]           lines_write_bytes,
    output logic [511:0]          lines_write_data,
    output logic [2:0]            lines_write_id,
    input  logic                  lines_written,
    input  logic [2:0]            lines_written_id,
    input  logic                  lines_written_error,
    // links
    output logic [31:0]           link_epoch,
    output logic [LOCAL_BITS-1:0] link_list,
    output logic [LOCAL_BITS-1:0] link_state,
    output logic                  link_poison,
    output logic [LOCAL_BITS-1:0] link_test,
    output logic                  link_test_start,
    input  logic                  link_test_done,
    input  logic                  link_test_failed,
    // trace, and what is done, in order, for simulation
    output logic                  trace_valid,
    output logic [31:0]           trace_index,
    output logic [31:0]           trace_rows,
    output logic                  trace_end,
    output logic                  stopped,
    output logic [3:0]            stopped_cause,
    output logic [31:0]           stopped_pc,
    output logic                  retired,
    output logic [31:0]           retired_pc,
    output logic                  retired_writes,
    output logic [4:0]            retired_rd,
    output logic [31:0]           retired_value,
    // units that are not here, bit by bit; their list and state in local memory
    output logic [UNITS-1:0]       unit_announce,
    output logic [511:0]           unit_line,
    output logic [6:0]             unit_rows,
    output logic [LOCAL_BITS-1:0]  unit_list,
    output logic [LOCAL_BITS-1:0]  unit_state,
    output logic [UNITS-1:0]       unit_start,
    output logic [UNITS-1:0]       unit_abort,
    output logic [UNITS-1:0][13:0] run_index,
    output logic [UNITS-1:0][6:0]  run_rows,
    input  logic [UNITS-1:0]       unit_idle,
    input  logic [UNITS-1:0]       result_valid,
    output logic [UNITS-1:0]       result_ready,
    input  logic [UNITS-1:0][1:0]  result_state,
    input  logic [UNITS-1:0][7:0]  result_status,
    input  logic [UNITS-1:0][31:0] result_nonfinite_count,
    input  logic [UNITS-1:0][31:0] result_nonfinite_row,
    input  logic [UNITS-1:0][7:0]  result_port,
    input  logic [31:0]            result_sum,
    input  logic [2:0][31:0]       result_frames,
    input  groups_t                segments,
    input  logic [4:0][31:0]       progress        // the Router's words from WAITS on, hal_card.h
);
  localparam int VFU = LORA_UNIT_VFU, DMA = LORA_UNIT_DMA, ROUTER = LORA_UNIT_ROUTER;
  localparam logic [UNITS-1:0] HERE = UNITS'((1 << LORA_UNIT_VFU) | (1 << LORA_UNIT_DMA));

  // --- commands: of the sequencer and of the core's mailboxes ----------------------------------------
  logic [LORA_UNITS-1:0] mail_start, mail_abort;
  logic mail_write, run_start, feed_busy, feed_start, sequencer_abort;
  logic [2:0] mail_which;
  logic [5:0] mail_word;
  logic [31:0] mail_stored, mail_data;
  logic [LOCAL_BITS-1:0] run_list, run_state, mail_list, mail_state;
  logic [UNITS-1:0] run_announces, mail_announces, announces, run_starts, mail_starts, starts, aborts, mail_runs;
  logic [511:0] run_line, mail_line;
  logic [6:0] run_line_rows, mail_line_rows;
  logic [UNITS-1:0] idle, valid, ready, run_ready, mail_ready;
  logic [UNITS-1:0][1:0] states;
  logic [UNITS-1:0][7:0] statuses, ports;
  logic [UNITS-1:0][31:0] counts, first_rows, values;
  list_record_t list;
  step_t step;
  assign announces = run_announces | mail_announces;
  assign starts = run_starts | mail_starts;
  assign aborts = {UNITS{sequencer_abort}} | UNITS'(mail_abort);
  assign unit_line = mail_announces != '0 ? mail_line : run_line;
  assign unit_rows = mail_announces != '0 ? mail_line_rows : run_line_rows;
  assign ready = (run_ready & ~mail_runs) | mail_ready;
  assign unit_announce = announces & ~HERE;
  assign unit_start = starts & ~HERE;
  assign unit_abort = aborts & ~HERE;
  assign result_ready = ready & ~HERE;
  always_ff @(posedge clk) begin  // whose step is read
    if (run_start) {unit_list, unit_state} <= {run_list, run_state};
    if (feed_start) {unit_list, unit_state} <= {mail_list, mail_state};
  end

  logic feed_load, core_load_ready, core_load_valid;
  logic [LOCAL_BITS-3:0] feed_word;
  assign core_load_valid = load_valid || feed_load;
  assign load_ready = core_load_ready;
  control #(
      .ONCHIP_BYTES(ONCHIP_BYTES),
      .CYCLES_PER_MS(CYCLES_PER_MS)
  ) its_control (
      .clk(clk),
      .rst(rst),
      .restart(restart),
      .identity(identity),
      .load_valid(core_load_valid),
      .load_ready(core_load_ready),
      .load_write(load_valid ? load_write : 4'd0),
      .load_word(load_valid ? load_word : feed_word),
      .load_stored(load_stored),
      .load_data(load_data),
      .host_valid(host_valid),
      .host_write(host_write),
      .host_word(host_word),
      .host_stored(host_stored),
      .host_data(host_data),
      .done(done),
      .memory_valid(memory_valid),
      .memory_ready(memory_ready),
      .memory_address(memory_address),
      .memory_write(memory_write),
      .memory_stored(memory_stored),
      .memory_answers(memory_answers),
      .memory_line(memory_line),
      .memory_error(memory_error),
      .mail_start(mail_start),
      .mail_abort(mail_abort),
      .unit_write(mail_write),
      .unit_which(mail_which),
      .unit_word(mail_word),
      .unit_stored(mail_stored),
      .unit_data(mail_data),
      .link_epoch(link_epoch),
      .link_list(link_list),
      .link_state(link_state),
      .link_poison(link_poison),
      .link_test(link_test),
      .link_test_start(link_test_start),
      .link_test_done(link_test_done),
      .link_test_failed(link_test_failed),
      .trace_valid(trace_valid),
      .trace_index(trace_index),
      .trace_rows(trace_rows),
      .trace_end(trace_end),
      .stopped(stopped),
      .stopped_cause(stopped_cause),
      .stopped_pc(stopped_pc),
      .retired(retired),
      .retired_pc(retired_pc),
      .retired_writes(retired_writes),
      .retired_rd(retired_rd),
      .retired_value(retired_value),
      .ar_valid(ar_valid),
      .ar_ready(ar_ready),
      .ar_line(ar_line),
      .ar_beats(ar_beats),
      .r_valid(r_valid),
      .r_ready(r_ready),
      .r_data(r_data),
      .r_last(r_last),
      .r_error(r_error),
      .unit_announce(run_announces),
      .unit_line(run_line),
      .unit_rows(run_line_rows),
      .unit_list(run_list),
      .unit_state(run_state),
      .run_start(run_start),
      .hold_units(feed_busy),
      .unit_start(run_starts),
      .unit_abort(sequencer_abort),
      .run_index(run_index),
      .run_rows(run_rows),
      .unit_idle(idle),
      .result_valid(valid & ~mail_runs),
      .result_ready(run_ready),
      .result_state(states),
      .result_status(statuses),
      .result_nonfinite_count(counts),
      .result_nonfinite_row(first_rows),
      .result_port(ports),
      .result_sum(values[ROUTER]),
      .result_frames(result_frames),
      .segments(segments)
  );
  mail_commands mail (
      .clk(clk),
      .rst(rst || restart),
      .mail_start(mail_start),
      .mail_abort(mail_abort),
      .unit_write(mail_write),
      .unit_which(mail_which),
      .unit_word(mail_word),
      .unit_stored(mail_stored),
      .unit_data(mail_data),
      .feed_start(feed_start),
      .list_place(mail_list),
      .state_place(mail_state),
      .feed_busy(feed_busy),
      .step(step),
      .unit_announce(mail_announces),
      .unit_line(mail_line),
      .unit_rows(mail_line_rows),
      .unit_start(mail_starts),
      .unit_idle(idle),
      .runs(mail_runs),
      .result_valid(valid),
      .result_ready(mail_ready),
      .result_state(states),
      .result_status(statuses),
      .result_nonfinite_count(counts),
      .result_nonfinite_row(first_rows),
      .result_value(values),
      .result_port(ports),
      .result_frames(result_frames),
      .segments(segments),
      .progress(progress)
  );

  // --- list, step and rows ---------------------------------------------------------------------------
  localparam int OF_VFU = 0, OF_DMA = 1, READERS = 2;
  logic [READERS-1:0][5:0] row;
  logic [READERS-1:0] row_selected;
  step_row_t [READERS-1:0] found;
  logic [15:0] slot_parent;  // attention's
  assign row_selected[OF_DMA] = 1'b0;
  step_feed #(
      .READERS(READERS)
  ) feed (
      .clk(clk),
      .rst(rst || restart),
      .start(run_start || feed_start),
      .list_place(run_start ? run_list : mail_list),
      .state_place(run_start ? run_state : mail_state),
      .busy(feed_busy),
      .load_valid(feed_load),
      .load_ready(core_load_ready && !load_valid),
      .load_word(feed_word),
      .load_data(load_data),
      .header(list),
      .step(step),
      .row(row),
      .row_selected(row_selected),
      .found(found),
      .slot(7'd0),
      .slot_parent(slot_parent)
  );

  // --- what the units that are here tell -------------------------------------------------------------
  logic vfu_idle, vfu_valid, dma_idle, dma_valid;
  logic [1:0] vfu_state, dma_state;
  logic [7:0] vfu_status, dma_status;
  logic [31:0] vfu_count, vfu_first_row, dma_value;
  always_comb begin
    idle = unit_idle;
    valid = result_valid & ~HERE;
    states = result_state;
    statuses = result_status;
    ports = result_port;
    counts = result_nonfinite_count;
    first_rows = result_nonfinite_row;
    values = '0;
    values[ROUTER] = result_sum;
    {idle[VFU], valid[VFU], states[VFU], statuses[VFU]} = {vfu_idle, vfu_valid, vfu_state, vfu_status};
    {counts[VFU], first_rows[VFU], ports[VFU]} = {vfu_count, vfu_first_row, 8'd0};
    {idle[DMA], valid[DMA], states[DMA], statuses[DMA]} = {dma_idle, dma_valid, dma_state, dma_status};
    {counts[DMA], first_rows[DMA], ports[DMA], values[DMA]} = {32'd0, 32'hffff_ffff, 8'd0, dma_value};
  end

  // --- memory ----------------------------------------------------------------------------------------
  localparam int TAG_BITS = 16;
  logic arena_write;
  logic [10:0] arena_word;
  logic [31:0] arena_stored;
  logic [READERS-1:0] reads, reads_taken, lines, refused, failed, writes, writes_taken, open, write_refused,
      write_failed;
  logic [READERS-1:0][5:0] read_bank, write_bank;
  logic [READERS-1:0][31:0] read_line, write_line;
  logic [READERS-1:0][TAG_BITS-1:0] read_tag;
  logic [READERS-1:0][63:0] write_bytes;
  logic [READERS-1:0][511:0] write_data;
  logic [TAG_BITS-1:0] line_tag;
  logic [511:0] line_data;
  // a control program that begins anew has no arenas
  assign arena_write = restart || (host_valid && host_write);
  assign arena_word = restart ? 11'(LORA_REG_ARENA_COUNT / 4) : host_word;
  assign arena_stored = restart ? 32'd0 : host_stored;
  card_memory #(
      .PORTS(READERS),
      .TAG_BITS(TAG_BITS)
  ) memory (
      .clk(clk),
      .rst(rst),
      .arena_write(arena_write),
      .arena_word(arena_word),
      .arena_stored(arena_stored),
      .onchip_bytes(32'(ONCHIP_BYTES)),
      .unit_read_valid(reads),
      .unit_read_ready(reads_taken),
      .unit_read_bank(read_bank),
      .unit_read_line(read_line),
      .unit_read_tag(read_tag),
      .unit_line_valid(lines),
      .unit_line_tag(line_tag),
      .unit_line_data(line_data),
      .unit_line_refused(refused),
      .unit_line_error(failed),
      .unit_write_valid(writes),
      .unit_write_ready(writes_taken),
      .unit_write_bank(write_bank),
      .unit_write_line(write_line),
      .unit_write_bytes(write_bytes),
      .unit_write_data(write_data),
      .unit_write_open(open),
      .unit_write_refused(write_refused),
      .unit_write_error(write_failed),
      .read_valid(lines_read_valid),
      .read_ready(lines_read_ready),
      .read_onchip(lines_read_onchip),
      .read_line(lines_read_line),
      .read_tag(lines_read_tag),
      .line_valid(lines_line_valid),
      .line_tag(lines_line_tag),
      .line_data(lines_line_data),
      .line_error(lines_line_error),
      .write_valid(lines_write_valid),
      .write_ready(lines_write_ready),
      .write_onchip(lines_write_onchip),
      .write_line(lines_write_line),
      .write_bytes(lines_write_bytes),
      .write_data(lines_write_data),
      .write_id(lines_write_id),
      .written(lines_written),
      .written_id(lines_written_id),
      .written_error(lines_written_error)
  );

  // --- units -----------------------------------------------------------------------------------------
  vector_part vector_here (
      .clk(clk),
      .rst(rst),
      .unit_announce(announces[VFU]),
      .unit_line(unit_line),
      .unit_rows(unit_rows),
      .unit_start(starts[VFU]),
      .unit_abort(aborts[VFU]),
      .unit_idle(vfu_idle),
      .result_valid(vfu_valid),
      .result_ready(ready[VFU]),
      .result_state(vfu_state),
      .result_status(vfu_status),
      .result_nonfinite_count(vfu_count),
      .result_nonfinite_row(vfu_first_row),
      .onchip_bytes(32'(ONCHIP_BYTES)),
      .list_head_dim(list.head_dim),
      .control_bank(list.control_bank),
      .block_offset(step.block_offset),
      .row(row[OF_VFU]),
      .row_selected(row_selected[OF_VFU]),
      .row_number(found[OF_VFU].number),
      .row_flags(found[OF_VFU].fields.flags),
      .row_token(found[OF_VFU].fields.token),
      .row_position(found[OF_VFU].fields.position),
      .read_valid(reads[OF_VFU]),
      .read_ready(reads_taken[OF_VFU]),
      .read_bank(read_bank[OF_VFU]),
      .read_line(read_line[OF_VFU]),
      .read_tag(read_tag[OF_VFU]),
      .line_valid(lines[OF_VFU]),
      .line_tag(line_tag),
      .line_data(line_data),
      .line_refused(refused[OF_VFU]),
      .line_error(failed[OF_VFU]),
      .write_valid(writes[OF_VFU]),
      .write_ready(writes_taken[OF_VFU]),
      .write_bank(write_bank[OF_VFU]),
      .write_line(write_line[OF_VFU]),
      .write_bytes(write_bytes[OF_VFU]),
      .write_data(write_data[OF_VFU]),
      .write_open(open[OF_VFU]),
      .write_refused(write_refused[OF_VFU]),
      .write_error(write_failed[OF_VFU])
  );
  assign read_tag[OF_DMA][TAG_BITS-1:6] = '0;
  dma dma_here (
      .clk(clk),
      .rst(rst),
      .unit_announce(announces[DMA]),
      .unit_line(unit_line),
      .unit_start(starts[DMA]),
      .unit_abort(aborts[DMA]),
      .unit_idle(dma_idle),
      .result_valid(dma_valid),
      .result_ready(ready[DMA]),
      .result_state(dma_state),
      .result_status(dma_status),
      .result_value(dma_value),
      .arena_write(arena_write),
      .arena_word(arena_word),
      .arena_stored(arena_stored),
      .onchip_bytes(32'(ONCHIP_BYTES)),
      .kv_type(list.kv_type),
      .head_dim(list.head_dim),
      .kv_layers(list.kv_layers),
      .kv_heads_count(list.kv_heads),
      .page_count(list.page_count[16:0]),
      .kv_bank_first(list.kv_bank_first),
      .kv_bank_count(list.kv_bank_count),
      .kv_line(list.kv_line),
      .spill_page(list.kv_spill_page),
      .spill_bank_first(list.kv_spill_bank_first),
      .spill_bank_count(list.kv_spill_bank_count),
      .spill_line(list.kv_spill_line),
      .control_bank(list.control_bank),
      .table_bank(list.table_bank),
      .table_line(list.table_line),
      .max_scratch(list.max_scratch),
      .max_sequences(list.max_sequences),
      .max_tiles(list.max_tiles),
      .row_count(step.row_count),
      .selected_count(step.selected_count),
      .op_count(step.op_count),
      .ops_offset(step.ops_offset),
      .path_count(step.path_count),
      .path_offset(step.path_offset),
      .row(row[OF_DMA]),
      .row_slot(found[OF_DMA].fields.slot),
      .row_selected(found[OF_DMA].selected),
      .read_valid(reads[OF_DMA]),
      .read_ready(reads_taken[OF_DMA]),
      .read_bank(read_bank[OF_DMA]),
      .read_line(read_line[OF_DMA]),
      .read_tag(read_tag[OF_DMA][5:0]),
      .line_valid(lines[OF_DMA]),
      .line_tag(line_tag[5:0]),
      .line_data(line_data),
      .line_error(failed[OF_DMA] || refused[OF_DMA]),
      .write_valid(writes[OF_DMA]),
      .write_ready(writes_taken[OF_DMA]),
      .write_bank(write_bank[OF_DMA]),
      .write_line(write_line[OF_DMA]),
      .write_bytes(write_bytes[OF_DMA]),
      .write_data(write_data[OF_DMA]),
      .write_open(open[OF_DMA]),
      .write_error(write_failed[OF_DMA] || write_refused[OF_DMA])
  );
endmodule
