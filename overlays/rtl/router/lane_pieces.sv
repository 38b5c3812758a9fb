// SPDX-License-Identifier: Apache-2.0
// Bytes between the frames of a lane and memory, in pieces that lie in one line of each: filing what came, making a frame
// of what is own, and the sums of both.
module lane_pieces
  import router_types::*;
(
    input  logic         clk,
    input  logic         clear,
    input  logic         start,          // one cycle: the part of `header` is to be moved
    input  logic         files,          // it came; else it is own
    input  logic         makes,
    input  logic         tests,          // of the link test, whose words are in `test`
    input  gather_t      gather,
    input  logic [28:0]  sum_end,
    input  frame_t       header,
    input  size_t        width,
    input  size_t        row_start,
    input  logic [5:0]   row_at,
    input  progress_t    progress,
    output logic [4:0]   next_row,
    output size_t        next_byte,
    // frame at the head
    output logic         head_read,
    output logic [6:0]   head_line,
    input  logic [511:0] head_data,
    output logic         filed,          // one cycle: all of it is in memory
    // own frame
    input  logic         make_start,     // one cycle
    input  logic         make_stop,
    input  test_frame_t  test,
    output logic         made_write,
    output logic [6:0]   made_line,
    output logic [511:0] made_data,
    output logic         made,           // one cycle
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
    // sums
    input  logic         sums,           // what is own counts
    output logic         run_valid,
    input  logic         run_ready,
    output logic [31:0]  run_crc,
    output behind_t      run_behind,
    output logic         sum_idle
);

  // --- pieces --------------------------------------------------------------------------------------
  logic piece_valid, piece_ready, piece_line_ends, piece_ends, piece_starts_run, piece_ends_run;
  logic [6:0] piece_line, piece_count;
  logic [5:0] piece_byte, piece_memory_byte;
  logic [20:0] piece_memory_line;
  behind_t piece_behind;
  size_t slack;
  assign slack = gather.stride - gather.width;
  part_walk walk (
      .clk(clk),
      .rst(clear),
      .start(start),
      .part_bytes(header.length[12:0]),
      .row_start(row_start),
      .stride(gather.stride),
      .width(width),
      .row(progress.row),
      .at_byte(progress.at_byte),
      .behind_start(sum_end + 29'(slack * size_t'(row_at))),
      .slack(slack),
      .piece_valid(piece_valid),
      .piece_ready(piece_ready),
      .frame_line(piece_line),
      .frame_byte(piece_byte),
      .memory_line(piece_memory_line),
      .memory_byte(piece_memory_byte),
      .count(piece_count),
      .ends_line(piece_line_ends),
      .ends_part(piece_ends),
      .starts_run(piece_starts_run),
      .ends_run(piece_ends_run),
      .behind(piece_behind),
      .next_row(next_row),
      .next_byte(next_byte)
  );
  logic ask_ready, own_piece, out_valid, out_ready, out_line_ends, out_ends, out_starts_run, out_ends_run;
  logic [511:0] out_data;
  logic [5:0] out_byte, out_by, out_memory_byte;
  logic [6:0] out_count;
  behind_t out_behind;
  assign own_piece = makes && !tests;
  assign out_memory_byte = out_byte - out_by;
  line_reads #(
      .NOTE_BITS(51)
  ) reads (
      .clk(clk),
      .rst(clear),
      .fresh(start),
      .ask_valid(piece_valid && own_piece),
      .ask_ready(ask_ready),
      .ask_line(piece_memory_line),
      .ask_note({piece_byte, piece_byte - piece_memory_byte, piece_count, piece_line_ends, piece_ends,
                 piece_starts_run, piece_ends_run, piece_behind}),
      .read_valid(read_valid),
      .read_ready(read_ready),
      .read_line(read_line),
      .read_tag(read_tag),
      .line_valid(line_valid),
      .line_tag(line_tag),
      .line_data(line_data),
      .out_valid(out_valid),
      .out_ready(out_ready),
      .out_data(out_data),
      .out_note({out_byte, out_by, out_count, out_line_ends, out_ends, out_starts_run, out_ends_run, out_behind})
  );

  // One place where bytes are turned: towards memory, towards the frame, and its CRC.
  logic [511:0] turned, turn_in;
  logic [5:0] turn_by, file_by, end_byte;
  logic [31:0] seal;
  logic seals, takes_own;
  assign takes_own = own_piece && out_valid && out_ready;
  always_comb begin
    if (files) {turn_in, turn_by} = {head_data, file_by};
    else if (seals) {turn_in, turn_by} = {480'd0, seal, end_byte};
    else if (tests) {turn_in, turn_by} = {480'd0, test.word, test.at_byte};
    else {turn_in, turn_by} = {out_data, out_by};
  end
  assign turned = turn(turn_in, turn_by);
  frame_maker maker (
      .clk(clk),
      .rst(clear || make_stop),
      .start(make_start),
      .header(header),
      .piece_valid(tests ? test.word_valid : takes_own),
      .piece_byte(tests ? test.at_byte : out_byte),
      .piece_count(tests ? {4'd0, test.count} : out_count),
      .piece_ends_line(tests ? test.ends_line : out_line_ends),
      .piece_ends(tests ? test.ends : out_ends),
      .seals(seals),
      .seal(seal),
      .end_byte(end_byte),
      .turned(turned),
      .write_valid(made_write),
      .write_line(made_line),
      .write_data(made_data),
      .done(made)
  );

  // --- its sum -------------------------------------------------------------------------------------
  logic sum_ready, filing, comes, file_starts_run, file_ends_run;
  behind_t file_behind;
  logic [63:0] own_bytes, file_bytes;  // of a line of memory
  assign out_ready = !sums || sum_ready;
  assign own_bytes = bytes_from(out_memory_byte, out_count);
  piece_sum sum (
      .clk(clk),
      .rst(clear),
      .ready(sum_ready),
      .lets((filing && piece_ends_run) || (takes_own && sums && out_ends_run)),
      .valid(comes || (takes_own && sums)),
      .line(only(comes ? turned : out_data, comes ? file_bytes : own_bytes)),
      .starts_run(comes ? file_starts_run : out_starts_run),
      .starts_line(comes ? file_bytes[0] : out_memory_byte == 6'd0),
      .ends_run(comes ? file_ends_run : out_ends_run),
      .behind(comes ? file_behind : out_behind),
      .run_valid(run_valid),
      .run_ready(run_ready),
      .run_crc(run_crc),
      .run_behind(run_behind),
      .idle(sum_idle)
  );

  // --- filing: pieces of one line of memory are one write ------------------------------------------
  // What is held waits for the piece behind it, unless it is the part's last one.
  logic held, joins, move_file, file_ends;
  logic [511:0] kept;  // of the pieces before
  assign joins = held && !file_ends && piece_valid && piece_memory_line == write_line;
  assign write_valid = held && (file_ends || (piece_valid && !joins));
  assign move_file = (!held || joins || (write_valid && write_ready)) && sum_ready;
  assign filing = files && piece_valid && move_file;
  assign piece_ready = own_piece ? ask_ready : move_file;
  assign head_read = filing;
  assign head_line = piece_line;
  assign filed = files && write_valid && write_ready && file_ends;
  always_comb
    for (int b = 0; b < 64; b++) write_data[8*b+:8] = file_bytes[b] ? turned[8*b+:8] : kept[8*b+:8];
  always_ff @(posedge clk) begin
    comes <= filing && !clear;
    if (filing) begin
      held <= 1'b1;
      kept <= write_data;
      write_line <= piece_memory_line;
      file_bytes <= bytes_from(piece_memory_byte, piece_count);
      write_bytes <= (joins ? write_bytes : 64'd0) | bytes_from(piece_memory_byte, piece_count);
      file_by <= piece_memory_byte - piece_byte;
      file_ends <= piece_ends;
      {file_starts_run, file_ends_run, file_behind} <= {piece_starts_run, piece_ends_run, piece_behind};
    end else if (write_valid && write_ready) held <= 1'b0;
    if (clear) held <= 1'b0;
  end
endmodule
