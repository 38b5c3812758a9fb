// SPDX-License-Identifier: Apache-2.0
// A board's control among its clocks: the host's registers in the shell's clock (AXI4-Lite), board memory in
// the memory's (AXI4), each link's commands in the link's. Units are in the control's clock. Clocks have
// nothing to do with each other; all that passes between them passes cells of ../crossing.
module control_clocks
  import abi_types::*;
  import sequencer_types::*;
  import rv32_types::*;
#(
    parameter int ONCHIP_BYTES  = 16 << 20,
    parameter int CYCLES_PER_MS = 200_000,
    parameter int LINKS         = 2
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  restart,
    // the shell's clock. Its reset is the control's too
    input  logic                  host_clk,
    input  logic                  host_rst,
    input  logic                  s_axi_control_awvalid,
    output logic                  s_axi_control_awready,
    input  logic [12:0]           s_axi_control_awaddr,
    input  logic                  s_axi_control_wvalid,
    output logic                  s_axi_control_wready,
    input  logic [31:0]           s_axi_control_wdata,
    input  logic [3:0]            s_axi_control_wstrb,
    output logic                  s_axi_control_bvalid,
    input  logic                  s_axi_control_bready,
    output logic [1:0]            s_axi_control_bresp,
    input  logic                  s_axi_control_arvalid,
    output logic                  s_axi_control_arready,
    input  logic [12:0]           s_axi_control_araddr,
    output logic                  s_axi_control_rvalid,
    input  logic                  s_axi_control_rready,
    output logic [31:0]           s_axi_control_rdata,
    output logic [1:0]            s_axi_control_rresp,
    // verilator lint_off SYMRSVDWORD
    output logic                  interrupt,  // as the vendor's kernels call it
    // verilator lint_on SYMRSVDWORD
    // the memory's clock. Its reset is the control's too: what was asked for is never answered
    input  logic                  memory_clk,
    input  logic                  memory_rst,
    output logic                  m_axi_arvalid,
    input  logic                  m_axi_arready,
    output logic                  m_axi_arid,
    output logic [47:0]           m_axi_araddr,
    output logic [7:0]            m_axi_arlen,
    output logic [2:0]            m_axi_arsize,
    output logic [1:0]            m_axi_arburst,
    input  logic                  m_axi_rvalid,
    output logic                  m_axi_rready,
    input  logic                  m_axi_rid,
    input  logic [511:0]          m_axi_rdata,
    input  logic [1:0]            m_axi_rresp,
    input  logic                  m_axi_rlast,
    output logic                  m_axi_awvalid,
    input  logic                  m_axi_awready,
    output logic                  m_axi_awid,
    output logic [47:0]           m_axi_awaddr,
    output logic [7:0]            m_axi_awlen,
    output logic [2:0]            m_axi_awsize,
    output logic [1:0]            m_axi_awburst,
    output logic                  m_axi_wvalid,
    input  logic                  m_axi_wready,
    output logic [511:0]          m_axi_wdata,
    output logic [63:0]           m_axi_wstrb,
    output logic                  m_axi_wlast,
    input  logic                  m_axi_bvalid,
    output logic                  m_axi_bready,
    input  logic                  m_axi_bid,
    input  logic [1:0]            m_axi_bresp,
    // links, each in a clock of its own; a reset is that link's alone
    input  logic [LINKS-1:0]      link_clk,
    input  logic [LINKS-1:0]      link_rst,
    output logic [LINKS-1:0][31:0]           link_epoch,
    output logic [LINKS-1:0]                 link_poison,
    output logic [LINKS-1:0][LOCAL_BITS-1:0] link_list,
    output logic [LINKS-1:0][LOCAL_BITS-1:0] link_state,
    output logic [LINKS-1:0]                 link_test_start,
    output logic [LINKS-1:0][LOCAL_BITS-1:0] link_test,
    input  logic [LINKS-1:0]                 link_test_done,
    input  logic [LINKS-1:0]                 link_test_failed,
    input  logic [2:0][31:0]       identity,      // as control_core has it
    // local memory for others, as soft_core has it
    input  logic                  load_valid,
    output logic                  load_ready,
    input  logic [3:0]            load_write,
    input  logic [LOCAL_BITS-3:0] load_word,
    input  logic [31:0]           load_stored,
    output logic [31:0]           load_data,
    // units by their mailboxes, as control has them
    output logic [LORA_UNITS-1:0] mail_start,
    output logic [LORA_UNITS-1:0] mail_abort,
    input  logic                  unit_write,
    input  logic [2:0]            unit_which,
    input  logic [5:0]            unit_word,
    input  logic [31:0]           unit_stored,
    output logic [31:0]           unit_data,
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
    // units by the sequencer
    output logic [UNITS-1:0]       unit_announce,
    output logic [511:0]           unit_line,
    output logic [6:0]             unit_rows,
    output logic [LOCAL_BITS-1:0]  unit_list,
    output logic [LOCAL_BITS-1:0]  unit_state,
    output logic                   run_start,
    input  logic                   hold_units,
    output logic [UNITS-1:0]       unit_start,
    output logic                   unit_abort,
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
    input  groups_t                segments
);
  // --- resets ----------------------------------------------------------------------------------------
  logic host_resets, memory_resets, its_rst;
  reset_sync host_reset (
      .clk(clk),
      .request(host_rst),
      .rst(host_resets)
  );
  reset_sync memory_reset (
      .clk(clk),
      .request(memory_rst),
      .rst(memory_resets)
  );
  always_ff @(posedge clk) its_rst <= rst || host_resets || memory_resets;

  // --- host ------------------------------------------------------------------------------------------
  logic host_valid, host_write, done, its_interrupt, interrupts;
  logic [10:0] host_word;
  logic [31:0] host_stored, host_data, interrupt_data;
  host_port host (
      .host_clk(host_clk),
      .host_rst(host_rst),
      .awvalid(s_axi_control_awvalid),
      .awready(s_axi_control_awready),
      .awaddr(s_axi_control_awaddr),
      .wvalid(s_axi_control_wvalid),
      .wready(s_axi_control_wready),
      .wdata(s_axi_control_wdata),
      .wstrb(s_axi_control_wstrb),
      .bvalid(s_axi_control_bvalid),
      .bready(s_axi_control_bready),
      .bresp(s_axi_control_bresp),
      .arvalid(s_axi_control_arvalid),
      .arready(s_axi_control_arready),
      .araddr(s_axi_control_araddr),
      .rvalid(s_axi_control_rvalid),
      .rready(s_axi_control_rready),
      .rdata(s_axi_control_rdata),
      .rresp(s_axi_control_rresp),
      .clk(clk),
      .rst(its_rst),
      .host_valid(host_valid),
      .host_write(host_write),
      .host_word(host_word),
      .host_stored(host_stored),
      .host_data(interrupts ? interrupt_data : host_data)
  );
  interrupt_registers interrupt_of (
      .clk(clk),
      .rst(its_rst || restart),
      .host_valid(host_valid),
      .host_write(host_write),
      .host_word(host_word),
      .host_stored(host_stored),
      .done(done),
      .mine(interrupts),
      .data(interrupt_data),
      .interrupt(its_interrupt)
  );
  bit_sync interrupt_there (
      .clk(host_clk),
      .d(its_interrupt),
      .q(interrupt)
  );

  // --- board memory ----------------------------------------------------------------------------------
  logic memory_valid, memory_ready, memory_answers, memory_error;
  logic ar_valid, ar_ready, r_valid, r_ready, r_last, r_error;
  logic [47:0] memory_address;
  logic [3:0] memory_write, ar_beats;
  logic [31:0] memory_stored;
  logic [41:0] ar_line;
  logic [511:0] memory_line, r_data;
  memory_port memory (
      .clk(clk),
      .rst(its_rst),
      .memory_valid(memory_valid),
      .memory_ready(memory_ready),
      .memory_address(memory_address),
      .memory_write(memory_write),
      .memory_stored(memory_stored),
      .memory_answers(memory_answers),
      .memory_line(memory_line),
      .memory_error(memory_error),
      .ar_valid(ar_valid),
      .ar_ready(ar_ready),
      .ar_line(ar_line),
      .ar_beats(ar_beats),
      .r_valid(r_valid),
      .r_ready(r_ready),
      .r_data(r_data),
      .r_last(r_last),
      .r_error(r_error),
      .axi_clk(memory_clk),
      .axi_rst(memory_rst),
      .arvalid(m_axi_arvalid),
      .arready(m_axi_arready),
      .arid(m_axi_arid),
      .araddr(m_axi_araddr),
      .arlen(m_axi_arlen),
      .rvalid(m_axi_rvalid),
      .rready(m_axi_rready),
      .rid(m_axi_rid),
      .rdata(m_axi_rdata),
      .rresp(m_axi_rresp),
      .rlast(m_axi_rlast),
      .awvalid(m_axi_awvalid),
      .awready(m_axi_awready),
      .awaddr(m_axi_awaddr),
      .wvalid(m_axi_wvalid),
      .wready(m_axi_wready),
      .wdata(m_axi_wdata),
      .wstrb(m_axi_wstrb),
      .bvalid(m_axi_bvalid),
      .bready(m_axi_bready),
      .bresp(m_axi_bresp)
  );
  assign {m_axi_arsize, m_axi_awsize} = {2{3'd6}};  // 64 bytes
  assign {m_axi_arburst, m_axi_awburst} = {2{2'd1}};  // INCR
  assign {m_axi_awid, m_axi_awlen, m_axi_wlast} = {1'b1, 8'd0, 1'b1};

  // --- links -----------------------------------------------------------------------------------------
  logic poison, test_start, test_runs, test_done, test_failed;
  logic [31:0] epoch;
  logic [LOCAL_BITS-1:0] list_place, state_place, test_place;
  logic [LINKS-1:0] testing, tests_failed;
  for (genvar i = 0; i < LINKS; i++) begin : links
    link_port link (
        .clk(clk),
        .rst(its_rst),
        .restart(restart),
        .epoch(epoch),
        .list(list_place),
        .state(state_place),
        .poison(poison),
        .test(test_place),
        .test_start(test_start),
        .testing(testing[i]),
        .test_failed(tests_failed[i]),
        .link_clk(link_clk[i]),
        .link_rst(link_rst[i]),
        .link_epoch(link_epoch[i]),
        .link_poison(link_poison[i]),
        .link_list(link_list[i]),
        .link_state(link_state[i]),
        .link_test_start(link_test_start[i]),
        .link_test(link_test[i]),
        .link_test_done(link_test_done[i]),
        .link_test_failed(link_test_failed[i])
    );
  end
  // a test is over when all links have ended theirs
  always_ff @(posedge clk)
    test_runs <= !its_rst && !restart && (test_start || (test_runs && testing != '0));
  assign test_done = test_runs && !test_start && testing == '0 && tests_failed == '0;
  assign test_failed = test_runs && !test_start && testing == '0 && tests_failed != '0;

  control #(
      .ONCHIP_BYTES(ONCHIP_BYTES),
      .CYCLES_PER_MS(CYCLES_PER_MS)
  ) its_control (
      .clk(clk),
      .rst(its_rst),
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
      .link_epoch(epoch),
      .link_list(list_place),
      .link_state(state_place),
      .link_poison(poison),
      .link_test(test_place),
      .link_test_start(test_start),
      .link_test_done(test_done),
      .link_test_failed(test_failed),
      .ar_valid(ar_valid),
      .ar_ready(ar_ready),
      .ar_line(ar_line),
      .ar_beats(ar_beats),
      .r_valid(r_valid),
      .r_ready(r_ready),
      .r_data(r_data),
      .r_last(r_last),
      .r_error(r_error),
      .restart(restart),
      .identity(identity),
      .load_valid(load_valid),
      .load_ready(load_ready),
      .load_write(load_write),
      .load_word(load_word),
      .load_stored(load_stored),
      .load_data(load_data),
      .mail_start(mail_start),
      .mail_abort(mail_abort),
      .unit_write(unit_write),
      .unit_which(unit_which),
      .unit_word(unit_word),
      .unit_stored(unit_stored),
      .unit_data(unit_data),
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
      .unit_announce(unit_announce),
      .unit_line(unit_line),
      .unit_rows(unit_rows),
      .unit_list(unit_list),
      .unit_state(unit_state),
      .run_start(run_start),
      .hold_units(hold_units),
      .unit_start(unit_start),
      .unit_abort(unit_abort),
      .run_index(run_index),
      .run_rows(run_rows),
      .unit_idle(unit_idle),
      .result_valid(result_valid),
      .result_ready(result_ready),
      .result_state(result_state),
      .result_status(result_status),
      .result_nonfinite_count(result_nonfinite_count),
      .result_nonfinite_row(result_nonfinite_row),
      .result_port(result_port),
      .result_sum(result_sum),
      .result_frames(result_frames),
      .segments(segments)
  );
endmodule
