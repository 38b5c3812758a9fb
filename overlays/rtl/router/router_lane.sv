// SPDX-License-Identifier: Apache-2.0
// One direction of a gather: frames that come in by one port are checked, forwarded by the other and filed, and this
// board's own frames leave by that other port. One frame is worked on at a time, what has come before what is own.
// Own frames wait until two more, and one under way, fit where frames come in, so that a ring keeps room.
module router_lane
  import abi_types::*;
  import router_types::*;
(
    input  logic         clk,
    input  logic         rst,
    input  logic         clear,           // of the unit, behind an abort
    input  logic         plans,           // one cycle: the next gather's plan comes
    input  logic         start,           // one cycle: it starts
    input  logic         active,          // its plan is there
    input  gather_t      gather,
    input  logic [28:0]  sum_end,         // address behind all rows, were they without gaps
    input  logic         to_next,         // frames of this lane go that way
    input  logic         has_in,
    input  logic         has_out,
    input  logic         out_up,
    input  logic         idle,            // no gather: frames of older epochs than this are dropped
    input  logic [31:0]  epoch,
    // plan
    input  logic         block_write,
    input  logic [10:0]  block_where,
    input  block_t       block_value,
    input  size_t        block_size,
    // a poison frame to send, one cycle
    input  logic         poison_valid,
    input  logic [31:0]  poison_epoch,
    input  logic [31:0]  poison_step,
    input  logic [7:0]   poison_source,
    // a link test: what comes in is the test's, and it may send
    input  logic         testing,
    input  test_frame_t  test,            // what leaves
    output logic         test_room,       // for a frame
    output logic         test_begins,     // it is taken: words follow
    output logic         test_sent,       // one cycle: it is whole
    input  test_look_t   look,            // at what comes in
    output logic         head_valid,
    output logic         head_intact,
    output logic [511:0] head_data,       // a cycle later
    // links
    input  logic         rx_valid,
    output logic         rx_ready,
    input  logic [511:0] rx_data,
    input  logic [63:0]  rx_keep,
    input  logic         rx_last,
    output logic         tx_valid,
    input  logic         tx_ready,
    output logic [511:0] tx_data,
    output logic [63:0]  tx_keep,
    output logic         tx_last,
    // memory
    output logic         read_valid,
    input  logic         read_ready,
    output logic [20:0]  read_line,
    output logic [2:0]   read_tag,
    input  logic         line_valid,
    input  logic [2:0]   line_tag,
    input  logic [511:0] line_data,
    output logic         write_valid,
    input  logic         write_ready,
    output logic [20:0]  write_line,
    output logic [63:0]  write_bytes,
    output logic [511:0] write_data,
    // what has been filed
    output logic         filed_valid,
    input  logic         filed_ready,
    output block_t       filed_block,
    output logic [4:0]   filed_where,
    output logic [12:0]  filed_bytes,
    // sums of what has been filed, and of what is own
    output logic         run_valid,
    input  logic         run_ready,
    output logic [31:0]  run_crc,
    output behind_t      run_behind,
    // how it goes
    output logic         quiet,
    output logic         sent_all,
    output logic         failed,          // a frame did not hold
    output logic         poisoned,        // the gather, or a step before it
    output logic         expects,         // more has to come in; until the next gather
    output logic         blocked,         // a frame is to leave, and there was no room; the same
    output logic         sent,            // one cycle each
    output logic         received,
    output logic         dropped
);
  typedef enum logic [3:0] {IDLE, HEAD, LOOK, ROOM, COPY, FILE, COUNT, OPEN, MAKE} state_t;
  state_t state;
  logic stopped;  // failed: until `clear`
  logic poisons, tests, ghost, future;
  frame_t header, head;

  // --- links -------------------------------------------------------------------------------------
  logic [2:0] free;
  logic head_read, pop, has_poison, has_room, frame_write, commit;
  logic [6:0] head_line, frame_at;
  logic [511:0] frame_data;
  logic [31:0] held_epoch, held_step, poison_age, idle_epochs;
  frame_receiver receiver (
      .clk(clk),
      .rst(rst),
      .rx_valid(rx_valid),
      .rx_ready(rx_ready),
      .rx_data(rx_data),
      .rx_keep(rx_keep),
      .rx_last(rx_last),
      .free(free),
      .head_valid(head_valid),
      .head_intact(head_intact),
      .read_enable(head_read),
      .read_line(head_line),
      .read_data(head_data),
      .pop(pop),
      .poisoned(has_poison),
      .poison_epoch(held_epoch),
      .poison_step(held_step)
  );
  frame_sender sender (
      .clk(clk),
      .rst(rst),
      .has_room(has_room),
      .write_valid(frame_write),
      .write_line(frame_at),
      .write_data(frame_data),
      .commit(commit),
      .commit_bytes(header.length[12:0] + 13'd36),
      .tx_valid(tx_valid),
      .tx_ready(tx_ready),
      .tx_data(tx_data),
      .tx_keep(tx_keep),
      .tx_last(tx_last)
  );
  assign poison_age = gather.step - held_step;
  assign poisoned = has_in && has_poison && held_epoch == gather.epoch && !poison_age[31];

  // --- the frame at the head, and what the plan says -------------------------------------------------
  logic is_old, is_future, find_head, find_own, found, own, nothing, sums, alone, right, skip, own_done, made;
  logic [5:0] row_at;
  logic [12:0] length;
  logic [7:0] total;
  size_t width, row_start, next_byte;
  progress_t progress;
  logic [4:0] next_row;
  assign head = head_data[255:0];
  assign idle_epochs = head.epoch - epoch;
  frame_age age (
      .head(head),
      .gather(gather),
      .is_old(is_old),
      .is_future(is_future)
  );
  lane_plan plan (
      .clk(clk),
      .start(plans),
      .gather(gather),
      .to_next(to_next),
      .block_write(block_write),
      .block_where(block_where),
      .block_value(block_value),
      .block_size(block_size),
      .find_head(find_head),
      .head(head),
      .find_own(find_own),
      .found(found),
      .own(own),
      .where(filed_where),
      .block(filed_block),
      .progress(progress),
      .width(width),
      .row_start(row_start),
      .row_at(row_at),
      .length(length),
      .total(total),
      .nothing(nothing),
      .sums(sums),
      .alone(alone),
      .header(header),
      .right(right),
      .filed(received && active),  // not behind an abort
      .left(made && !poisons && !tests),
      .next_row(next_row),
      .next_byte(next_byte),
      .skip(skip),
      .own_done(own_done),
      .expects(expects)
  );

  // --- bytes between frames and memory ---------------------------------------------------------------
  logic walk_start, files_read, filed, made_write, sum_idle;
  logic [6:0] files_line, made_line;
  logic [511:0] made_data;
  assign walk_start = (state == LOOK && found && !own && right && header.hop == 8'd1) ||
      (state == COPY && commit) || (state == OPEN && !poisons && !tests);
  lane_pieces pieces (
      .clk(clk),
      .clear(clear),
      .start(walk_start),
      .files(state == FILE),
      .makes(state == MAKE),
      .tests(tests),
      .gather(gather),
      .sum_end(sum_end),
      .header(header),
      .width(width),
      .row_start(row_start),
      .row_at(row_at),
      .progress(progress),
      .next_row(next_row),
      .next_byte(next_byte),
      .head_read(files_read),
      .head_line(files_line),
      .head_data(head_data),
      .filed(filed),
      .make_start(state == OPEN),
      .make_stop(start && tests),
      .test(test),
      .made_write(made_write),
      .made_line(made_line),
      .made_data(made_data),
      .made(made),
      .read_valid(read_valid),
      .read_ready(read_ready),
      .read_line(read_line),
      .read_tag(read_tag),
      .line_valid(line_valid),
      .line_tag(line_tag),
      .line_data(line_data),
      .write_valid(write_valid),
      .write_ready(write_ready),
      .write_line(write_line),
      .write_bytes(write_bytes),
      .write_data(write_data),
      .sums(sums),
      .run_valid(run_valid),
      .run_ready(run_ready),
      .run_crc(run_crc),
      .run_behind(run_behind),
      .sum_idle(sum_idle)
  );

  // --- frames that leave -----------------------------------------------------------------------------
  logic copies;  // what was read a cycle ago
  logic [6:0] copy_at, copy_line, last_line;
  assign last_line = 7'((header.length[12:0] + 13'd35) >> 6);
  always_comb begin
    frame_write = (made_write && !ghost) || copies;
    frame_at = copies ? copy_line : made_line;
    frame_data = copies ? head_data : made_data;
    if (copies && copy_line == 7'd0) frame_data[8*HOP_BYTE+:8] = header.hop - 8'd1;
  end
  assign commit = (copies && copy_line == last_line) || (made && !ghost);

  always_comb begin
    head_read = state == IDLE || (state == COPY && copy_at <= last_line) || files_read;
    head_line = state == COPY ? copy_at : state == FILE ? files_line : 7'd0;
    if (testing) {head_read, head_line} = {look.read, look.line};
  end
  assign find_head = state == HEAD && active && has_in && head_intact && !is_future && !is_old &&
      head.kind == 8'(LORA_FRAME_DATA) && head.source < gather.boards &&
      head.segment < 8'(LORA_SEGMENTS) && head.row_group <= 16'(last_group(gather.rows));

  // --- what is next ----------------------------------------------------------------------------------
  logic poison_waits, looks_at_head, leaves;
  logic [31:0] send_epoch, send_step;
  logic [7:0] send_source;
  assign looks_at_head = head_valid && (!active || (has_in && !future));
  assign find_own = state == IDLE && active && !sent_all && !stopped && !looks_at_head &&
      !(poison_waits && (has_room || !out_up));
  assign skip = state == LOOK && found && own && nothing;
  assign leaves = state == ROOM || (state == LOOK && found && own && !nothing && !alone);
  assign test_room = has_room;
  assign test_begins = state == OPEN && tests;
  assign test_sent = made && tests;
  assign filed_valid = state == COUNT;
  assign filed_bytes = header.length[12:0];
  assign received = filed_valid && filed_ready;
  // the far end's link test may have begun before this one's
  assign dropped = state == HEAD && (active ? has_in && head_intact && is_old :
      idle && idle_epochs[31] && head.kind != 8'(LORA_FRAME_TEST));
  assign pop = received || dropped || look.pop;
  assign sent = commit && !poisons && !tests;
  assign quiet = state == IDLE && sum_idle;
  assign sent_all = (!has_out && !(gather.boards == 8'd1 && to_next)) || own_done;
  assign failed = stopped;

  always_ff @(posedge clk) begin
    if (poison_valid) begin
      poison_waits <= 1'b1;
      send_epoch <= poison_epoch;
      send_step <= poison_step;
      send_source <= poison_source;
    end
    // an abort may end it on its way, and then it is sent again
    if (made && poisons && header.epoch == send_epoch && header.step == send_step)
      poison_waits <= poison_valid;
    if (leaves && active) blocked <= !has_room;
    // lines to forward
    copies <= state == COPY && copy_at <= last_line;
    copy_line <= copy_at;

    unique case (state)
      IDLE: begin
        {poisons, tests, ghost} <= 3'b000;
        if (poison_waits && !out_up) poison_waits <= poison_valid;
        else if (poison_waits && has_room) begin
          header <= '{
              magic: LORA_FRAME_MAGIC,
              epoch: send_epoch,
              step: send_step,
              source: send_source,
              hop: 8'd1,
              kind: 8'(LORA_FRAME_POISON),
              default: '0
          };
          poisons <= 1'b1;
          state <= OPEN;
        end else if (testing) begin
          header <= '{
              magic: LORA_FRAME_MAGIC,
              epoch: test.seed,
              step: test.number,
              collective: 16'hffff,
              hop: 8'd1,
              kind: 8'(LORA_FRAME_TEST),
              length: 32'(test.length),
              default: '0
          };
          tests <= test.valid && has_room && out_up;
          if (test.valid && has_room && out_up) state <= OPEN;
        end else if (stopped) state <= IDLE;
        else if (looks_at_head) state <= HEAD;
        else if (find_own) state <= LOOK;
      end
      HEAD: begin
        header <= head;
        state <= find_head ? LOOK : IDLE;
        if (active && has_in) begin
          if (!head_intact) stopped <= 1'b1;
          else if (is_future) future <= 1'b1;
          else if (!is_old) stopped <= !find_head;
        end
      end
      LOOK:
      if (found && !own) begin
        stopped <= !right;
        copy_at <= 7'd0;
        state <= !right ? IDLE : header.hop == 8'd1 ? FILE : ROOM;
      end else if (found) begin
        header <= '{
            magic: LORA_FRAME_MAGIC,
            epoch: gather.epoch,
            step: gather.step,
            collective: gather.collective,
            row_group: {14'd0, filed_where[4:3]},
            source: {1'b0, gather.rank},
            segment: {5'd0, filed_where[2:0]},
            hop: total,
            kind: 8'(LORA_FRAME_DATA),
            segments: 16'(filed_block.segments),
            part: 16'(progress.bytes >> 12),
            offset: 32'(progress.bytes),
            length: 32'(length)
        };
        ghost <= alone;
        if (!nothing && (alone || (has_room && (free >= 3'd3 || future || !has_in)))) state <= OPEN;
        else state <= IDLE;
      end
      ROOM: if (has_room) state <= COPY;
      COPY: begin
        if (copy_at <= last_line) copy_at <= copy_at + 7'd1;
        if (commit) state <= FILE;
      end
      FILE: if (filed) state <= COUNT;
      COUNT: if (filed_ready) state <= IDLE;
      OPEN: state <= MAKE;
      default: if (made) state <= IDLE;  // MAKE
    endcase
    if (start) begin
      {future, blocked} <= 2'b00;
      if (tests) state <= IDLE;
    end
    if (clear) begin
      state <= IDLE;
      {stopped, copies} <= 2'b00;
    end
    if (rst) poison_waits <= 1'b0;
  end
endmodule
