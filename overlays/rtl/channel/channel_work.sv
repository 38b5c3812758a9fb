// SPDX-License-Identifier: Apache-2.0
// A channel's queue of commands: takes descriptors from the broadcast and makes of each what is the channel's own, its
// tiles and where they lie. Tile t lies in bank (first + t) mod CHANNELS, so the channel has every CHANNELS-th tile, one
// behind the other in its bank: one run of lines. Two readers: the fetch of lines goes ahead of the array.
// Reset: `rst` empties the queue; entries begin with any bits.
// Assumes: CHANNELS is a power of two; whoever pushes knows that QUEUE commands at most are not done.
module channel_work
  import channel_types::*;
#(
    parameter int CHANNELS = 32,
    parameter int QUEUE = 2
) (
    input  logic        clk,
    input  logic        rst,
    input  logic [4:0]  index,  // of the channel
    input  logic        push,
    input  descriptor_t descriptor,
    // the fetch
    output logic        fetch_valid,
    output work_t       fetch,
    input  logic        fetch_next,
    // the array
    output logic        use_valid,
    output work_t       used,
    input  logic        use_next
);
  localparam int LOG = $clog2(CHANNELS), PLACE = QUEUE > 1 ? $clog2(QUEUE) : 1;
  if (CHANNELS < 2 || CHANNELS > MAX_CHANNELS || 2 ** LOG != CHANNELS) begin : wrong_channels
    $error("CHANNELS: a power of two from 2 to 32");
  end
  if (QUEUE < 1 || 2 ** $clog2(QUEUE) != QUEUE) begin : wrong_queue
    $error("QUEUE: a power of two");
  end
  typedef logic [PLACE-1:0] place_t;
  function automatic place_t after(input place_t place);
    return QUEUE == 1 ? '0 : place + 1'b1;
  endfunction

  logic push_1, push_2;
  /* verilator lint_off UNUSEDSIGNAL */
  descriptor_t descriptor_1;
  /* verilator lint_on UNUSEDSIGNAL */
  logic [LOG-1:0] first_1;
  logic before_1;  // the bank lies before that of tile 0: a line of tiles further on
  work_t made_2;
  work_t entries[QUEUE];
  place_t put, fetch_at, use_at;
  logic [PLACE:0] fetch_count, use_count;
  assign fetch_valid = fetch_count != '0;
  assign use_valid = use_count != '0;
  assign fetch = entries[fetch_at];
  assign used = entries[use_at];
  always_ff @(posedge clk) begin
    push_1 <= push;
    push_2 <= push_1;
    if (push) begin
      descriptor_1 <= descriptor;
      first_1 <= index[LOG-1:0] - descriptor.begin_bank[LOG-1:0];
      before_1 <= index[LOG-1:0] < descriptor.begin_bank[LOG-1:0];
    end
    if (push_1) begin
      made_2 <= '{
          four_bit: descriptor_1.four_bit, group_log: descriptor_1.group_log, k: descriptor_1.k,
          block_lines: descriptor_1.block_lines, tile_lines: descriptor_1.tile_lines,
          line: descriptor_1.line + (before_1 ? {18'd0, descriptor_1.tile_lines} : 32'd0),
          first: 20'(first_1),
          tiles: (descriptor_1.tiles + 20'(CHANNELS - 1) - 20'(first_1)) >> LOG,
          passes: descriptor_1.passes
      };
    end
    if (push_2) begin
      entries[put] <= made_2;
      put <= after(put);
    end
    if (fetch_next) fetch_at <= after(fetch_at);
    if (use_next) use_at <= after(use_at);
    fetch_count <= fetch_count + (PLACE + 1)'(push_2) - (PLACE + 1)'(fetch_next);
    use_count <= use_count + (PLACE + 1)'(push_2) - (PLACE + 1)'(use_next);
    if (rst) begin
      push_1 <= 1'b0;
      push_2 <= 1'b0;
      put <= '0;
      fetch_at <= '0;
      use_at <= '0;
      fetch_count <= '0;
      use_count <= '0;
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) if (!rst) begin
    assert (!push_2 || int'(use_count) < QUEUE) else $fatal(1, "channel %0d: the queue overflows", index);
    assert (!fetch_next || fetch_valid) else $fatal(1, "channel %0d: fetches no command", index);
    assert (!use_next || use_valid) else $fatal(1, "channel %0d: ends no command", index);
  end
`endif
endmodule
