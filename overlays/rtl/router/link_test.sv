// SPDX-License-Identifier: Apache-2.0
// The link test: numbered frames of a pattern both ways by each port, and what comes in is compared word by word. Its
// record, struct lora_link_test, lies in the core's local memory and is kept up to date from frame to frame. A frame at
// a time is made or compared, in turns, a word a cycle.
module link_test
  import abi_types::*;
  import rv32_types::*;
  import router_types::*;
#(
    parameter int QUIET = 1024  // cycles without a frame, before what an earlier run left is all gone
) (
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  start,         // one cycle; begins anew where one runs
    input  logic                  stop,          // no end comes
    input  logic                  busy,          // a gather runs: the test fails
    input  logic [LOCAL_BITS-1:0] record,        // with `start`
    input  logic [31:0]           serial,        // of this card
    output logic                  testing,
    output logic                  done,          // one cycle
    output logic                  failed,
    // local memory, as soft_core has it
    output logic                  local_valid,
    input  logic                  local_ready,
    output logic [3:0]            local_write,
    output logic [LOCAL_BITS-3:0] local_word,
    output logic [31:0]           local_stored,
    input  logic [31:0]           local_data,
    // ports
    input  logic [1:0]            link_up,
    input  logic [1:0]            has_room,      // for a frame that is to leave
    output test_frame_t [1:0]     frame,
    input  logic [1:0]            frame_begins,  // one cycle: it is taken, words may come
    input  logic [1:0]            frame_sent,    // one cycle
    output test_look_t [1:0]      look,
    input  logic [1:0]            head_valid,
    input  logic [1:0]            head_intact,
    input  logic [1:0][511:0]     head_data
);
  localparam int SIZE = 16 + LORA_PORTS * 32;
  localparam int QUIET_BITS = $clog2(QUIET);
  localparam logic [31:0] UNHEARD = '1;
  typedef enum logic [3:0] {
    IDLE, ASK, GOT, BEGIN, FLUSH, FLUSH_LOOK, STORE, CHOOSE, OFFER, HEADER, KEY, WORDS, LAST, COUNT
  } state_t;
  state_t state;
  typedef struct packed {  // as in memory, the first word last
    logic [31:0] first_bad;
    logic [31:0] peer_port;
    logic [31:0] peer_serial;
    logic [31:0] bad;
    logic [31:0] received;
    logic [31:0] sent;
  } result_t;
  result_t results[2], now;
  logic [1:0] enabled, whole, misses;
  logic port, receives, good, same, starts, kept;  // kept: the beginnings of both records are
  logic [LOCAL_BITS-3:0] place;
  logic [2:0] item;
  logic [4:0] word_at;
  logic [31:0] frames, seed, payload;
  logic [QUIET_BITS-1:0] quiet;
  logic [511:0] data;
  frame_t head;
  logic [31:0] peer_serial, peer_port;

  assign now = results[port];
  assign data = head_data[port];
  assign head = data[255:0];
  assign testing = state != IDLE;
  for (genvar p = 0; p < 2; p++) begin : ports
    assign whole[p] = !enabled[p] || (results[p].sent == frames && results[p].received == frames);
  end

  // --- local memory: size, frames, payload, seed, both `enabled`; results -----------------------------
  assign local_valid = state == ASK || state == STORE;
  assign local_write = {4{state == STORE}};
  assign local_stored = now[32*item+:32];
  assign word_at = state == STORE ? 5'd5 + {1'b0, port, item} : item == 3'd5 ? 5'd12 : 5'(item);
  assign local_word = place + (LOCAL_BITS - 2)'(word_at);

  // --- words ---------------------------------------------------------------------------------------
  logic make_key, key_done, differs;
  logic [9:0] index, last;
  logic [31:0] word, found, mask;
  logic [1:0] valid;
  logic [9:0] indices[2];
  logic [2:0] count;
  logic [12:0] at;  // of the word in its frame
  pattern_words words (
      .clk(clk),
      .rst(rst),
      .make_key(make_key),
      .serial(receives ? peer_serial : serial),
      .port(receives ? peer_port : {31'd0, port}),
      .number(receives ? now.received : now.sent),
      .seed(seed),
      .key_done(key_done),
      .index(index),
      .word(word)
  );
  assign last = 10'((payload[12:0] - 13'd1) >> 2);
  assign count = indices[1] == last && payload[1:0] != 2'd0 ? {1'b0, payload[1:0]} : 3'd4;
  assign at = 13'(HEADER_BYTES) + {1'b0, indices[1], 2'd0};
  assign mask = count == 3'd4 ? '1 : (32'd1 << 8 * count) - 32'd1;
  assign found = data[8*at[5:0]+:32];
  assign differs = valid[1] && ((found ^ word) & mask) != '0;
  always_comb begin
    frame = '0;
    frame[port] = '{
        valid: state == OFFER,
        seed: seed,
        number: now.sent,
        length: payload[12:0],
        word_valid: valid[1] && !receives,
        word: word,
        at_byte: at[5:0],
        count: count,
        ends_line: at[5:0] == 6'd60 && count == 3'd4,
        ends: indices[1] == last
    };
    look = '0;
    look[port].read = 1'b1;
    if (state == WORDS || state == LAST) look[port].line = 7'((13'(HEADER_BYTES) + {1'b0, indices[0], 2'd0}) >> 6);
    look[port].pop = (state == COUNT && receives) || (state == FLUSH_LOOK && !starts);
  end
  // a frame of this test: the far end has begun
  assign starts = head.kind == 8'(LORA_FRAME_TEST) && head.epoch == seed;

  always_ff @(posedge clk) begin
    {done, failed, make_key} <= 3'b000;
    valid <= {valid[0], state == WORDS};
    indices[0] <= index;
    indices[1] <= indices[0];
    if (differs) same <= 1'b0;
    unique case (state)
      ASK: if (local_ready) state <= GOT;
      GOT: begin
        unique case (item)
          3'd0: ;
          3'd1: frames <= local_data;
          3'd2: payload <= local_data;
          3'd3: seed <= local_data;
          3'd4: enabled[0] <= local_data != '0;
          default: enabled[1] <= local_data != '0;
        endcase
        item <= item + 3'd1;
        state <= item == 3'd5 ? BEGIN : ASK;
        if (item == 3'd0 && local_data != 32'(SIZE)) begin
          failed <= 1'b1;
          state <= IDLE;
        end
      end
      BEGIN: begin
        for (int p = 0; p < 2; p++)
          results[p] <= '{first_bad: UNHEARD, peer_port: UNHEARD, peer_serial: UNHEARD, default: '0};
        {port, kept} <= 2'b00;
        item <= 3'd0;
        state <= STORE;
        if (frames == '0 || payload < 32'd16 || payload > LORA_FRAME_PAYLOAD) begin
          failed <= 1'b1;
          state <= IDLE;
        end
      end
      STORE:
      if (local_ready) begin
        item <= item == 3'd5 ? 3'd0 : item + 3'd1;
        if (item == 3'd5) begin
          misses <= 2'd0;
          quiet <= '0;
          state <= kept ? CHOOSE : port ? FLUSH : STORE;
          if (!kept) port <= !port;
          if (kept) {port, receives} <= {port, receives} + 2'd1;
        end
      end
      FLUSH: begin  // what an earlier run left
        quiet <= quiet + 1'b1;
        if (head_valid[port]) state <= FLUSH_LOOK;
        else if (quiet == QUIET_BITS'(QUIET - 1)) begin
          port <= !port;
          kept <= port;
          receives <= 1'b0;
          if (port) state <= CHOOSE;
        end
      end
      FLUSH_LOOK: begin
        quiet <= '0;
        state <= FLUSH;
        if (starts) begin
          port <= !port;
          kept <= port;
          receives <= 1'b0;
          if (port) state <= CHOOSE;
        end
      end
      CHOOSE: begin
        misses <= misses + 2'd1;
        {port, receives} <= {port, receives} + 2'd1;
        if (&whole) begin
          done <= 1'b1;
          state <= IDLE;
        end else if (enabled[port] && (receives ? now.received != frames && head_valid[port] :
                                       now.sent != frames && has_room[port] && link_up[port])) begin
          {port, receives} <= {port, receives};
          state <= receives ? HEADER : OFFER;
        end else if (misses == 2'd3 && (~whole & ~link_up) != 2'b00) begin
          failed <= 1'b1;
          state <= IDLE;
        end
      end
      OFFER:
      if (frame_begins[port]) begin
        make_key <= 1'b1;
        state <= KEY;
      end else if (!has_room[port] || !link_up[port]) state <= CHOOSE;
      HEADER: begin
        peer_serial <= data[8*HEADER_BYTES+:32];
        peer_port <= data[8*HEADER_BYTES+32+:32];
        good <= 1'b0;
        state <= COUNT;
        if (head_intact[port] && starts && head.step == now.received && head.length == payload) begin
          make_key <= 1'b1;
          state <= KEY;
        end
      end
      KEY: begin
        index <= '0;
        same <= 1'b1;
        if (key_done) state <= WORDS;
      end
      WORDS: begin
        index <= index + 10'd1;
        if (index == last) state <= LAST;
      end
      LAST: begin
        good <= same;
        if (receives ? valid == 2'b00 : frame_sent[port]) state <= COUNT;
      end
      COUNT: begin
        if (!receives) results[port].sent <= now.sent + 32'd1;
        else begin
          results[port].received <= now.received + 32'd1;
          if (!good) results[port].bad <= now.bad + 32'd1;
          if (!good && now.bad == '0) results[port].first_bad <= now.received;
          if (good && now.peer_serial == UNHEARD) begin
            results[port].peer_serial <= peer_serial;
            results[port].peer_port <= peer_port;
          end
        end
        item <= 3'd0;
        state <= STORE;
      end
      default: ;
    endcase
    if (start) begin
      place <= record[LOCAL_BITS-1:2];
      item <= 3'd0;
      failed <= busy;
      state <= busy ? IDLE : ASK;
    end
    if (stop || rst) begin
      state <= IDLE;
      {done, failed} <= 2'b00;
    end
    if (rst || start) valid <= 2'b00;
  end
endmodule
