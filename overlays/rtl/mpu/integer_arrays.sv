// SPDX-License-Identifier: Apache-2.0
// INT8 matmuls of a card with channels, one unit to matmul_slot: what lies by columns over the channels' banks and has no
// adapters goes to the channels, each behind its bank; the rest to the array behind the units' port. One command at a time.
// Announced commands' weights are read ahead until the channels' buffers are full, while another command runs too: QUEUE of
// them, the running one in it.
// A line that no arena covers or that memory cannot read ends a command of the channels where it is used, one of the array
// when it comes. Abort, reset: as port/unit_port.sv has them; a command is taken when both have ended.
module integer_arrays
  import mpu_types::*;
  import channel_types::*;
#(
    parameter int CHANNELS = 4,    // as channel_matmul has them, and the next; banks are 0 .. CHANNELS-1
    parameter int CHANNEL_ROWS = 2,  // not less than ROWS: matmul_slot lets so many rows of y lie over x
    parameter int QUEUE = 2,
    parameter int LINES = 8192,    // of a channel's buffer: 512 KiB
    parameter int FINISHERS = 8,
    parameter int ROWS = 1,        // as mpu_int8 has them, and the rest
    parameter int DEPTH = 8,
    parameter int DSP58 = 0,
    parameter int DSP48 = 0
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         abort_valid,
    output logic         idle,
    output logic         early,          // `command` may be announced although not idle, and is held here then
    input  logic         announce_valid,
    input  logic         command_valid,
    output logic         command_ready,
    input  logic         command_told,   // with command_valid: start what was announced first; `command` is another one
    input  command_t     command,        // held from announce to start, unless it is held here
    output logic         done,
    output logic         refused,        // one cycle: a line that no arena covers
    output logic         failed,          // one cycle: one that memory could not read
    output logic [31:0]  nonfinite_count,
    output logic [31:0]  nonfinite_row,
    // adapter unit, beside the array
    output logic [2:0]         stripe_log,
    output logic               stripe_valid,
    output logic [32*ROWS-1:0] stripe_values,
    input  logic               values_free,
    input  logic               values_valid,
    input  logic [32*ROWS-1:0] values_single,
    input  logic [16*ROWS-1:0] values_half,
    // the units' port
    output logic         read_valid,
    input  logic         read_ready,
    output logic [5:0]   read_bank,
    output logic [31:0]  read_line,
    output logic [15:0]  read_tag,
    input  logic         line_valid,
    input  logic         line_refused,
    input  logic         line_error,
    input  logic [15:0]  line_tag,
    input  logic [511:0] line_data,
    output logic         write_valid,
    input  logic         write_ready,
    output logic [5:0]   write_bank,
    output logic [31:0]  write_line,
    output logic [63:0]  write_bytes,
    output logic [511:0] write_data,
    // the banks' ports
    output logic [CHANNELS-1:0] bank_read_valid,
    input  logic [CHANNELS-1:0] bank_read_ready,
    output logic [31:0]         bank_read_line[CHANNELS],
    input  logic [CHANNELS-1:0] bank_line_valid,
    input  logic [511:0]        bank_line_data[CHANNELS],
    input  logic [CHANNELS-1:0] bank_line_refused,
    input  logic [CHANNELS-1:0] bank_line_error
);
  localparam int ARRAY = 0, WIDE = 1, PARTS = 2;
  if (CHANNEL_ROWS < ROWS) begin : wrong_rows
    $error("CHANNEL_ROWS: at least ROWS");
  end

  // --- which of them -----------------------------------------------------------------------------
  logic by_columns, wide, wide_start, wide_ready, starts_wide, array_idle, array_ready, array_done, wide_idle, wide_failed;
  logic [PARTS-1:0] refused_here, failed_here;  // lines of each
  logic [31:0] array_count, array_row;
  result_t result;
  /* verilator lint_off UNUSEDSIGNAL */
  result_t last;  // its counts
  /* verilator lint_on UNUSEDSIGNAL */
  logic last_wide;  // of the command that was started last
  logic tells_wide;
  logic [$clog2(QUEUE):0] told;  // the channels, and not started
  assign by_columns = command.bank_first == 6'd0 && 32'(command.bank_count) == CHANNELS &&
      {8'd0, command.merge} == (command.k + 16'd127) >> 7 && !command.adapted && command.k <= 16'(MAX_K);
  assign wide = command_told || by_columns;
  assign wide_start = command_valid && wide;
  assign tells_wide = (announce_valid && by_columns) || (wide_start && told == '0);
  assign command_ready = array_ready && (told != '0 || wide_ready);  // what they were told waits for its start alone
  assign idle = array_idle && wide_idle;
  assign early = by_columns && wide_ready;
  assign wide_failed = result.valid && (result.status == ENDED_FAILED || result.status == ENDED_ADDRESS);
  assign done = array_done || (result.valid && !wide_failed);
  assign refused = refused_here[ARRAY] || (wide_failed && result.status == ENDED_ADDRESS);
  assign failed = failed_here[ARRAY] || (wide_failed && result.status == ENDED_FAILED);
  assign {nonfinite_count, nonfinite_row} =
      last_wide ? {last.nonfinite_count, last.nonfinite_row} : {array_count, array_row};
  always_ff @(posedge clk) begin
    told <= told + ($clog2(QUEUE) + 1)'(tells_wide) - ($clog2(QUEUE) + 1)'(wide_start);
    if (command_valid) last_wide <= wide;
    if (result.valid) last <= result;
    if (rst || abort_valid || wide_failed) told <= '0;
  end

  // --- the units' port: lines for channels have a kind of their own --------------------------------
  logic [PARTS-1:0] asks_read, read_taken, line_here, asks_write, write_taken;
  logic [PARTS-1:0][5:0] read_banks, write_banks;
  logic [PARTS-1:0][31:0] read_lines, write_lines;
  logic [PARTS-1:0][15:0] read_tags;
  logic [PARTS-1:0][63:0] bytes_written;
  logic [PARTS-1:0][511:0] data_written;
  /* verilator lint_off UNUSEDSIGNAL */
  logic part;
  /* verilator lint_on UNUSEDSIGNAL */
  shared_port #(
      .UNITS(PARTS),
      .TAG_BITS(16)
  ) memory (
      .clk(clk),
      .rst(rst),
      .unit_read_valid(asks_read),
      .unit_read_ready(read_taken),
      .unit_read_bank(read_banks),
      .unit_read_line(read_lines),
      .unit_read_tag(read_tags),
      .unit_line_valid(line_here),
      .unit_line_refused(refused_here),
      .unit_line_error(failed_here),
      .unit_write_valid(asks_write),
      .unit_write_ready(write_taken),
      .unit_write_bank(write_banks),
      .unit_write_line(write_lines),
      .unit_write_bytes(bytes_written),
      .unit_write_data(data_written),
      .read_valid(read_valid),
      .read_ready(read_ready),
      .read_bank(read_bank),
      .read_line(read_line),
      .read_tag({part, read_tag}),
      .line_valid(line_valid),
      .line_refused(line_refused),
      .line_error(line_error),
      .line_unit(line_kind_t'(line_tag[15:14]) == LINE_4_BIT),
      .write_valid(write_valid),
      .write_ready(write_ready),
      .write_bank(write_bank),
      .write_line(write_line),
      .write_bytes(write_bytes),
      .write_data(write_data)
  );

  mpu_int8 #(
      .ROWS(ROWS),
      .DEPTH(DEPTH),
      .DSP58(DSP58),
      .DSP48(DSP48)
  ) array (
      .clk(clk),
      .rst(rst),
      .abort_valid(abort_valid),
      .idle(array_idle),
      .announce_valid(announce_valid && !by_columns),
      .command_valid(command_valid && !wide),
      .command_ready(array_ready),
      .k(command.k),
      .n(command.n),
      .rows(command.rows),
      .weight_line(command.weight_line),
      .first(command.first),
      .merge(command.merge),
      .bank_first(command.bank_first),
      .bank_count(command.bank_count),
      .has_bias(command.has_bias),
      .bias_bank(command.bias_bank),
      .bias_line(command.bias_line),
      .x_bank(command.x_bank),
      .x_line(command.x_line),
      .x_stride(command.x_stride),
      .y_bank(command.y_bank),
      .y_line(command.y_line),
      .y_stride(command.y_stride),
      .y_single(command.y_single),
      .four_bit(command.four_bit),
      .group_log(command.group_log),
      .row_scales(command.row_scales),
      .adapted(command.adapted),
      .done(array_done),
      .nonfinite_count(array_count),
      .nonfinite_row(array_row),
      .stripe_log(stripe_log),
      .stripe_valid(stripe_valid),
      .stripe_values(stripe_values),
      .values_free(values_free),
      .values_valid(values_valid),
      .values_single(values_single),
      .values_half(values_half),
      .read_valid(asks_read[ARRAY]),
      .read_ready(read_taken[ARRAY]),
      .read_bank(read_banks[ARRAY]),
      .read_line(read_lines[ARRAY]),
      .read_tag(read_tags[ARRAY]),
      .line_valid(line_here[ARRAY]),
      .line_tag(line_tag),
      .line_data(line_data),
      .write_valid(asks_write[ARRAY]),
      .write_ready(write_taken[ARRAY]),
      .write_bank(write_banks[ARRAY]),
      .write_line(write_lines[ARRAY]),
      .write_bytes(bytes_written[ARRAY]),
      .write_data(data_written[ARRAY])
  );

  mem_req_t request[CHANNELS];
  mem_rsp_t response[CHANNELS];
  for (genvar i = 0; i < CHANNELS; i++) begin : banks
    assign {bank_read_valid[i], bank_read_line[i]} = request[i];
    assign response[i] = '{
        valid: bank_line_valid[i], fault: '{bank_line_refused[i], bank_line_error[i]}, data: bank_line_data[i]
    };
  end
  localparam int FEED_BITS = $bits(feed_tag_t);
  read_req_t wanted;
  write_req_t offered;
  read_rsp_t answer;
  assign answer =
      '{valid: line_here[WIDE], fault: '{refused_here[WIDE], failed_here[WIDE]}, tag: line_tag[FEED_BITS-1:0],
        data: line_data};
  assign {asks_read[WIDE], read_banks[WIDE], read_lines[WIDE]} = {wanted.valid, wanted.bank, wanted.line};
  assign read_tags[WIDE] = {LINE_4_BIT, (14 - FEED_BITS)'(0), wanted.tag};
  assign asks_write[WIDE] = offered.valid;
  assign {write_banks[WIDE], write_lines[WIDE], bytes_written[WIDE], data_written[WIDE]} =
      {offered.bank, offered.line, offered.bytes, offered.data};
  channel_matmul #(
      .CHANNELS(CHANNELS),
      .ROWS(CHANNEL_ROWS),
      .QUEUE(QUEUE),
      .LINES(LINES),
      .FINISHERS(FINISHERS),
      .DSP58(DSP58),
      .DSP48(DSP48)
  ) channels (
      .clk(clk),
      .rst(rst),
      .abort_valid(abort_valid),
      .idle(wide_idle),
      .announce_valid(tells_wide),
      .announce_ready(wide_ready),
      .command(command),
      .start_valid(wide_start),
      .start_ready(starts_wide),
      .result(result),
      .bank_request(request),
      .bank_ready(bank_read_ready),
      .bank_response(response),
      .read_request(wanted),
      .read_ready(read_taken[WIDE]),
      .read_response(answer),
      .write_request(offered),
      .write_ready(write_taken[WIDE])
  );

`ifndef SYNTHESIS
  always_ff @(posedge clk) if (!rst) begin
    assert (!command_valid || !command_told || told != '0) else $fatal(1, "a start of a command that was not announced");
    assert (!wide_start || starts_wide) else $fatal(1, "a command that the channels do not take");
    assert (!announce_valid || idle || early) else $fatal(1, "a command is announced while another one runs");
    assert (!result.valid || result.status == ENDED_DONE || wide_failed)
    else $fatal(1, "a command of the channels is refused: %0d", result.status);
  end
`endif
endmodule
