// SPDX-License-Identifier: Apache-2.0
// W4A8 and W8A8 matmuls of a LORA_CMD_MATRIX on CHANNELS arrays, one behind the port of each bank. `merge` is ceil(K/128), so
// column tile t lies whole in bank (first + t) mod CHANNELS: its channel computes it alone, and nothing crosses.
//
//   announce > channel_queue > push ------.          shared port < x, channel_params
//                                         | down_t (two registers) |
//                                         v                        v feed
//   bank ports > channel_group: channels > channel_finish > channel_writes > shared port
//                                         | up_t (two registers): runs, over, quiet, bad
//                                         v
//   start > the run: rows of x, go, joined end, next rows > result
//
// Commands are announced ahead, QUEUE of them, and started in order. From the announce on channels fill their buffers; what
// else a command reads, x, is read when it is started and the one before it has ended.
// Reset, abort: as port/unit_port.sv has them. A line with a fault ends the command that uses it, and all that was
// announced is forgotten, as by an abort. A refused command reads and writes nothing.
// Assumes: bank ports answer in order, the shared one in any; weights and tables are in memory when they are announced;
// y does not lie over x; rows of x and y begin at lines.
module channel_matmul
  import mpu_types::*;
  import channel_types::*;
#(
    parameter int CHANNELS = 32,   // a power of two, 2 .. 32
    parameter int ROWS = 2,        // at once, 1 .. 4
    parameter int QUEUE = 2,       // commands that may be announced, the running one in it
    parameter int LINES = 4096,    // of a channel's buffer: 256 KiB
    parameter int FINISHERS = 8,   // at most; no more than channels
    parameter int DSP58 = 0,
    parameter int DSP48 = 0
) (
    input  logic                    clk,
    input  logic                    rst,
    input  logic                    abort_valid,
    output logic                    idle,
    input  logic                    announce_valid,
    output logic                    announce_ready,
    input  command_t                command,
    input  logic                    start_valid,
    output logic                    start_ready,  // a command has been announced that was not started, or is now
    output result_t                 result,
    output mem_req_t                bank_request[CHANNELS],
    input  logic     [CHANNELS-1:0] bank_ready,
    input  mem_rsp_t                bank_response[CHANNELS],
    output read_req_t               read_request,
    input  logic                    read_ready,
    input  read_rsp_t               read_response,
    output write_req_t              write_request,
    input  logic                    write_ready
);
  localparam int GROUPS = FINISHERS < CHANNELS ? FINISHERS : CHANNELS;
  localparam int LINKS = CHANNELS / GROUPS;
  localparam int SETTLE = 10;  // cycles until `go` shows in what is joined

  // --- ports -------------------------------------------------------------------------------------
  logic runs, clear, all_run, read_taken, write_taken, line_here, fails;
  read_req_t wanted;
  write_req_t offered;
  unit_port shared_port (
      .clk(clk),
      .rst(rst),
      .abort_valid(abort_valid || fails),
      .runs(runs),
      .clear(clear),
      .unit_read_valid(wanted.valid),
      .unit_read_ready(read_taken),
      .unit_write_valid(offered.valid),
      .unit_write_ready(write_taken),
      .unit_line_valid(line_here),
      .read_valid(read_request.valid),
      .read_ready(read_ready),
      .line_valid(read_response.valid),
      .write_valid(write_request.valid),
      .write_ready(write_ready)
  );
  assign {read_request.bank, read_request.line, read_request.tag} = {wanted.bank, wanted.line, wanted.tag};
  assign {write_request.bank, write_request.line, write_request.bytes, write_request.data}
      = {offered.bank, offered.line, offered.bytes, offered.data};

  // --- commands ----------------------------------------------------------------------------------
  logic announce, full, empty, push, params_valid, params_next, head_valid, head_next;
  /* verilator lint_off UNUSEDSIGNAL */
  command_t params, head;
  /* verilator lint_on UNUSEDSIGNAL */
  status_t head_status;
  descriptor_t descriptor;
  logic [$clog2(QUEUE):0] unstarted;
  logic start, started;  // started: the head
  assign announce_ready = runs && all_run && !full;
  assign announce = announce_valid && announce_ready;
  assign start_ready = runs && all_run && (unstarted != '0 || announce);
  assign start = start_valid && start_ready;
  channel_queue #(
      .CHANNELS(CHANNELS),
      .ROWS(ROWS),
      .QUEUE(QUEUE)
  ) queue (
      .clk(clk),
      .rst(clear),
      .announce(announce),
      .announced(command),
      .full(full),
      .empty(empty),
      .push(push),
      .descriptor(descriptor),
      .params_valid(params_valid),
      .params(params),
      .params_next(params_next),
      .head_valid(head_valid),
      .head(head),
      .head_status(head_status),
      .head_next(head_next)
  );
  logic [$clog2(QUEUE):0] in_queue;  // that have not ended
  assign started = in_queue != unstarted;
  always_ff @(posedge clk) begin
    unstarted <= unstarted + ($clog2(QUEUE) + 1)'(announce) - ($clog2(QUEUE) + 1)'(start);
    in_queue <= in_queue + ($clog2(QUEUE) + 1)'(announce) - ($clog2(QUEUE) + 1)'(head_next);
    if (clear) begin
      unstarted <= '0;
      in_queue <= '0;
    end
  end

  // --- the broadcast and what comes back -----------------------------------------------------------
  down_t down;
  up_t joined;
  up_t [GROUPS-1:0] up;
  logic go, whole, all_quiet, all_over;
  fault_t bad;
  always_ff @(posedge clk) begin
    down.ends <= abort_valid || fails;
    down.clear <= clear;
    down.push <= push;
    if (push) down.descriptor <= descriptor;
    down.go <= go;
    down.whole <= whole;
    down.feed.valid <= line_here;
    if (line_here) {down.feed.fault, down.feed.tag, down.feed.data} <= {read_response.fault, read_response.tag, read_response.data};
    {all_run, all_over, all_quiet, bad} <= joined;
    if (clear) {down.push, down.go, down.whole, down.feed.valid} <= 4'd0;
    if (rst) begin
      down.ends <= 1'b0;
      down.clear <= 1'b1;
      {all_run, all_over, all_quiet, bad} <= '0;
    end
  end
  always_comb begin
    joined = '{runs: 1'b1, over: 1'b1, quiet: 1'b1, bad: '0};
    for (int i = 0; i < GROUPS; i++) begin
      joined.runs &= up[i].runs;
      joined.over &= up[i].over;
      joined.quiet &= up[i].quiet;
      joined.bad |= up[i].bad;
    end
  end

  // --- what is read beside the weights: x first ------------------------------------------------------
  logic [CHANNELS-1:0] params_taken;
  read_req_t params_wanted, x_wanted;
  logic params_asked, x_asked, asks;
  channel_params #(
      .CHANNELS(CHANNELS),
      .ROWS(ROWS)
  ) scales (
      .clk(clk),
      .rst(clear),
      .command_valid(params_valid),
      .command(params),
      .next(params_next),
      .taken(params_taken),
      .wanted(params_wanted),
      .asked(params_asked)
  );
  assign asks = !wanted.valid || read_taken;
  assign x_asked = asks && x_wanted.valid;
  assign params_asked = asks && !x_wanted.valid && params_wanted.valid;
  always_ff @(posedge clk) begin
    if (asks) wanted <= x_wanted.valid ? x_wanted : params_wanted;
    if (clear) wanted.valid <= 1'b0;
  end

  // --- the run -----------------------------------------------------------------------------------
  typedef enum logic [1:0] {IDLE, PLACE, LOAD, JOIN} state_t;
  state_t state;
  pass_fields_t fields;
  logic [ROWS-1:0][31:0] row_lines;
  logic [31:0] row_line, pass_line, y_line;  // pass_line: of its first row of x
  logic [6:0] rows_left;
  logic [2:0] row, x_row;
  logic [9:0] x_index, x_lines, last_index, x_head;  // x_head: lines of a row that a pass begins with
  logic [11:0] x_waiting;                            // of all
  logic [8:0] head_waiting;
  logic [3:0] settling;
  logic x_asks, x_rest, x_short;  // what is asked for: first lines of all rows, then the rest; short: there is none
  logic x_last, x_comes, is_head, head_done, x_done, told_whole, pass_over, ends, writes_quiet, fails_now;
  fault_t x_fault, found;  // found: in a line that is used
  logic [31:0] nonfinite_count, nonfinite_row;
  status_t status;
  logic ended;
  x_tag_t x_tag;
  assign x_lines = 10'((head.k + 16'd63) >> 6);
  assign last_index = x_lines - 10'(!head.row_scales);
  assign x_tag = '{is_x: 1'b1, is_scale: x_index == x_lines, row: x_row[1:0], index: x_index[8:0]};
  assign x_wanted = '{valid: x_asks, bank: head.x_bank, line: row_line + {22'd0, x_index}, tag: x_tag};
  assign x_last = x_index == (x_rest || x_short ? last_index : x_head - 10'd1);
  assign x_comes = down.feed.valid && down.feed.tag.x.is_x;
  assign is_head = x_short || {1'b0, down.feed.tag.x.index} < x_head;
  assign head_done = state == LOAD && (!x_asks || x_rest) && head_waiting == 9'd0;
  assign x_done = !x_asks && x_waiting == 12'd0;
  assign pass_over = state == JOIN && told_whole && settling == 4'd0 && all_over && all_quiet && writes_quiet;
  assign head_next = ends;
  assign x_fault = x_comes ? down.feed.fault : '0;
  assign found = bad | x_fault;
  assign fails_now = state != IDLE && found != '0 && !fails;
  // not while an abort waits for what is on offer: channels are cleared before the run, and seem to be over
  assign ends = runs && ((state == IDLE && head_valid && started && head_status != ENDED_DONE) || (pass_over && rows_left == 7'd0));
  always_ff @(posedge clk) begin
    go <= head_done;
    whole <= x_done && !told_whole && (state == LOAD || state == JOIN);
    if (x_done && (state == LOAD || state == JOIN)) told_whole <= 1'b1;
    ended <= ends || fails_now;
    fails <= fails_now;
    status <= fails_now ? (found.refused ? ENDED_ADDRESS : ENDED_FAILED) : state == IDLE ? head_status : ENDED_DONE;
    x_waiting <= x_waiting + 12'(x_asked) - 12'(x_comes);
    head_waiting <= head_waiting + 9'(x_asked && !x_rest) - 9'(x_comes && is_head);
    if (settling != 4'd0) settling <= settling - 4'd1;
    if (x_asked) begin
      x_index <= x_index + 10'd1;
      if (x_last) begin
        x_index <= x_rest ? x_head : 10'd0;
        x_row <= x_row + 3'd1;
        row_line <= row_line + head.x_stride;
        if (x_row + 3'd1 == fields.rows) begin
          x_asks <= !x_rest && !x_short;
          x_rest <= 1'b1;
          if (!x_rest && !x_short) begin
            x_index <= x_head;
            x_row <= 3'd0;
            row_line <= pass_line;
          end
        end
      end
    end
    case (state)
      IDLE:
      if (head_valid && started && head_status == ENDED_DONE) begin
        state <= PLACE;
        rows_left <= head.rows;
        row_line <= head.x_line;
        y_line <= head.y_line;
        row <= 3'd0;
        fields <= '{
            four_bit: head.four_bit, row_scales: head.row_scales, has_bias: head.has_bias, y_single: head.y_single,
            n: head.n[24:0], rows: 3'd0, first_row: 7'd0
        };
      end
      PLACE: begin  // rows of y, one a cycle
        row_lines[row[$clog2(ROWS > 1 ? ROWS : 2)-1:0]] <= y_line;
        y_line <= y_line + head.y_stride;
        row <= row + 3'd1;
        rows_left <= rows_left - 7'd1;
        x_row <= 3'd0;
        x_index <= 10'd0;
        x_rest <= 1'b0;
        x_head <= x_head_lines(head.k);
        x_short <= x_lines <= x_head_lines(head.k);
        pass_line <= row_line;
        told_whole <= 1'b0;
        if (row == 3'(ROWS - 1) || rows_left == 7'd1) begin
          fields.rows <= row + 3'd1;
          x_asks <= 1'b1;
          state <= LOAD;
        end
      end
      LOAD:
      if (head_done) begin
        settling <= 4'(SETTLE);
        state <= JOIN;
      end
      default:
      if (pass_over) begin
        row <= 3'd0;
        fields.first_row <= fields.first_row + 7'(ROWS);
        state <= rows_left == 7'd0 ? IDLE : PLACE;
      end
    endcase
    if (clear) begin
      state <= IDLE;
      go <= 1'b0;
      whole <= 1'b0;
      x_asks <= 1'b0;
      ended <= 1'b0;
      fails <= 1'b0;
      x_waiting <= 12'd0;
      head_waiting <= 9'd0;
      settling <= 4'd0;
    end
  end
  assign idle = runs && all_run && empty && state == IDLE;
  assign result = '{
      valid: ended && runs, status: status,
      nonfinite_count: status == ENDED_DONE ? nonfinite_count : 32'd0,
      nonfinite_row: status == ENDED_DONE ? nonfinite_row : 32'hffffffff
  };

  // --- channels, finishers, results ------------------------------------------------------------------
  result_line_t lines[GROUPS];
  logic [GROUPS-1:0] room;
  for (genvar i = 0; i < GROUPS; i++) begin : groups
    mem_req_t [LINKS-1:0] request;
    mem_rsp_t [LINKS-1:0] response;
    for (genvar j = 0; j < LINKS; j++) begin : banks
      assign bank_request[LINKS*i+j] = request[j];
      assign response[j] = bank_response[LINKS*i+j];
    end
    group_block #(
        .CHANNELS(CHANNELS),
        .LINKS(LINKS),
        .ROWS(ROWS),
        .QUEUE(QUEUE),
        .LINES(LINES),
        .DSP58(DSP58),
        .DSP48(DSP48)
    ) group (
        .clk(clk),
        .rst(rst),
        .first(5'(i * LINKS)),
        .down(down),
        .fields(fields),
        .row_lines(row_lines),
        .up(up[i]),
        .params_taken(params_taken[LINKS*i+:LINKS]),
        .line(lines[i]),
        .room(room[i]),
        .request(request),
        .ready(bank_ready[LINKS*i+:LINKS]),
        .response(response)
    );
  end
  channel_writes #(
      .FINISHERS(GROUPS)
  ) writes (
      .clk(clk),
      .rst(clear),
      .start(state == IDLE && head_valid && started),
      .bank(head.y_bank),
      .lines(lines),
      .room(room),
      .request(offered),
      .ready(write_taken),
      .quiet(writes_quiet),
      .nonfinite_count(nonfinite_count),
      .nonfinite_row(nonfinite_row)
  );

`ifndef SYNTHESIS
  read_req_t read_1;
  logic stays;
  always_ff @(posedge clk) begin
    read_1 <= read_request;
    stays <= read_request.valid && !read_ready && !rst;
    if (!rst) begin
      assert (!stays || read_request == read_1) else $fatal(1, "a read changes before it is taken");
      assert (!result.valid || !clear) else $fatal(1, "a result behind an abort");
      assert (!go || (all_over && all_quiet)) else $fatal(1, "a pass begins within another");
    end
  end
`endif
endmodule
