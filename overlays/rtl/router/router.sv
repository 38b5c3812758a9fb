// SPDX-License-Identifier: Apache-2.0
// The Router, a unit of the sequencer: all-gathers of rows in the on-chip buffer over two links, one at a time, as
// docs/rtl.md has it. Lane i sends by port i and takes what comes in by the other one.
module router
  import abi_types::*;
  import rv32_types::*;
  import router_types::*;
(
    input  logic              clk,
    input  logic              rst,             // of the links' buffers too
    // sequencer
    input  logic              unit_announce,
    input  logic [511:0]      unit_line,
    input  logic [6:0]        unit_rows,
    input  logic              held,            // list and step are those of what is announced, so that it may be planned
    input  logic              unit_start,
    input  logic              unit_abort,
    output logic              unit_idle,
    output logic              result_valid,
    input  logic              result_ready,
    output logic [1:0]        result_state,
    output logic [7:0]        result_status,
    output logic [7:0]        result_port,
    output logic [31:0]       result_sum,      // of a gather that is done: CRC-32 of its rows
    output logic [2:0][31:0]  result_frames,   // sent, received, dropped
    output done_t             segments,        // row groups that are complete
    output logic [4:0][31:0]  progress,        // of this gather, or of the last one: mailbox words from WAITS on
    // list and step, held from then on until the unit has run
    input  logic [7:0]        list_rank,
    input  logic [7:0]        list_boards,
    input  logic              list_ring,
    input  logic [7:0]        port_next,
    input  logic [7:0]        port_previous,
    input  logic [7:0]        stage_boards,
    input  logic [31:0]       onchip_bytes,
    input  logic [31:0]       epoch,           // also while no gather runs: older frames are dropped
    input  logic [31:0]       step,
    // a poison frame to send by these ports, one cycle
    input  logic [1:0]        poison_valid,
    input  logic [31:0]       poison_epoch,
    input  logic [31:0]       poison_step,
    input  logic [7:0]        poison_source,
    // link test, by both ports, while no gather runs: link_test has its record
    input  logic              test_start,      // one cycle
    input  logic [LOCAL_BITS-1:0] test_record,
    output logic              test_done,       // one cycle
    output logic              test_failed,
    input  logic [31:0]       serial,          // of this card
    // the core's local memory, as soft_core has it
    output logic              local_valid,
    input  logic              local_ready,
    output logic [3:0]        local_write,
    output logic [LOCAL_BITS-3:0] local_word,
    output logic [31:0]       local_stored,
    input  logic [31:0]       local_data,
    // links
    input  logic [1:0]        link_up,
    input  logic [1:0]        rx_valid,
    output logic [1:0]        rx_ready,
    input  logic [1:0][511:0] rx_data,
    input  logic [1:0][63:0]  rx_keep,
    input  logic [1:0]        rx_last,
    output logic [1:0]        tx_valid,
    input  logic [1:0]        tx_ready,
    output logic [1:0][511:0] tx_data,
    output logic [1:0][63:0]  tx_keep,
    output logic [1:0]        tx_last,
    // the on-chip buffer
    output logic              read_valid,
    input  logic              read_ready,
    output logic [5:0]        read_bank,
    output logic [31:0]       read_line,
    output logic [3:0]        read_tag,
    input  logic              line_valid,
    input  logic [3:0]        line_tag,
    input  logic [511:0]      line_data,
    output logic              write_valid,
    input  logic              write_ready,
    output logic [5:0]        write_bank,
    output logic [31:0]       write_line,
    output logic [63:0]       write_bytes,
    output logic [511:0]      write_data
);
  gather_record_t told, command;
  logic [6:0] told_rows, rows;
  logic stops, runs, clear, takes, goes, empties, unseen, begins, plans, active, idle, planned, complete;

  always_ff @(posedge clk) begin
    if (unit_announce) begin
      told <= unit_line;
      told_rows <= unit_rows;
    end
    if (takes) begin
      command <= told;
      rows <= told_rows;
    end
  end

  // --- what it is ----------------------------------------------------------------------------------
  logic checked, ring, has_next, has_previous, next_is_1;
  logic [7:0] check_status, boards;
  logic [6:0] rank, owners;
  logic [1:0] shift;
  gather_check check (
      .clk(clk),
      .rst(clear),
      .start(begins),
      .command(command),
      .rows(rows),
      .list_rank(list_rank),
      .list_boards(list_boards),
      .list_ring(list_ring),
      .port_next(port_next),
      .port_previous(port_previous),
      .stage_boards(stage_boards),
      .onchip_bytes(onchip_bytes),
      .done(checked),
      .status(check_status),
      .rank(rank),
      .boards(boards),
      .owners(owners),
      .ring(ring),
      .has_next(has_next),
      .has_previous(has_previous),
      .shift(shift)
  );
  gather_t gather;
  assign gather = '{
      epoch: epoch,
      step: step,
      collective: command.collective,
      rank: rank,
      boards: boards,
      ring: ring,
      rows: rows,
      shift: shift,
      base: size_t'(command.offset),
      stride: size_t'(command.stride),
      width: size_t'(command.columns) << shift
  };
  assign next_is_1 = has_next ? port_next[0] : !port_previous[0];

  logic block_write, missing_write;
  logic [8:0][26:0] segment_start;
  logic [10:0] block_where;
  logic [4:0] missing_where;
  block_t block_value;
  size_t missing_value, block_size, sum_bytes;
  logic [28:0] sum_end;
  gather_plan plan (
      .clk(clk),
      .rst(clear),
      .start(plans),
      .gather(gather),
      .columns(size_t'(command.columns)),
      .share_unit(command.share_unit),
      .segment_unit(command.segment_unit),
      .owners(owners),
      .done(planned),
      .segment_start(segment_start),
      .block_write(block_write),
      .block_where(block_where),
      .block_value(block_value),
      .block_bytes(block_size),
      .missing_write(missing_write),
      .missing_where(missing_where),
      .missing_value(missing_value)
  );

  // --- lanes ---------------------------------------------------------------------------------------
  logic [1:0] filed_valid, filed_ready, quiet, sent_all, failed, poisoned, blocked, sent, received, dropped;
  logic [1:0] to_next, has_in, has_out, expects, run_valid, run_ready;
  logic [1:0][31:0] run_crc;
  behind_t [1:0] run_behind;
  block_t [1:0] filed_block;
  logic [1:0][4:0] filed_where;
  logic [1:0][12:0] filed_bytes;
  logic unit_read_valid, unit_read_ready, unit_write_valid, unit_write_ready, unit_line_valid;
  assign to_next = {next_is_1, !next_is_1};
  assign read_bank = 6'(LORA_BANK_ONCHIP);
  assign write_bank = 6'(LORA_BANK_ONCHIP);
  assign read_line[31:21] = '0;
  assign write_line[31:21] = '0;
  router_lanes lanes (
      .clk(clk),
      .rst(rst),
      .clear(clear),
      .begins(begins),
      .goes(goes),
      .active(active),
      .idle(idle),
      .gather(gather),
      .sum_end(sum_end),
      .epoch(epoch),
      .to_next(to_next),
      .has_next(has_next),
      .has_previous(has_previous),
      .has_in(has_in),
      .has_out(has_out),
      .block_write(block_write),
      .block_where(block_where),
      .block_value(block_value),
      .block_size(block_size),
      .poison_valid(poison_valid),
      .poison_epoch(poison_epoch),
      .poison_step(poison_step),
      .poison_source(poison_source),
      .test_start(test_start),
      .test_stop(unit_start || unit_abort),
      .test_record(test_record),
      .test_done(test_done),
      .test_failed(test_failed),
      .serial(serial),
      .local_valid(local_valid),
      .local_ready(local_ready),
      .local_write(local_write),
      .local_word(local_word),
      .local_stored(local_stored),
      .local_data(local_data),
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
      .read_valid(unit_read_valid),
      .read_ready(unit_read_ready),
      .read_line(read_line[20:0]),
      .read_tag(read_tag),
      .line_valid(unit_line_valid),
      .line_tag(line_tag),
      .line_data(line_data),
      .write_valid(unit_write_valid),
      .write_ready(unit_write_ready),
      .write_line(write_line[20:0]),
      .write_bytes(write_bytes),
      .write_data(write_data),
      .filed_valid(filed_valid),
      .filed_ready(filed_ready),
      .filed_block(filed_block),
      .filed_where(filed_where),
      .filed_bytes(filed_bytes),
      .run_valid(run_valid),
      .run_ready(run_ready),
      .run_crc(run_crc),
      .run_behind(run_behind),
      .quiet(quiet),
      .sent_all(sent_all),
      .failed(failed),
      .poisoned(poisoned),
      .expects(expects),
      .blocked(blocked),
      .sent(sent),
      .received(received),
      .dropped(dropped)
  );
  gather_counts counts (
      .clk(clk),
      .rst(clear),
      .clear(empties),
      .gather(gather),
      .segment_start(segment_start),
      .missing_write(missing_write),
      .missing_where(missing_where),
      .missing_value(missing_value),
      .filed_valid(filed_valid),
      .filed_ready(filed_ready),
      .filed_block0(filed_block[0]),
      .filed_block1(filed_block[1]),
      .filed_where0(filed_where[0]),
      .filed_where1(filed_where[1]),
      .filed_bytes0(filed_bytes[0]),
      .filed_bytes1(filed_bytes[1]),
      .complete(complete),
      .done(segments)
  );

  unit_port port (
      .clk(clk),
      .rst(rst),
      .abort_valid(stops),
      .runs(runs),
      .clear(clear),
      .unit_read_valid(unit_read_valid),
      .unit_read_ready(unit_read_ready),
      .unit_write_valid(unit_write_valid),
      .unit_write_ready(unit_write_ready),
      .unit_line_valid(unit_line_valid),
      .read_valid(read_valid),
      .read_ready(read_ready),
      .line_valid(line_valid),
      .write_valid(write_valid),
      .write_ready(write_ready)
  );

  // --- its sum -------------------------------------------------------------------------------------
  logic sums_done;
  logic [31:0] sum;
  assign sum_bytes = gather.width * size_t'(rows);
  always_ff @(posedge clk) sum_end <= {2'd0, gather.base} + {2'd0, sum_bytes};
  gather_sum sums (
      .clk(clk),
      .rst(clear),
      .start(plans),
      .bytes(sum_bytes),
      .run_valid(run_valid),
      .run_ready(run_ready),
      .run_crc0(run_crc[0]),
      .run_crc1(run_crc[1]),
      .run_behind0(run_behind[0]),
      .run_behind1(run_behind[1]),
      .idle(sums_done),
      .sum(sum)
  );
  assign result_sum = rows == 7'd0 ? '0 : sum;

  // --- how it goes ---------------------------------------------------------------------------------
  gather_run its_run (
      .clk(clk),
      .rst(rst),
      .unit_announce(unit_announce),
      .held(held),
      .unit_start(unit_start),
      .unit_abort(unit_abort),
      .unit_idle(unit_idle),
      .result_valid(result_valid),
      .result_ready(result_ready),
      .result_state(result_state),
      .result_status(result_status),
      .result_port(result_port),
      .result_frames(result_frames),
      .runs(runs),
      .stops(stops),
      .takes(takes),
      .goes(goes),
      .empties(empties),
      .unseen(unseen),
      .begins(begins),
      .plans(plans),
      .active(active),
      .idle(idle),
      .nothing(rows == 7'd0),
      .checked(checked),
      .check_status(check_status),
      .planned(planned),
      .complete(complete),
      .sums_done(sums_done),
      .next_is_1(next_is_1),
      .has_out(has_out),
      .link_up(link_up),
      .quiet(quiet),
      .sent_all(sent_all),
      .failed(failed),
      .poisoned(poisoned),
      .sent(sent),
      .received(received),
      .dropped(dropped),
      .port_sent(progress[2:1]),
      .port_received(progress[4:3])
  );
  always_comb begin
    progress[0] = '0;
    for (int p = 0; p < LORA_PORTS; p++) begin
      progress[0] |= (has_in[1-p] && expects[1-p] && !unseen ? LORA_ROUTER_RECEIVES : 0) << p;
      progress[0] |= (blocked[p] ? LORA_ROUTER_BLOCKED : 0) << p;
    end
  end
endmodule
