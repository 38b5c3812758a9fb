// SPDX-License-Identifier: Apache-2.0
// The soft core between what hal_card.h names: lora_ctrl's registers, the units' mailboxes, the links, the
// window to board memory, the board's constants. `restart` begins the control program anew; the window
// brings what it has asked of memory to its end.
module control_core
  import abi_types::*;
  import rv32_types::*;
#(
    parameter int ONCHIP_BYTES  = 16 << 20,
    parameter int CYCLES_PER_MS = 200_000,
    parameter bit SEQUENCER     = 1'b0      // who answers at `run_*`; without it the firmware dispatches
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  restart,
    // what the host reads at IDENTITY_BOARD, IDENTITY_SERIAL and FIRMWARE_CRC
    input  logic [2:0][31:0]       identity,
    // local memory for others, as soft_core has it
    input  logic                  load_valid,
    output logic                  load_ready,
    input  logic [3:0]            load_write,
    input  logic [LOCAL_BITS-3:0] load_word,
    input  logic [31:0]           load_stored,
    output logic [31:0]           load_data,
    // the host's registers; a word read is there a cycle later
    input  logic                  host_valid,
    input  logic                  host_write,
    input  logic [10:0]           host_word,
    input  logic [31:0]           host_stored,
    output logic [31:0]           host_data,
    output logic                  done,
    // board memory: a read brings the whole line of 64 bytes
    output logic                  memory_valid,
    input  logic                  memory_ready,
    output logic [47:0]           memory_address,
    output logic [3:0]            memory_write,
    output logic [31:0]           memory_stored,
    input  logic                  memory_answers,
    input  logic [511:0]           memory_line,
    input  logic                  memory_error,   // with the answer; the core stops
    // units
    output logic [LORA_UNITS-1:0] unit_start,
    output logic [LORA_UNITS-1:0] unit_abort,
    input  logic                  unit_write,
    input  logic [2:0]            unit_which,
    input  logic [5:0]            unit_word,
    input  logic [31:0]           unit_stored,
    output logic [31:0]           unit_data,
    // links
    output logic [31:0]           link_epoch,
    output logic [LOCAL_BITS-1:0] link_list,
    output logic [LOCAL_BITS-1:0] link_state,
    output logic                  link_poison,    // one cycle
    output logic [LOCAL_BITS-1:0] link_test,
    output logic                  link_test_start,
    input  logic                  link_test_done,
    input  logic                  link_test_failed,
    // registers of the sequencer, hal_card.h; a word read is there a cycle later
    output logic                  run_valid,
    output logic                  run_write,
    output logic [5:0]            run_word,
    output logic [31:0]           run_stored,
    input  logic [31:0]           run_data,
    output logic [35:0]           window_page,    // where it lies in board memory, in pages
    output logic [31:0]           arena_changes,
    // a command begins or is done
    output logic                  trace_valid,
    output logic [31:0]           trace_index,
    output logic [31:0]           trace_rows,
    output logic                  trace_end,
    output logic                  stopped,
    output logic [3:0]            stopped_cause,
    output logic [31:0]           stopped_pc,
    // what is done, in order, for simulation
    output logic                  retired,
    output logic [31:0]           retired_pc,
    output logic                  retired_writes,
    output logic [4:0]            retired_rd,
    output logic [31:0]           retired_value
);
  logic bus_valid, bus_ready, bus_error;
  logic [31:0] bus_address, bus_stored, bus_data;
  logic [3:0] bus_write;
  logic clearing;
  soft_core core (
      .clk(clk),
      .rst(rst || restart || clearing),
      .load_valid(load_valid),
      .load_ready(load_ready),
      .load_write(load_write),
      .load_word(load_word),
      .load_stored(load_stored),
      .load_data(load_data),
      .bus_valid(bus_valid),
      .bus_address(bus_address),
      .bus_write(bus_write),
      .bus_stored(bus_stored),
      .bus_ready(bus_ready),
      .bus_error(bus_error),
      .bus_data(bus_data),
      .stopped(stopped),
      .stopped_cause(stopped_cause),
      .stopped_pc(stopped_pc),
      .retired(retired),
      .retired_pc(retired_pc),
      .retired_writes(retired_writes),
      .retired_rd(retired_rd),
      .retired_value(retired_value)
  );

  // --- who answers: addresses and sizes of hal_card.h ------------------------------------------------
  logic registers, units, links, selects, board, window, run, first, answered;
  assign registers = bus_address[31:13] == 19'(32'h1000_0000 >> 13);
  assign units = bus_address[31:15] == 17'(32'h1100_0000 >> 15) &&
                 bus_address[14:12] < 3'(LORA_UNITS) && bus_address[11:8] == 4'd0;
  assign links = bus_address[31:5] == 27'(32'h1200_0000 >> 5);
  assign selects = bus_address[31:3] == 29'(32'h1300_0000 >> 3);
  assign board = bus_address[31:5] == 27'(32'h1400_0000 >> 5);
  assign run = SEQUENCER && bus_address[31:8] == 24'(32'h1500_0000 >> 8);
  assign window = bus_address[31:12] == 20'(32'h2000_0000 >> 12);
  // All but the window answer in the second cycle of an access; its first one does it.
  assign first = bus_valid && !answered;
  always_ff @(posedge clk) answered <= bus_valid && !bus_ready && !rst && !restart;
  logic window_ready, window_failed, writes;
  assign writes = first && bus_write != 4'd0;
  assign bus_ready = window ? window_ready : answered;
  assign bus_error = (window && window_failed) ||
      !(registers || units || links || selects || board || window || run);

  logic [31:0] register_data, mailbox_data, window_data, other_data;
  logic host_writes;
  control_registers register_file (
      .clk(clk),
      .rst(rst || restart),
      .core_valid(first && registers),
      .core_write(bus_write),
      .core_word(bus_address[12:2]),
      .core_stored(bus_stored),
      .core_data(register_data),
      .host_valid(host_valid),
      .host_write(host_write),
      .host_word(host_word),
      .host_stored(host_stored),
      .host_data(host_data),
      .identity(identity),
      .stopped(stopped),
      .stopped_cause(stopped_cause),
      .stopped_pc(stopped_pc),
      .host_writes(host_writes),
      .clearing(clearing),
      .done(done)
  );
  unit_mailboxes mailboxes (
      .clk(clk),
      .rst(rst || restart),
      .core_valid(first && units),
      .core_write(bus_write),
      .core_unit(bus_address[14:12]),
      .core_word(bus_address[7:2]),
      .core_stored(bus_stored),
      .core_data(mailbox_data),
      .unit_write(unit_write),
      .unit_which(unit_which),
      .unit_word(unit_word),
      .unit_stored(unit_stored),
      .unit_data(unit_data),
      .unit_start(unit_start),
      .unit_abort(unit_abort)
  );

  // --- window ----------------------------------------------------------------------------------------
  logic [31:0] bank, page;
  logic look, look_over, look_covered;
  logic [35:0] look_address;
  always_ff @(posedge clk)
    if (writes && selects) begin
      if (bus_address[2]) page <= bus_stored;
      else bank <= bus_stored;
    end
  arena_table arenas (
      .clk(clk),
      .rst(rst || restart),
      .write(host_writes),
      .word(host_word),
      .stored(host_stored),
      .look(look),
      .bank(bank),
      .page(page),
      .over(look_over),
      .covered(look_covered),
      .address(look_address)
  );
  memory_window memory (
      .clk(clk),
      .rst(rst),
      .valid(bus_valid && window && !restart),
      .write(bus_write),
      .offset(bus_address[11:0]),
      .stored(bus_stored),
      .ready(window_ready),
      .data(window_data),
      .failed(window_failed),
      .changed((writes && selects) || host_writes),
      .look(look),
      .look_over(look_over),
      .look_covered(look_covered),
      .look_address(look_address),
      .memory_valid(memory_valid),
      .memory_ready(memory_ready),
      .memory_address(memory_address),
      .memory_write(memory_write),
      .memory_stored(memory_stored),
      .memory_answers(memory_answers),
      .memory_line(memory_line),
      .memory_error(memory_error),
      .page(window_page)
  );
  assign run_valid = first && run;
  assign run_write = bus_write == 4'hf;
  assign run_word = bus_address[7:2];
  assign run_stored = bus_stored;
  always_ff @(posedge clk)
    if (rst) arena_changes <= 32'd0;
    else if (host_writes && (host_word >= 11'(LORA_REG_ARENAS / 4) ||
                             host_word == 11'(LORA_REG_ARENA_COUNT / 4)))
      arena_changes <= arena_changes + 32'd1;

  // --- links, board ----------------------------------------------------------------------------------
  logic [63:0] cycles;
  logic testing, tested, test_failed;
  logic [2:0] where;
  assign where = bus_address[4:2];
  always_ff @(posedge clk) begin
    link_poison <= 1'b0;
    link_test_start <= 1'b0;
    trace_valid <= 1'b0;
    cycles <= cycles + 64'd1;
    if (testing && (link_test_done || link_test_failed)) begin
      testing <= 1'b0;
      tested <= 1'b1;
      test_failed <= link_test_failed;
    end
    if (writes && links)
      case (where)
        3'd0: link_epoch <= bus_stored;
        3'd1: link_list <= bus_stored[LOCAL_BITS-1:0];
        3'd2: link_state <= bus_stored[LOCAL_BITS-1:0];
        3'd3: link_poison <= 1'b1;
        3'd4: begin
          link_test_start <= bus_stored[0];
          testing <= bus_stored[0];
          tested <= 1'b0;
        end
        3'd5: link_test <= bus_stored[LOCAL_BITS-1:0];
        default: ;
      endcase
    if (writes && board)
      case (where)
        3'd4: trace_index <= bus_stored;
        3'd5: trace_rows <= bus_stored;
        3'd6: begin
          trace_valid <= 1'b1;
          trace_end <= bus_stored[0];
        end
        default: ;
      endcase
    if (rst) cycles <= 64'd0;
    if (rst || restart) {testing, tested, link_poison, link_test_start, trace_valid} <= '0;

    other_data <= 32'd0;
    if (links && where == 3'd4)
      other_data <= {28'd0, tested && test_failed, testing, tested && !test_failed, 1'b0};
    if (board)
      case (where)
        3'd0: other_data <= 32'(ONCHIP_BYTES);
        3'd1: other_data <= 32'(CYCLES_PER_MS);
        3'd2: other_data <= cycles[31:0];
        3'd3: other_data <= cycles[63:32];
        3'd7: other_data <= 32'(SEQUENCER);
        default: other_data <= 32'd0;
      endcase
  end
  assign bus_data = run ? run_data : registers ? register_data : units ? mailbox_data : window ? window_data : other_data;
endmodule
