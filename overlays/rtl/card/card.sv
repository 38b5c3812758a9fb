// SPDX-License-Identifier: Apache-2.0
// A card: the control and all units behind one memory port; with CHANNELS, weights of INT8 matmuls come by a port a bank,
// K and V by a port an attention unit.
// The control's own way to memory and the host's registers are as `control` has them.
module card
  import abi_types::*;
  import attention_types::*;
  import card_types::*;
  import sequencer_types::*;
  import rv32_types::*;
#(
    parameter int ONCHIP_BYTES  = 16 << 20,
    parameter int CYCLES_PER_MS = 200_000,
    parameter int LANES         = 32,      // as mpu_unit has them
    parameter int DSP48         = 0,
    parameter int DSP58         = 0,
    parameter int MPU_ROWS      = 1,
    parameter int DEPTH         = 8,
    parameter int TILES         = 4096,
    parameter int CHANNELS      = 0,       // as mpu_unit has them: channel i reads bank i by a port of its own
    parameter int BANKS         = CHANNELS > 0 ? CHANNELS : 1,
    parameter int ATTENTIONS    = CHANNELS > 0 ? 4 : 1,  // as mpu_unit has them
    parameter int FLOAT_ATTENTIONS = ATTENTIONS > 1 ? 2 : 1,
    parameter int AHEAD         = CHANNELS > 0 ? 3 : 1,  // as mpu_unit has it: two matmuls, and attention between them
    parameter int PIPES         = CHANNELS > 0 ? 16 : 0,  // as vector_unit has them
    parameter int SLEEPS        = 0        // 1, for simulation: units and memory have no clock while nothing happens there
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
    output logic [19:0]           lines_read_tag,
    input  logic                  lines_line_valid,
    input  logic [19:0]           lines_line_tag,
    input  logic [511:0]          lines_line_data,
    input  logic                  lines_line_error,
    output logic                  lines_write_valid,
    input  logic                  lines_write_ready,
    output logic                  lines_write_onchip,
    output logic [41:0]           lines_write_line,
    output logic [63:0]           lines_write_bytes,
    output logic [511:0]          lines_write_data,
    output logic [4:0]            lines_write_id,
    input  logic                  lines_written,
    input  logic [4:0]            lines_written_id,
    input  logic                  lines_written_error,
    // memory of the channels, as bank_ports has it; lines of one come in the order of its requests
    /* verilator lint_off UNUSEDSIGNAL */  // without CHANNELS
    output logic [BANKS-1:0]      channel_read_valid,
    input  logic [BANKS-1:0]      channel_read_ready,
    output logic [41:0]           channel_read_line[BANKS],
    input  logic [BANKS-1:0]      channel_line_valid,
    input  logic [BANKS-1:0]      channel_line_error,
    input  logic [511:0]          channel_line_data[BANKS],
    // of the attention units, likewise, in any order
    output logic [ATTENTIONS-1:0] kv_read_valid,
    input  logic [ATTENTIONS-1:0] kv_read_ready,
    output logic [41:0]           kv_read_line[ATTENTIONS],
    output short_tag_t            kv_read_tag[ATTENTIONS],
    input  logic [ATTENTIONS-1:0] kv_line_valid,
    output logic [ATTENTIONS-1:0] kv_line_ready,
    input  short_tag_t            kv_line_tag[ATTENTIONS],
    input  logic [ATTENTIONS-1:0] kv_line_error,
    input  logic [511:0]          kv_line_data[ATTENTIONS],
    /* verilator lint_on UNUSEDSIGNAL */
    // links: frames as AXI streams
    input  logic [1:0]            link_up,
    input  logic [1:0]            rx_valid,
    output logic [1:0]            rx_ready,
    input  logic [1:0][511:0]     rx_data,
    input  logic [1:0][63:0]      rx_keep,
    input  logic [1:0]            rx_last,
    output logic [1:0]            tx_valid,
    input  logic [1:0]            tx_ready,
    output logic [1:0][511:0]     tx_data,
    output logic [1:0][63:0]      tx_keep,
    output logic [1:0]            tx_last,
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
    output logic                  router_wrote,   // a link test's record, in local memory
    output logic [LOCAL_BITS-3:0] router_word,
    output logic [31:0]           router_stored,
    output logic [UNITS-1:0][13:0] run_index,      // of the command that a unit runs, of a list
    output logic [UNITS-1:0][6:0]  run_rows
);
  localparam int MPU = LORA_UNIT_MPU, VFU = LORA_UNIT_VFU, DMA = LORA_UNIT_DMA, ROUTER = LORA_UNIT_ROUTER;
  logic mpu_clk, vfu_clk, dma_clk, router_clk, memory_clk;

  // --- commands: of the sequencer and of the core's mailboxes ----------------------------------------
  logic [LORA_UNITS-1:0] mail_start, mail_abort;
  logic [31:0] link_epoch;
  logic [LOCAL_BITS-1:0] link_list, link_state, link_test;
  logic link_poison, link_test_start, link_test_done, link_test_failed;
  logic mail_write, run_start, feed_busy, feed_start, sequencer_abort;
  logic [2:0] mail_which;
  logic [5:0] mail_word;
  logic [31:0] mail_stored, mail_data;
  logic [LOCAL_BITS-1:0] run_list, run_state, mail_list, mail_state;
  logic [UNITS-1:0] run_announces, mail_announces, announces, run_starts, mail_starts, starts, aborts, mail_runs;
  logic [511:0] run_line, mail_line, unit_line;
  logic [6:0] run_line_rows, mail_line_rows, unit_rows;
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
  // local memory: the loader first, then the feed, then the Router's link test
  logic feed_load, router_load, core_load_ready;
  logic [3:0] router_write, local_write;
  logic [LOCAL_BITS-3:0] feed_word, local_word;
  logic [31:0] local_stored;
  always_comb begin
    load_ready = core_load_ready;
    {local_write, local_word, local_stored} = {load_write, load_word, load_stored};
    if (!load_valid) {local_write, local_word, local_stored} = {router_write, router_word, router_stored};
    if (!load_valid && feed_load) {local_write, local_word} = {4'd0, feed_word};
  end
  assign router_wrote = router_load && router_write != 4'd0 && core_load_ready && !load_valid && !feed_load;
  // of the Router
  logic [2:0][31:0] frames;
  logic [4:0][31:0] progress;
  groups_t segments;
  control #(
      .ONCHIP_BYTES(ONCHIP_BYTES),
      .CYCLES_PER_MS(CYCLES_PER_MS),
      .MPU_AHEAD(AHEAD)
  ) its_control (
      .clk(clk),
      .rst(rst),
      .restart(restart),
      .identity(identity),
      .load_valid(load_valid || feed_load || router_load),
      .load_ready(core_load_ready),
      .load_write(local_write),
      .load_word(local_word),
      .load_stored(local_stored),
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
      .result_frames(frames),
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
      .result_frames(frames),
      .segments(segments),
      .progress(progress)
  );

  // --- list, step and rows ---------------------------------------------------------------------------
  // Poison is of the step that the control names, which may be one that never began.
  localparam int OF_VFU = 0, OF_DMA = 1, OF_MPU = 2, OF_ROUTER = 3, READERS = 3, PORTS = 4;
  logic poison_waits, poisons;
  assign poisons = poison_waits && !feed_busy;
  always_ff @(posedge clk) begin
    if (poisons) poison_waits <= 1'b0;
    if (link_poison) poison_waits <= 1'b1;
    if (rst || restart) poison_waits <= 1'b0;
  end
  logic [READERS-1:0][5:0] row;
  logic [READERS-1:0] row_selected;
  step_row_t [READERS-1:0] found;
  logic [6:0] slot;
  logic [15:0] slot_parent;
  assign row_selected[OF_DMA] = 1'b0;
  step_feed #(
      .READERS(READERS)
  ) feed (
      .clk(clk),
      .rst(rst || restart),
      .start(run_start || feed_start || link_poison),
      .list_place(link_poison ? link_list : run_start ? run_list : mail_list),
      .state_place(link_poison ? link_state : run_start ? run_state : mail_state),
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
      .slot(slot),
      .slot_parent(slot_parent)
  );

  // --- what the units that are here tell -------------------------------------------------------------
  logic mpu_idle, mpu_valid, vfu_idle, vfu_valid, dma_idle, dma_valid, router_idle, router_valid;
  logic [1:0] mpu_state, vfu_state, dma_state, router_state;
  logic [7:0] mpu_status, vfu_status, dma_status, router_status, router_port;
  logic [31:0] mpu_count, mpu_first_row, vfu_count, vfu_first_row, dma_value, router_sum;
  always_comb begin
    idle = '1;  // the control is no unit
    {valid, states, statuses, ports, counts, first_rows, values} = '0;
    {idle[MPU], valid[MPU], states[MPU], statuses[MPU]} = {mpu_idle, mpu_valid, mpu_state, mpu_status};
    {counts[MPU], first_rows[MPU]} = {mpu_count, mpu_first_row};
    {idle[VFU], valid[VFU], states[VFU], statuses[VFU]} = {vfu_idle, vfu_valid, vfu_state, vfu_status};
    {counts[VFU], first_rows[VFU]} = {vfu_count, vfu_first_row};
    {idle[DMA], valid[DMA], states[DMA], statuses[DMA]} = {dma_idle, dma_valid, dma_state, dma_status};
    {counts[DMA], first_rows[DMA], values[DMA]} = {32'd0, 32'hffff_ffff, dma_value};
    {idle[ROUTER], valid[ROUTER], states[ROUTER]} = {router_idle, router_valid, router_state};
    {statuses[ROUTER], ports[ROUTER], values[ROUTER]} = {router_status, router_port, router_sum};
    {counts[ROUTER], first_rows[ROUTER]} = {32'd0, 32'hffff_ffff};
  end

  // --- memory ----------------------------------------------------------------------------------------
  localparam int TAG_BITS = 18;
  logic arena_write;
  logic [10:0] arena_word;
  logic [31:0] arena_stored;
  logic [PORTS-1:0] reads, reads_taken, lines, refused, failed, writes, writes_taken, open, write_refused,
      write_failed;
  logic [PORTS-1:0][5:0] read_bank, write_bank;
  logic [PORTS-1:0][31:0] read_line, write_line;
  logic [PORTS-1:0][TAG_BITS-1:0] read_tag;
  logic [PORTS-1:0][63:0] write_bytes;
  logic [PORTS-1:0][511:0] write_data;
  logic [TAG_BITS-1:0] line_tag;
  logic [511:0] line_data;
  // a control program that begins anew has no arenas
  assign arena_write = restart || (host_valid && host_write);
  assign arena_word = restart ? 11'(LORA_REG_ARENA_COUNT / 4) : host_word;
  assign arena_stored = restart ? 32'd0 : host_stored;
  card_memory #(
      .PORTS(PORTS),
      .TAG_BITS(TAG_BITS)
  ) memory (
      .clk(memory_clk),
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

  /* verilator lint_off UNUSEDSIGNAL */  // without CHANNELS
  logic [BANKS-1:0] bank_read_valid, bank_read_ready, bank_line_valid, bank_line_refused, bank_line_error;
  logic [31:0] bank_read_line[BANKS];
  logic [511:0] bank_line_data[BANKS];
  logic [ATTENTIONS-1:0] page_read_valid, page_read_ready, page_line_valid, page_line_ready, page_line_refused,
      page_line_error;
  logic [5:0] page_read_bank[ATTENTIONS];
  logic [31:0] page_read_line[ATTENTIONS];
  short_tag_t page_read_tag[ATTENTIONS], page_line_tag[ATTENTIONS];
  logic [511:0] page_line_data[ATTENTIONS];
  /* verilator lint_on UNUSEDSIGNAL */
  if (CHANNELS != 0) begin : of_banks
    logic [5:0] banks[BANKS];
    logic [0:0] no_tags[BANKS];
    for (genvar b = 0; b < BANKS; b++) begin : numbers
      assign {banks[b], no_tags[b]} = {6'(b), 1'b0};
    end
    bank_ports #(
        .READERS(CHANNELS),
        .BANKS(1)
    ) to_banks (
        .clk(memory_clk),
        .rst(rst),
        .arena_write(arena_write),
        .arena_word(arena_word),
        .arena_stored(arena_stored),
        .bank_read_valid(bank_read_valid),
        .bank_read_ready(bank_read_ready),
        .bank_read_bank(banks),
        .bank_read_line(bank_read_line),
        .bank_read_tag(no_tags),
        .bank_line_valid(bank_line_valid),
        .bank_line_ready('1),
        .bank_line_data(bank_line_data),
        .bank_line_refused(bank_line_refused),
        .bank_line_error(bank_line_error),
        .read_valid(channel_read_valid),
        .read_ready(channel_read_ready),
        .read_line(channel_read_line),
        .line_valid(channel_line_valid),
        .line_tag(no_tags),
        .line_error(channel_line_error),
        .line_data(channel_line_data),
        // verilator lint_off PINCONNECTEMPTY
        .bank_line_tag(),
        .read_tag(),
        .line_ready()
        // verilator lint_on PINCONNECTEMPTY
    );
  end else begin : no_banks
    assign {channel_read_valid, bank_read_ready, bank_line_valid, bank_line_refused, bank_line_error} = '0;
    assign channel_read_line[0] = '0;
    assign bank_line_data[0] = '0;
  end
  if (ATTENTIONS > 1) begin : of_pages
    bank_ports #(
        .READERS(ATTENTIONS),
        .TAG_BITS($bits(short_tag_t))
    ) to_pages (
        .clk(memory_clk),
        .rst(rst),
        .arena_write(arena_write),
        .arena_word(arena_word),
        .arena_stored(arena_stored),
        .bank_read_valid(page_read_valid),
        .bank_read_ready(page_read_ready),
        .bank_read_bank(page_read_bank),
        .bank_read_line(page_read_line),
        .bank_read_tag(page_read_tag),
        .bank_line_valid(page_line_valid),
        .bank_line_ready(page_line_ready),
        .bank_line_tag(page_line_tag),
        .bank_line_data(page_line_data),
        .bank_line_refused(page_line_refused),
        .bank_line_error(page_line_error),
        .read_valid(kv_read_valid),
        .read_ready(kv_read_ready),
        .read_line(kv_read_line),
        .read_tag(kv_read_tag),
        .line_valid(kv_line_valid),
        .line_ready(kv_line_ready),
        .line_tag(kv_line_tag),
        .line_error(kv_line_error),
        .line_data(kv_line_data)
    );
  end else begin : no_pages
    assign {kv_read_valid, kv_line_ready, page_read_ready, page_line_valid, page_line_refused, page_line_error} = '0;
    assign {kv_read_line[0], kv_read_tag[0], page_line_tag[0], page_line_data[0]} = '0;
  end

`ifndef SYNTHESIS
  if (ATTENTIONS != 1 && CHANNELS == 0) begin : no_banks_for_pages
    $error("ATTENTIONS: more than one needs CHANNELS");
  end
`endif

  // --- clocks ----------------------------------------------------------------------------------------
  // Simulated, a unit that sleeps costs nothing. It has come to rest when it was idle for a while; what may change its state
  // wakes it in the same cycle. In hardware all have the card's clock.
  if (SLEEPS != 0) begin : gated
    localparam int REST = 255;
    logic [PORTS:0] wake, awake, opens;
    logic [PORTS:0][7:0] left;
    logic [31:0] epoch_before;
    logic tests;
    always_comb begin
      {wake[OF_MPU], wake[OF_VFU]} = ~{mpu_idle, vfu_idle} | {mpu_valid, vfu_valid};
      {wake[OF_DMA], wake[OF_ROUTER]} = ~{dma_idle, router_idle} | {dma_valid, router_valid};
      wake[OF_DMA] |= arena_write;
      wake[OF_ROUTER] |= rx_valid != '0 || tx_valid != '0 || poisons || link_test_start || tests || router_load ||
          link_epoch != epoch_before;
      wake[OF_MPU] |= announces[MPU] || starts[MPU] || aborts[MPU];
      wake[OF_VFU] |= announces[VFU] || starts[VFU] || aborts[VFU];
      wake[OF_DMA] |= announces[DMA] || starts[DMA] || aborts[DMA];
      wake[OF_ROUTER] |= announces[ROUTER] || starts[ROUTER] || aborts[ROUTER];
      wake[PORTS-1:0] |= reads | writes | lines | open | refused | failed | {PORTS{rst}};
      wake[PORTS] = wake[PORTS-1:0] != '0 || arena_write || lines_line_valid || lines_written || lines_read_valid ||
          lines_write_valid;
      for (int p = 0; p <= PORTS; p++) awake[p] = wake[p] || left[p] != '0;
    end
    always_ff @(posedge clk) begin
      for (int p = 0; p <= PORTS; p++) left[p] <= wake[p] ? 8'(REST) : left[p] - 8'(left[p] != '0);
      epoch_before <= link_epoch;
      if (link_test_done || link_test_failed) tests <= 1'b0;
      if (link_test_start) tests <= 1'b1;
      if (rst || restart) tests <= 1'b0;
    end
    always_latch if (!clk) opens = awake;
    assign {memory_clk, router_clk, mpu_clk, dma_clk, vfu_clk} = {PORTS + 1{clk}} & opens;
  end else begin : always_on
    assign {memory_clk, router_clk, mpu_clk, dma_clk, vfu_clk} = {PORTS + 1{clk}};
  end

  // --- units -----------------------------------------------------------------------------------------
  mpu_unit #(
      .LANES(LANES),
      .DSP48(DSP48),
      .DSP58(DSP58),
      .ROWS(MPU_ROWS),
      .DEPTH(DEPTH),
      .TILES(TILES),
      .TAG_BITS(TAG_BITS),
      .CHANNELS(CHANNELS),
      .ATTENTIONS(ATTENTIONS),
      .FLOAT_ATTENTIONS(FLOAT_ATTENTIONS),
      .AHEAD(AHEAD)
  ) mpu_here (
      .clk(mpu_clk),
      .rst(rst),
      .unit_announce(announces[MPU]),
      .unit_line(unit_line),
      .unit_rows(unit_rows),
      .unit_start(starts[MPU]),
      .unit_abort(aborts[MPU]),
      .unit_idle(mpu_idle),
      .result_valid(mpu_valid),
      .result_ready(ready[MPU]),
      .result_state(mpu_state),
      .result_status(mpu_status),
      .result_nonfinite_count(mpu_count),
      .result_nonfinite_row(mpu_first_row),
      .list_onchip_bytes(32'(ONCHIP_BYTES)),
      .list_kv_type(list.kv_type),
      .list_kv_layers(list.kv_layers),
      .list_kv_heads(list.kv_heads),
      .list_head_dim(list.head_dim),
      .list_kv_bank_first(list.kv_bank_first[5:0]),
      .list_kv_bank_count(list.kv_bank_count[5:0]),
      .list_kv_line(list.kv_line),
      .list_kv_spill_page(list.kv_spill_page[16:0]),
      .list_kv_spill_bank_first(list.kv_spill_bank_first[5:0]),
      .list_kv_spill_bank_count(list.kv_spill_bank_count[5:0]),
      .list_kv_spill_line(list.kv_spill_line),
      .list_table_bank(list.table_bank[5:0]),
      .list_table_line(list.table_line),
      .list_max_tiles(list.max_tiles),
      .list_adapter_slots(list.adapter_slots[10:0]),
      .list_adapter_chunks(list.adapter_chunks[20:0]),
      .list_adapter_matrices(list.adapter_matrices[15:0]),
      .list_adapter_columns(list.adapter_columns[24:0]),
      .list_adapter_line(list.adapter_line),
      .list_adapter_bank_first(list.adapter_bank_first[5:0]),
      .list_adapter_bank_count(list.adapter_bank_count[5:0]),
      .row(row[OF_MPU]),
      .row_selected(row_selected[OF_MPU]),
      .row_number(found[OF_MPU].number),
      .row_sequence(found[OF_MPU].fields.sequence_number),
      .row_slot(found[OF_MPU].fields.slot),
      .row_committed(found[OF_MPU].fields.committed),
      .row_adapter(found[OF_MPU].fields.adapter),
      .slot(slot),
      .slot_parent(slot_parent),
      .read_valid(reads[OF_MPU]),
      .read_ready(reads_taken[OF_MPU]),
      .read_bank(read_bank[OF_MPU]),
      .read_line(read_line[OF_MPU]),
      .read_tag(read_tag[OF_MPU]),
      .line_valid(lines[OF_MPU]),
      .line_tag(line_tag),
      .line_data(line_data),
      .line_refused(refused[OF_MPU]),
      .line_error(failed[OF_MPU]),
      .write_valid(writes[OF_MPU]),
      .write_ready(writes_taken[OF_MPU]),
      .write_bank(write_bank[OF_MPU]),
      .write_line(write_line[OF_MPU]),
      .write_bytes(write_bytes[OF_MPU]),
      .write_data(write_data[OF_MPU]),
      .write_refused(write_refused[OF_MPU]),
      .write_error(write_failed[OF_MPU]),
      .write_open(open[OF_MPU]),
      .bank_read_valid(bank_read_valid),
      .bank_read_ready(bank_read_ready),
      .bank_read_line(bank_read_line),
      .bank_line_valid(bank_line_valid),
      .bank_line_data(bank_line_data),
      .bank_line_refused(bank_line_refused),
      .bank_line_error(bank_line_error),
      .kv_read_valid(page_read_valid),
      .kv_read_ready(page_read_ready),
      .kv_read_bank(page_read_bank),
      .kv_read_line(page_read_line),
      .kv_read_tag(page_read_tag),
      .kv_line_valid(page_line_valid),
      .kv_line_ready(page_line_ready),
      .kv_line_tag(page_line_tag),
      .kv_line_data(page_line_data),
      .kv_line_refused(page_line_refused),
      .kv_line_error(page_line_error)
  );
  assign read_tag[OF_VFU][TAG_BITS-1:16] = '0;
  vector_part #(
      .PIPES(PIPES)
  ) vector_here (
      .clk(vfu_clk),
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
      .read_tag(read_tag[OF_VFU][15:0]),
      .line_valid(lines[OF_VFU]),
      .line_tag(line_tag[15:0]),
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
  assign read_tag[OF_DMA][TAG_BITS-1:7] = '0;
  dma dma_here (
      .clk(dma_clk),
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
      .read_tag(read_tag[OF_DMA][6:0]),
      .line_valid(lines[OF_DMA]),
      .line_tag(line_tag[6:0]),
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
  logic [31:0] serial;
  assign serial = identity[1];
  assign read_tag[OF_ROUTER][TAG_BITS-1:4] = '0;
  router router_here (
      .clk(router_clk),
      .rst(rst),
      .unit_announce(announces[ROUTER]),
      .unit_line(unit_line),
      .unit_rows(unit_rows),
      .held(!feed_busy),
      .unit_start(starts[ROUTER]),
      .unit_abort(aborts[ROUTER]),
      .unit_idle(router_idle),
      .result_valid(router_valid),
      .result_ready(ready[ROUTER]),
      .result_state(router_state),
      .result_status(router_status),
      .result_port(router_port),
      .result_sum(router_sum),
      .result_frames(frames),
      .segments(segments),
      .progress(progress),
      .list_rank(list.rank),
      .list_boards(list.boards),
      .list_ring(list.ring != 8'd0),
      .port_next(list.port_next),
      .port_previous(list.port_previous),
      .stage_boards(list.stage_boards),
      .onchip_bytes(32'(ONCHIP_BYTES)),
      .epoch(link_epoch),
      .step(step.step),
      .poison_valid({2{poisons}} & {list.port_next == 8'd1 || list.port_previous == 8'd1,
                                    list.port_next == 8'd0 || list.port_previous == 8'd0}),
      .poison_epoch(step.epoch),
      .poison_step(step.step),
      .poison_source(list.rank),
      .test_start(link_test_start),
      .test_record(link_test),
      .test_done(link_test_done),
      .test_failed(link_test_failed),
      .serial(serial),
      .local_valid(router_load),
      .local_ready(core_load_ready && !load_valid && !feed_load),
      .local_write(router_write),
      .local_word(router_word),
      .local_stored(router_stored),
      .local_data(load_data),
      .link_up(link_up),
      .rx_valid(rx_valid),
      .rx_ready(rx_ready),
      .rx_data(rx_data),
      .rx_keep(rx_keep),
      .rx_last(rx_last),
      .tx_valid(tx_valid),
      .tx_ready(tx_ready),
      .tx_data(tx_data),
      .tx_keep(tx_keep),
      .tx_last(tx_last),
      .read_valid(reads[OF_ROUTER]),
      .read_ready(reads_taken[OF_ROUTER]),
      .read_bank(read_bank[OF_ROUTER]),
      .read_line(read_line[OF_ROUTER]),
      .read_tag(read_tag[OF_ROUTER][3:0]),
      .line_valid(lines[OF_ROUTER]),
      .line_tag(line_tag[3:0]),
      .line_data(line_data),
      .write_valid(writes[OF_ROUTER]),
      .write_ready(writes_taken[OF_ROUTER]),
      .write_bank(write_bank[OF_ROUTER]),
      .write_line(write_line[OF_ROUTER]),
      .write_bytes(write_bytes[OF_ROUTER]),
      .write_data(write_data[OF_ROUTER])
  );
endmodule
