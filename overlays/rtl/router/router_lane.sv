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
    input  logic         start,           // one cycle: the next gather
    input  logic         active,          // its plan is there
    input  gather_t      gather,
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
    // a poison frame to send, one cycle
    input  logic         poison_valid,
    input  logic [31:0]  poison_epoch,
    input  logic [31:0]  poison_step,
    input  logic [7:0]   poison_source,
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
    // how it goes
    output logic         quiet,
    output logic         sent_all,
    output logic         failed,          // a frame did not hold
    output logic         poisoned,        // the gather, or a step before it
    output logic         blocked,         // a frame is to leave, and there is no room
    output logic         sent,            // one cycle each
    output logic         received,
    output logic         dropped
);
  typedef enum logic [3:0] {
    IDLE, HEAD, FIND, ENTRY, MEASURE, JUDGE, ROOM, COPY, FILE, COUNT, OPEN, SEND, SUM, UNPAD, SEAL, SPILL
  } state_t;
  state_t state;
  logic stopped;  // failed: until `clear`

  // --- links -------------------------------------------------------------------------------------
  logic [2:0] free;
  logic head_valid, head_intact, head_read, pop, has_poison;
  logic [6:0] head_line;
  logic [511:0] head_data;
  logic [31:0] held_epoch, held_step;
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
  logic has_room, frame_write, commit;
  logic [6:0] frame_at;
  logic [511:0] frame_data;
  frame_t header;
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
  logic [31:0] poison_age;
  assign poison_age = gather.step - held_step;
  assign poisoned = has_in && has_poison && held_epoch == gather.epoch && !poison_age[31];

  // --- plan and how far each block is --------------------------------------------------------------
  block_t blocks[2048], block, found_block;
  progress_t progresses[2048], progress, found_progress, own_progress, new_progress;
  logic [10:0] where;
  logic count_up;
  always_ff @(posedge clk) begin
    if (block_write) blocks[block_where] <= block_value;
    if (block_write) progresses[block_where] <= '0;
    else if (count_up) progresses[where] <= new_progress;
    found_block <= blocks[where];
    found_progress <= progresses[where];
  end

  // --- the frame at the head -----------------------------------------------------------------------
  frame_t head;
  logic [31:0] epochs, steps, idle_epochs;
  logic [16:0] collectives;
  logic is_data, is_old, is_future;
  assign head = head_data[255:0];
  assign epochs = head.epoch - gather.epoch;
  assign steps = head.step - gather.step;
  assign idle_epochs = head.epoch - epoch;
  assign collectives = {1'b0, head.collective} - {1'b0, gather.collective};
  assign is_data = head.kind == 8'(LORA_FRAME_DATA);
  always_comb begin
    if (epochs != '0) {is_old, is_future} = {epochs[31], !epochs[31]};
    else if (steps != '0)
      {is_old, is_future} = {steps[31] && head.kind != 8'(LORA_FRAME_POISON), !steps[31]};
    else {is_old, is_future} = {collectives[16], !collectives[16] && collectives != '0} & {2{is_data}};
    if (head.kind == 8'(LORA_FRAME_TEST)) {is_old, is_future} = 2'b10;
  end

  // --- what the plan says of it --------------------------------------------------------------------
  logic own, poisons, poison_waits, future, own_done, longer, right;
  logic [4:0] own_where;
  logic [5:0] row_at;
  size_t width, block_bytes, row_start, left_bytes;
  logic [12:0] length;
  logic [7:0] source, total, forward, distance, hops_left;
  logic [31:0] send_epoch, send_step;
  logic [7:0] send_source;
  assign source = own ? {1'b0, gather.rank} : header.source;
  assign longer = block.odd ^ to_next;
  assign total = gather.ring ? (longer ? gather.boards >> 1 : (gather.boards - 8'd1) >> 1) :
      to_next ? gather.boards - 8'd1 - source : source;
  assign forward = {1'b0, gather.rank} - source + ({1'b0, gather.rank} < source ? gather.boards : 8'd0);
  assign distance = to_next ? forward : gather.boards - forward;
  assign hops_left = forward == 8'd0 || distance > total ? 8'd0 : total - distance + 8'd1;
  assign row_at = {where[4:3], 4'd0} + 6'(progress.row);
  assign left_bytes = block_bytes - progress.bytes;
  assign length = left_bytes < size_t'(LORA_FRAME_PAYLOAD) ? 13'(left_bytes) : 13'(LORA_FRAME_PAYLOAD);
  assign right = block.valid && header.segments == 16'(block.segments) && left_bytes != '0 &&
      header.offset == 32'(progress.bytes) && header.part == 16'(progress.bytes >> 12) &&
      header.length == 32'(length) && hops_left != 8'd0 && header.hop == hops_left;

  // --- pieces --------------------------------------------------------------------------------------
  logic walk_start, piece_valid, piece_ready, piece_line_ends, piece_ends;
  logic [6:0] piece_line, piece_count;
  logic [5:0] piece_byte, piece_memory_byte;
  logic [20:0] piece_memory_line;
  logic [4:0] next_row;
  size_t next_byte;
  logic move_file, file_ends;
  assign walk_start = (state == JUDGE && !own && right && header.hop == 8'd1) ||
      (state == COPY && commit) || (state == OPEN && !poisons);
  part_walk walk (
      .clk(clk),
      .rst(clear),
      .start(walk_start),
      .part_bytes(header.length[12:0]),
      .row_start(row_start),
      .stride(gather.stride),
      .width(width),
      .row(progress.row),
      .at_byte(progress.at_byte),
      .piece_valid(piece_valid),
      .piece_ready(piece_ready),
      .frame_line(piece_line),
      .frame_byte(piece_byte),
      .memory_line(piece_memory_line),
      .memory_byte(piece_memory_byte),
      .count(piece_count),
      .ends_line(piece_line_ends),
      .ends_part(piece_ends),
      .next_row(next_row),
      .next_byte(next_byte)
  );
  logic ask_ready, out_valid, out_line_ends, out_ends;
  logic [511:0] out_data;
  logic [5:0] out_byte, out_by;
  logic [6:0] out_count;
  line_reads #(
      .NOTE_BITS(21)
  ) reads (
      .clk(clk),
      .rst(clear),
      .ask_valid(piece_valid && state == SEND),
      .ask_ready(ask_ready),
      .ask_line(piece_memory_line),
      .ask_note({piece_byte, piece_byte - piece_memory_byte, piece_count, piece_line_ends, piece_ends}),
      .read_valid(read_valid),
      .read_ready(read_ready),
      .read_line(read_line),
      .read_tag(read_tag),
      .line_valid(line_valid),
      .line_tag(line_tag),
      .line_data(line_data),
      .out_valid(out_valid),
      .out_ready(1'b1),
      .out_data(out_data),
      .out_note({out_byte, out_by, out_count, out_line_ends, out_ends})
  );
  assign move_file = !write_valid || write_ready;
  assign piece_ready = state == SEND ? ask_ready : move_file;

  // One place where bytes are turned: towards memory, towards the frame, and its CRC.
  logic [511:0] turned, turn_in;
  logic [5:0] turn_by, file_by, end_byte;
  logic [31:0] crc;
  assign end_byte = header.length[5:0] + 6'(HEADER_BYTES);
  always_comb begin
    unique case (state)
      FILE: {turn_in, turn_by} = {head_data, file_by};
      SEND: {turn_in, turn_by} = {out_data, out_by};
      default: {turn_in, turn_by} = {480'd0, ~crc, end_byte};
    endcase
  end
  assign turned = turn(turn_in, turn_by);
  assign write_data = turned;

  // --- own frames ----------------------------------------------------------------------------------
  logic [511:0] line, full_line, placed, hashed;
  logic full_valid, hashes;
  logic [6:0] line_at, crc_bytes;
  logic [5:0] pad;
  logic [2:0] step;
  assign pad = -end_byte;
  assign crc_bytes = state == SEAL ? 7'd4 : {1'b0, end_byte} + 7'd4 - 7'd64;
  assign placed = line | only(turned, state == SEND ? bytes_from(out_byte, out_count) :
                              bytes_from(state == SEAL ? end_byte : 6'd0, crc_bytes));
  assign hashes = full_valid || (state == SUM && end_byte != 6'd0);
  assign hashed = only(full_valid ? full_line : line, ~(64'(line_at == 7'd0) << HOP_BYTE));

  logic copies;  // what was read a cycle ago
  logic [6:0] copy_at, copy_line, last_line;
  assign last_line = 7'((header.length[12:0] + 13'd35) >> 6);
  always_comb begin
    frame_write = full_valid || state == SEAL || state == SPILL || copies;
    frame_at = copies ? copy_line : line_at;
    frame_data = full_valid ? full_line : placed;
    if (copies) frame_data = head_data;
    if (copies && copy_line == 7'd0) frame_data[8*HOP_BYTE+:8] = header.hop - 8'd1;
  end
  assign commit = (copies && copy_line == last_line) || (state == SEAL && end_byte <= 6'd60) ||
      state == SPILL;

  always_comb begin
    head_read = state == IDLE || (state == COPY && copy_at <= last_line) ||
        (state == FILE && piece_valid && move_file);
    head_line = state == COPY ? copy_at : state == FILE ? piece_line : 7'd0;
  end

  assign new_progress = '{bytes: progress.bytes + size_t'(header.length), row: next_row, at_byte: next_byte};
  assign filed_valid = state == COUNT;
  assign filed_block = block;
  assign filed_where = where[4:0];
  assign filed_bytes = header.length[12:0];
  assign count_up = filed_valid && filed_ready;
  assign received = count_up;
  assign dropped = state == HEAD && (active ? has_in && head_intact && is_old : idle && idle_epochs[31]);
  assign pop = count_up || dropped;
  assign sent = commit && !poisons;
  assign quiet = state == IDLE;
  assign sent_all = !has_out || own_done;
  assign failed = stopped;
  assign blocked = state == ROOM || (state == JUDGE && own && !has_room);

  always_ff @(posedge clk) begin
    if (poison_valid) begin
      poison_waits <= 1'b1;
      send_epoch <= poison_epoch;
      send_step <= poison_step;
      send_source <= poison_source;
    end
    // an abort may end it on its way, and then it is sent again
    if (commit && poisons && header.epoch == send_epoch && header.step == send_step)
      poison_waits <= poison_valid;
    // frame lines of own bytes
    full_valid <= state == SEND && out_valid && out_line_ends;
    if (state == SEND && out_valid) begin
      full_line <= placed;
      line <= out_line_ends ? '0 : placed;
    end
    if (full_valid) line_at <= line_at + 7'd1;
    if (hashes) crc <= crc_line(crc, hashed);
    // lines to forward
    copies <= state == COPY && copy_at <= last_line;
    copy_line <= copy_at;
    // lines to file
    if (move_file) begin
      write_valid <= state == FILE && piece_valid;
      write_line <= piece_memory_line;
      write_bytes <= bytes_from(piece_memory_byte, piece_count);
      file_by <= piece_memory_byte - piece_byte;
      file_ends <= piece_ends;
    end

    unique case (state)
      IDLE: begin
        own <= 1'b0;
        poisons <= 1'b0;
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
        end else if (stopped) state <= IDLE;
        else if (head_valid && (!active || (has_in && !future))) state <= HEAD;
        else if (active && !sent_all) begin
          own <= 1'b1;
          where <= {gather.rank[5:0], own_where};
          state <= FIND;
        end
      end
      HEAD: begin
        header <= head;
        where <= {head.source[5:0], head.row_group[1:0], head.segment[2:0]};
        state <= IDLE;
        if (active && has_in) begin
          if (!head_intact) stopped <= 1'b1;
          else if (is_future) future <= 1'b1;
          else if (!is_old) begin
            if (!is_data || head.source >= gather.boards || head.segment >= 8'(LORA_SEGMENTS) ||
                head.row_group > 16'(last_group(gather.rows)))
              stopped <= 1'b1;
            else state <= FIND;
          end
        end
      end
      FIND: state <= ENTRY;
      ENTRY: begin
        block <= found_block;
        progress <= own ? own_progress : found_progress;
        state <= MEASURE;
      end
      MEASURE: begin
        width <= block.columns << gather.shift;
        block_bytes <= (block.columns << gather.shift) * size_t'(group_rows(gather.rows, where[4:3]));
        row_start <= gather.base + (block.column << gather.shift) +
            gather.stride * size_t'(row_at);
        state <= JUDGE;
      end
      JUDGE:
      if (!own) begin
        stopped <= !right;
        copy_at <= 7'd0;
        state <= !right ? IDLE : header.hop == 8'd1 ? FILE : ROOM;
      end else begin
        header <= '{
            magic: LORA_FRAME_MAGIC,
            epoch: gather.epoch,
            step: gather.step,
            collective: gather.collective,
            row_group: {14'd0, where[4:3]},
            source: source,
            segment: {5'd0, where[2:0]},
            hop: total,
            kind: 8'(LORA_FRAME_DATA),
            segments: 16'(block.segments),
            part: 16'(progress.bytes >> 12),
            offset: 32'(progress.bytes),
            length: 32'(length)
        };
        if (!block.valid || total == 8'd0 || left_bytes == '0) begin
          own_progress <= '0;
          own_where <= own_where + 5'd1;
          own_done <= own_where == {last_group(gather.rows), 3'd7};
          state <= IDLE;
        end else if (has_room && (free >= 3'd3 || future || !has_in)) state <= OPEN;
        else state <= IDLE;
      end
      ROOM: if (has_room) state <= COPY;
      COPY: begin
        if (copy_at <= last_line) copy_at <= copy_at + 7'd1;
        if (commit) state <= FILE;
      end
      FILE: if (write_valid && write_ready && file_ends) state <= COUNT;
      COUNT: if (filed_ready) state <= IDLE;
      OPEN: begin
        line <= 512'(header);
        line_at <= 7'd0;
        crc <= '1;
        state <= poisons ? SUM : SEND;
      end
      SEND: if (out_valid && out_ends) state <= SUM;
      SUM: begin
        step <= 3'd5;
        if (!full_valid) state <= end_byte == 6'd0 ? SEAL : UNPAD;
      end
      UNPAD: begin  // the state before the zeros behind the frame's last byte
        if (pad[step]) crc <= crc_back(crc, step);
        step <= step - 3'd1;
        if (step == 3'd0) state <= SEAL;
      end
      default: begin
        line <= '0;
        line_at <= line_at + 7'd1;
        if (commit && !poisons) own_progress <= new_progress;
        state <= commit ? IDLE : SPILL;
      end
    endcase
    if (start) begin
      {future, own_done} <= 2'b00;
      own_where <= 5'd0;
      own_progress <= '0;
    end
    if (clear) begin
      state <= IDLE;
      {stopped, full_valid, copies, write_valid} <= 4'b0000;
    end
    if (rst) poison_waits <= 1'b0;
  end
endmodule
