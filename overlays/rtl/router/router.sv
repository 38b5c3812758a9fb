// The Router, a unit of the sequencer: all-gathers of rows in the on-chip buffer over two links, one at a time, as
// docs/rtl.md has it. Lane i sends by port i and takes what comes in by the other one.
module router
  import abi_types::*;
  import router_types::*;
(
    input  logic              clk,
    input  logic              rst,             // of the links' buffers too
    // sequencer
    input  logic              unit_announce,
    input  logic [511:0]      unit_line,
    input  logic [6:0]        unit_rows,
    input  logic              unit_start,
    input  logic              unit_abort,
    output logic              unit_idle,
    output logic              result_valid,
    input  logic              result_ready,
    output logic [1:0]        result_state,
    output logic [7:0]        result_status,
    output logic [7:0]        result_port,
    output logic [2:0][31:0]  result_frames,   // sent, received, dropped
    output done_t             segments,        // row groups that are complete
    output logic [1:0][31:0]  port_sent,       // frames of this gather
    output logic [1:0][31:0]  port_received,
    output logic [1:0]        port_blocked,
    // list and step, held while the unit runs
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
  typedef enum logic [2:0] {IDLE, BEGIN, CHECK, PLAN, RUN, FAIL, RESULT} state_t;
  state_t state;
  gather_record_t told, command;
  logic [6:0] told_rows, rows;
  logic stops, runs, clear;

  always_ff @(posedge clk)
    if (unit_announce) begin
      told <= unit_line;
      told_rows <= unit_rows;
    end

  // --- what it is ----------------------------------------------------------------------------------
  logic checked, ring, has_next, has_previous, next_is_1;
  logic [7:0] check_status, boards;
  logic [6:0] rank, owners;
  logic [1:0] shift;
  gather_check check (
      .clk(clk),
      .rst(clear),
      .start(state == BEGIN),
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
      stride: size_t'(command.stride)
  };
  assign next_is_1 = has_next ? port_next[0] : !port_previous[0];

  logic planned, block_write, missing_write;
  logic [8:0][26:0] segment_start;
  logic [10:0] block_where;
  logic [4:0] missing_where;
  block_t block_value;
  size_t missing_value;
  gather_plan plan (
      .clk(clk),
      .rst(clear),
      .start(state == CHECK && checked && check_status == 8'(LORA_OK) && rows != 7'd0),
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
      .missing_write(missing_write),
      .missing_where(missing_where),
      .missing_value(missing_value)
  );

  // --- lanes ---------------------------------------------------------------------------------------
  logic [1:0] filed_valid, filed_ready, quiet, sent_all, failed, poisoned, blocked, sent, received, dropped;
  logic [1:0] to_next, has_in, has_out;
  block_t [1:0] filed_block;
  logic [1:0][4:0] filed_where;
  logic [1:0][12:0] filed_bytes;
  logic [1:0] lane_read_valid, lane_read_ready, lane_line_valid, lane_write_valid, lane_write_ready;
  logic [1:0][20:0] lane_read_line, lane_write_line;
  logic [1:0][2:0] lane_read_tag;
  logic [1:0][63:0] lane_write_bytes;
  logic [1:0][511:0] lane_write_data;
  assign to_next = {next_is_1, !next_is_1};
  assign has_out = (to_next & {2{has_next}}) | (~to_next & {2{has_previous}});
  assign has_in = (to_next & {2{has_previous}}) | (~to_next & {2{has_next}});
  for (genvar i = 0; i < 2; i++) begin : lanes
    router_lane lane (
        .clk(clk),
        .rst(rst),
        .clear(clear),
        .start(state == BEGIN),
        .active(state == RUN && runs),
        .gather(gather),
        .to_next(to_next[i]),
        .has_in(has_in[i]),
        .has_out(has_out[i]),
        .out_up(link_up[i]),
        .idle(state == IDLE || state == RESULT),
        .epoch(epoch),
        .block_write(block_write),
        .block_where(block_where),
        .block_value(block_value),
        .poison_valid(poison_valid[i]),
        .poison_epoch(poison_epoch),
        .poison_step(poison_step),
        .poison_source(poison_source),
        .rx_valid(rx_valid[1-i]),
        .rx_ready(rx_ready[1-i]),
        .rx_data(rx_data[1-i]),
        .rx_keep(rx_keep[1-i]),
        .rx_last(rx_last[1-i]),
        .tx_valid(tx_valid[i]),
        .tx_ready(tx_ready[i]),
        .tx_data(tx_data[i]),
        .tx_keep(tx_keep[i]),
        .tx_last(tx_last[i]),
        .read_valid(lane_read_valid[i]),
        .read_ready(lane_read_ready[i]),
        .read_line(lane_read_line[i]),
        .read_tag(lane_read_tag[i]),
        .line_valid(lane_line_valid[i]),
        .line_tag(line_tag[2:0]),
        .line_data(line_data),
        .write_valid(lane_write_valid[i]),
        .write_ready(lane_write_ready[i]),
        .write_line(lane_write_line[i]),
        .write_bytes(lane_write_bytes[i]),
        .write_data(lane_write_data[i]),
        .filed_valid(filed_valid[i]),
        .filed_ready(filed_ready[i]),
        .filed_block(filed_block[i]),
        .filed_where(filed_where[i]),
        .filed_bytes(filed_bytes[i]),
        .quiet(quiet[i]),
        .sent_all(sent_all[i]),
        .failed(failed[i]),
        .poisoned(poisoned[i]),
        .blocked(blocked[i]),
        .sent(sent[i]),
        .received(received[i]),
        .dropped(dropped[i])
    );
  end
  logic complete;
  gather_counts counts (
      .clk(clk),
      .rst(clear),
      .clear(unit_start),
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

  // --- memory --------------------------------------------------------------------------------------
  logic unit_read_valid, unit_read_ready, unit_write_valid, unit_write_ready, unit_line_valid;
  assign read_bank = 6'(LORA_BANK_ONCHIP);
  assign write_bank = 6'(LORA_BANK_ONCHIP);
  assign read_line[31:21] = '0;
  assign write_line[31:21] = '0;
  lane_ports arbiter (
      .clk(clk),
      .rst(clear),
      .lane_read_valid(lane_read_valid),
      .lane_read_ready(lane_read_ready),
      .lane_read_line(lane_read_line),
      .lane_read_tag(lane_read_tag),
      .lane_line_valid(lane_line_valid),
      .lane_write_valid(lane_write_valid),
      .lane_write_ready(lane_write_ready),
      .lane_write_line(lane_write_line),
      .lane_write_bytes(lane_write_bytes),
      .lane_write_data(lane_write_data),
      .read_valid(unit_read_valid),
      .read_ready(unit_read_ready),
      .read_line(read_line[20:0]),
      .read_tag(read_tag),
      .line_valid(unit_line_valid),
      .line_tag(line_tag),
      .write_valid(unit_write_valid),
      .write_ready(unit_write_ready),
      .write_line(write_line[20:0]),
      .write_bytes(write_bytes),
      .write_data(write_data)
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

  // --- how it goes ---------------------------------------------------------------------------------
  // The other port of a lane is the one by which its frames come in.
  logic [1:0] poison_ports, bad_ports, down_ports;
  logic ends_badly, first_port;
  logic [31:0] idle_dropped;
  assign poison_ports = {poisoned[0], poisoned[1]};
  assign bad_ports = {failed[0], failed[1]};
  assign down_ports = has_out & ~link_up;
  assign ends_badly = (poison_ports | bad_ports | down_ports) != 2'b00;
  assign stops = unit_abort || (state == RUN && ends_badly);
  assign first_port = next_is_1;  // both ports at once: the one to next is named
  function automatic logic [7:0] name(logic [1:0] ports, logic first);
    return ports[first] ? {7'd0, first} : {7'd0, !first};
  endfunction

  logic starts;
  assign unit_idle = state == IDLE && runs && !starts;
  assign result_valid = state == RESULT;
  assign port_blocked = blocked;
  always_ff @(posedge clk) begin
    starts <= unit_start;
    if (state == IDLE || state == RESULT)
      idle_dropped <= idle_dropped + 32'(dropped[0]) + 32'(dropped[1]);
    else begin
      result_frames[0] <= result_frames[0] + 32'(sent[0]) + 32'(sent[1]);
      result_frames[1] <= result_frames[1] + 32'(received[0]) + 32'(received[1]);
      result_frames[2] <= result_frames[2] + 32'(dropped[0]) + 32'(dropped[1]);
      for (int i = 0; i < 2; i++) begin
        port_sent[i] <= port_sent[i] + 32'(sent[i]);
        port_received[i] <= port_received[i] + 32'(received[1-i]);
      end
    end
    unique case (state)
      IDLE:
      if (starts) begin
        command <= told;
        rows <= told_rows;
        result_frames <= {idle_dropped, 64'd0};
        idle_dropped <= 32'(dropped[0]) + 32'(dropped[1]);
        port_sent <= '0;
        port_received <= '0;
        result_state <= 2'(LORA_UNIT_DONE);
        result_status <= 8'(LORA_OK);
        result_port <= 8'(LORA_NO_PORT);
        state <= BEGIN;
      end
      BEGIN: state <= CHECK;
      CHECK:
      if (checked) begin
        result_status <= check_status;
        if (check_status != 8'(LORA_OK)) result_state <= 2'(LORA_UNIT_FAILED);
        state <= check_status == 8'(LORA_OK) && rows != 7'd0 ? PLAN : RESULT;
      end
      PLAN: if (planned) state <= RUN;
      RUN:
      if (ends_badly) begin
        result_state <= 2'(LORA_UNIT_FAILED);
        if (poison_ports != 2'b00) begin
          result_status <= 8'(LORA_ERR_LINK_POISON);
          result_port <= name(poison_ports, first_port);
        end else if (down_ports != 2'b00) begin
          result_status <= 8'(LORA_ERR_LINK_DOWN);
          result_port <= name(down_ports, first_port);
        end else begin
          result_status <= 8'(LORA_ERR_LINK_CRC);
          result_port <= name(bad_ports, first_port);
        end
        state <= FAIL;
      end else if (complete && &sent_all && &quiet) state <= RESULT;
      FAIL: if (runs) state <= RESULT;  // nothing is left at the memory port
      default: if (result_ready) state <= IDLE;
    endcase
    if (rst || unit_abort) begin
      state <= IDLE;
      starts <= 1'b0;
    end
    if (rst) idle_dropped <= '0;
  end
endmodule
