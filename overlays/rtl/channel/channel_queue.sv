// SPDX-License-Identifier: Apache-2.0
// Commands that were announced, in order: each is checked, refused by name or broadcast to the channels as a descriptor, two
// cycles of it. Two readers: what asks for scales and bias, and what runs the command.
// Reset: `rst` forgets them all.
module channel_queue
  import mpu_types::*;
  import channel_types::*;
#(
    parameter int CHANNELS = 32,
    parameter int ROWS = 2,
    parameter int QUEUE = 2
) (
    input  logic        clk,
    input  logic        rst,
    input  logic        announce,
    input  command_t    announced,
    output logic        full,
    output logic        empty,
    // the broadcast
    output logic        push,
    output descriptor_t descriptor,
    // the reader of scales and bias
    output logic        params_valid,
    output command_t    params,
    input  logic        params_next,
    // the run
    output logic        head_valid,   // and checked
    output command_t    head,
    output status_t     head_status,  // ENDED_DONE: it is good
    input  logic        head_next
);
  localparam int LOG = $clog2(CHANNELS), PLACE = QUEUE > 1 ? $clog2(QUEUE) : 1;
  typedef logic [PLACE-1:0] place_t;
  function automatic place_t after(input place_t place);
    return QUEUE == 1 ? '0 : place + 1'b1;
  endfunction

  /* verilator lint_off UNUSEDSIGNAL */
  command_t commands[QUEUE], command;
  /* verilator lint_on UNUSEDSIGNAL */
  status_t statuses[QUEUE], status;
  logic [QUEUE-1:0] checked;
  place_t put, head_at, params_at, check_at, check_at_1;
  logic [PLACE:0] count, params_count;
  logic check_1, check_2;
  logic [6:0] block_lines;
  logic [7:0] blocks;
  logic params_skip;
  assign full = count == (PLACE + 1)'(QUEUE);
  assign empty = count == '0;
  assign head = commands[head_at];
  assign head_status = statuses[head_at];
  assign head_valid = !empty && checked[head_at];
  assign params = commands[params_at];
  assign params_valid = params_count != '0 && checked[params_at] && statuses[params_at] == ENDED_DONE;
  assign params_skip = params_count != '0 && checked[params_at] && statuses[params_at] != ENDED_DONE;

  // check_1: the verdict, and products
  logic [15:0] low_k;  // beyond whole groups
  assign command = commands[check_at];
  assign blocks = 8'((command.k + 16'd127) >> 7);
  assign block_lines = block_lines_of(command.four_bit, command.group_log);
  assign low_k = command.k & ((16'd32 << command.group_log) - 16'd1);
  always_comb begin
    status = ENDED_DONE;
    if (command.merge != blocks) status = REFUSED_MERGE;
    if (32'(command.bank_count) != CHANNELS) status = REFUSED_BANKS;
    if (command.n == 32'd0 || command.n > 32'h1000000 || command.rows == 7'd0 || command.rows > 7'd64) status = REFUSED_SIZE;
    if (command.four_bit && low_k != 16'd0) status = REFUSED_SIZE;
    if (command.k == 16'd0 || command.k > 16'(MAX_K)) status = REFUSED_K;
    if (command.four_bit == command.eight_bit || command.adapted || (command.four_bit && command.group_log == 2'd3))
      status = REFUSED_KIND;
  end
  logic [13:0] tile_lines;
  logic [29:0] begin_lines;
  logic good_2;
  descriptor_t made_2;
  assign begin_lines = 30'(made_2.line[15:0]) * 30'(made_2.tile_lines);
  logic [31:0] weight_line_2;
  assign tile_lines = 14'(blocks) * 14'(block_lines);
  always_ff @(posedge clk) begin
    check_1 <= announce;
    check_2 <= check_1;
    if (announce) begin
      commands[put] <= announced;
      checked[put] <= 1'b0;
      check_at <= put;
      put <= after(put);
    end
    if (check_1) begin
      statuses[check_at] <= status;
      check_at_1 <= check_at;
      good_2 <= status == ENDED_DONE;
      weight_line_2 <= command.weight_line;
      made_2 <= '{
          four_bit: command.four_bit, group_log: command.four_bit ? command.group_log : 2'd0, k: command.k,
          block_lines: block_lines, tile_lines: tile_lines,
          line: 32'(command.first) >> LOG,  // turns over the banks, yet
          begin_bank: 5'(command.first[LOG-1:0]),
          tiles: 20'((command.n + 32'd31) >> 5), passes: (command.rows + 7'(ROWS - 1)) / 7'(ROWS)
      };
    end
    push <= check_2 && good_2;
    if (check_2) begin
      descriptor <= made_2;
      descriptor.line <= weight_line_2 + {2'd0, begin_lines};
      checked[check_at_1] <= 1'b1;
    end
    count <= count + (PLACE + 1)'(announce) - (PLACE + 1)'(head_next);
    params_count <= params_count + (PLACE + 1)'(announce) - (PLACE + 1)'(params_next || params_skip);
    if (head_next) head_at <= after(head_at);
    if (params_next || params_skip) params_at <= after(params_at);
    if (rst) begin
      {check_1, check_2, push} <= 3'd0;
      put <= '0;
      head_at <= '0;
      params_at <= '0;
      count <= '0;
      params_count <= '0;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) if (!rst) begin
    assert (!announce || !full) else $fatal(1, "more commands than the queue has room for");
    assert (!head_next || head_valid) else $fatal(1, "no command to end");
    assert (!(params_next && params_skip)) else $fatal(1, "scales of a refused command");
    // whoever runs a command has had its scales
    assert (!head_next || params_count < count || head_status != ENDED_DONE) else $fatal(1, "a command ends without scales");
  end
`endif
endmodule
