// SPDX-License-Identifier: Apache-2.0
// Reads a list in bursts, a chunk of 16 commands at a time, as far as there is room. A burst ends at
// the end of its chunk or of a page of 4 KiB. A chunk is held against the seal of its registration
// before any of its commands is published. Where it differs, or the bus reports an error, nothing
// more is read. `stop` ends a run: a burst that was asked for is taken and dropped.
module list_fetch
  import abi_types::*;
  import sequencer_types::*;
(
    input  logic         clk,
    input  logic         rst,
    input  logic         start,
    input  logic         stop,        // level
    input  logic [41:0]  list_line,   // of the first command: address / 64
    input  index_t       count,       // commands
    input  logic         list_id,     // whose seals
    input  chunk_t       oldest,      // no chunk before it is needed any more
    output logic         idle,        // nothing asked for that is not here
    // seals of registered lists
    input  logic         seal_write,
    input  logic [9:0]   seal_where,  // list, chunk
    input  logic [31:0]  seal_data,
    // read port of the control bank
    output logic         ar_valid,
    input  logic         ar_ready,
    output logic [41:0]  ar_line,
    output logic [3:0]   ar_beats,    // less one
    input  logic         r_valid,
    output logic         r_ready,
    input  logic [511:0] r_data,
    input  logic         r_last,
    input  logic         r_error,
    // commands, into the window
    output logic         write,
    output logic [8:0]   write_where,
    output logic [511:0] write_line,
    output logic         publish,     // one cycle: the chunk is in the window
    output chunk_t       published,
    output logic [UNITS-1:0][LORA_CHUNK_COMMANDS-1:0] marks,  // which of its commands are a unit's
    output logic         failed,
    output logic         bus_failed,  // else the seal
    output logic [31:0]  seal_found,
    output logic [31:0]  seal_expected
);
  typedef enum logic [2:0] {IDLE, LOOK, ADDRESS, DATA, JOIN, COMPARE, DROP} state_t;

  state_t state;
  chunk_t chunks;
  index_t left;  // commands of the list from this chunk on
  logic [41:0] line;
  logic [4:0] lines, beats, beat, burst;  // of the chunk: to be asked for; of the burst; written
  logic [6:0] page_lines;  // to the end of the page
  logic half, last_half, take, restart, joined, damaged;
  logic [31:0] seal;

  assign page_lines = 7'd64 - {1'b0, line[5:0]};
  assign burst = 7'(lines) < page_lines ? lines : page_lines[4:0];
  assign ar_valid = state == ADDRESS;
  assign ar_line = line;
  assign ar_beats = 4'(beats - 5'd1);
  // a line takes two cycles, for the seal
  assign take = state == DATA && r_valid;
  assign r_ready = (state == DATA && half) || state == DROP;
  assign write = take && half;
  assign write_where = {published[4:0], beat[3:0]};
  assign write_line = r_data;
  assign last_half = write && r_last && lines == 5'd0;
  assign restart = state == LOOK;
  assign publish = state == COMPARE && !damaged && seal == seal_expected && !stop;
  assign seal_found = seal;
  assign idle = state == IDLE || (state == LOOK && published - oldest >= 10'(LORA_WINDOW_CHUNKS));

  list_seal joiner (
      .clk(clk),
      .rst(rst),
      .restart(restart),
      .valid(take),
      .half(half ? r_data[511:256] : r_data[255:0]),
      .finish(last_half),
      .done(joined),
      .seal(seal)
  );

  logic [31:0] seals[LORA_MAX_LISTS*(LORA_MAX_COMMANDS/LORA_CHUNK_COMMANDS)];
  always_ff @(posedge clk) begin
    if (seal_write) seals[seal_where] <= seal_data;
    seal_expected <= seals[{list_id, published[8:0]}];
  end

  always_ff @(posedge clk) begin
    unique case (state)
      LOOK: begin  // whether the next chunk has room
        lines <= left < 14'(LORA_CHUNK_COMMANDS) ? left[4:0] : 5'(LORA_CHUNK_COMMANDS);
        beat <= 5'd0;
        marks <= '0;
        damaged <= 1'b0;
        half <= 1'b0;
        if (published == chunks) state <= IDLE;
        else if (published - oldest < 10'(LORA_WINDOW_CHUNKS)) state <= JOIN;
      end
      ADDRESS:
      if (ar_ready) begin
        line <= line + 42'(beats);
        lines <= lines - beats;
        state <= DATA;
      end
      DATA: begin
        if (take) half <= !half;
        if (write) begin
          beat <= beat + 5'd1;
          for (int u = 0; u < UNITS; u++)
            if (r_data[15:8] == 8'(u)) marks[u][beat[3:0]] <= 1'b1;
          damaged <= damaged || r_error;
          if (r_last) state <= JOIN;
        end
      end
      JOIN:
      if (lines != 5'd0) begin  // a burst of the chunk
        beats <= burst;
        state <= ADDRESS;
      end else if (joined) state <= COMPARE;
      COMPARE: begin
        left <= left - 14'(beat);
        if (publish) published <= published + 10'd1;
        failed <= failed || !publish;
        bus_failed <= damaged;
        state <= publish ? LOOK : IDLE;
      end
      DROP: if (r_valid && r_last) state <= IDLE;
      default: ;
    endcase
    // what was asked for must come; what was offered must be taken
    if (stop) begin
      unique case (state)
        ADDRESS: if (ar_ready) state <= DROP;
        DATA: if (!(write && r_last)) state <= DROP;
        DROP: ;
        default: state <= IDLE;
      endcase
      if (state == DATA && write && r_last) state <= IDLE;
    end
    if (start) begin
      state <= LOOK;
      chunks <= 10'((count + 14'(LORA_CHUNK_COMMANDS - 1)) >> $clog2(LORA_CHUNK_COMMANDS));
      left <= count;
      line <= list_line;
      published <= 10'd0;
      failed <= 1'b0;
    end
    if (rst) begin
      state <= IDLE;
      published <= 10'd0;
      failed <= 1'b0;
    end
  end
endmodule
