// SPDX-License-Identifier: Apache-2.0
// What a gather's plan says of a frame's block, how far each block is, and which part of this board's own is next. Of
// one lane: frames that go one way.
module lane_plan
  import abi_types::*;
  import router_types::*;
(
    input  logic        clk,
    input  logic        start,          // one cycle: the next gather
    input  gather_t     gather,
    input  logic        to_next,
    // plan
    input  logic        block_write,
    input  logic [10:0] block_where,    // source, row group, segment
    input  block_t      block_value,
    input  size_t       block_size,     // its bytes
    // the block of the frame at the head, or this board's next: one cycle
    input  logic        find_head,
    input  frame_t      head,
    input  logic        find_own,
    output logic        found,          // some cycles later; then the next lines hold
    output logic        own,
    output logic [4:0]  where,          // row group, segment
    output block_t      block,
    output progress_t   progress,
    output size_t       width,          // bytes of a row
    output size_t       row_start,      // address of the part's first row
    output logic [5:0]  row_at,         // and its number
    output logic [12:0] length,         // of the part
    output logic [7:0]  total,          // hops
    output logic        nothing,        // of own: no part of it leaves this way
    output logic        sums,           // of own: it counts for the sum here, not in the other lane
    output logic        alone,          // of own: it leaves no way
    // the frame, against what must come next
    input  frame_t      header,
    output logic        right,
    // a part is filed, or has left: one cycle
    input  logic        filed,
    input  logic        left,
    input  logic [4:0]  next_row,
    input  size_t       next_byte,
    input  logic        skip,           // the next block of own
    output logic        own_done,
    output logic        expects         // more has to come in this way
);
  block_t blocks[2048], found_block;
  progress_t progresses[2048], found_progress, own_progress, new_progress;
  logic [10:0] place;
  logic [2:0] stage;
  logic [4:0] own_where;
  size_t block_bytes, left_bytes, due;
  logic [7:0] source, other, hops_left, comes;

  assign where = place[4:0];
  assign source = own ? {1'b0, gather.rank} : header.source;
  assign total = hops_of(gather, source, block.odd, to_next);
  assign other = hops_of(gather, source, block.odd, !to_next);
  assign hops_left = hops_here(gather, source, block.odd, to_next);
  assign row_at = {place[4:3], 4'd0} + 6'(progress.row);
  assign left_bytes = block_bytes - progress.bytes;
  assign length = left_bytes < size_t'(LORA_FRAME_PAYLOAD) ? 13'(left_bytes) : 13'(LORA_FRAME_PAYLOAD);
  assign alone = to_next && total == 8'd0 && other == 8'd0;
  assign nothing = !block.valid || left_bytes == '0 || (total == 8'd0 && !alone);
  assign sums = to_next || other == 8'd0;
  assign right = block.valid && header.segments == 16'(block.segments) && left_bytes != '0 &&
      header.offset == 32'(progress.bytes) && header.part == 16'(progress.bytes >> 12) &&
      header.length == 32'(length) && hops_left != 8'd0 && header.hop == hops_left;
  assign new_progress = '{bytes: progress.bytes + size_t'(length), row: next_row, at_byte: next_byte};
  assign comes = hops_here(gather, {2'd0, block_where[10:5]}, block_value.odd, to_next);
  assign expects = due != '0;

  always_ff @(posedge clk) begin
    if (block_write) blocks[block_where] <= block_value;
    if (block_write) progresses[block_where] <= '0;
    else if (filed) progresses[place] <= new_progress;
    found_block <= blocks[place];
    found_progress <= progresses[place];
  end
  always_ff @(posedge clk) begin
    {found, stage} <= {stage, find_head || find_own};
    if (find_head) place <= {head.source[5:0], head.row_group[1:0], head.segment[2:0]};
    if (find_own) place <= {gather.rank[5:0], own_where};
    if (find_head || find_own) own <= find_own;
    if (stage[1]) begin
      block <= found_block;
      progress <= own ? own_progress : found_progress;
    end
    if (stage[2]) begin
      width <= block.columns << gather.shift;
      block_bytes <= (block.columns << gather.shift) * size_t'(group_rows(gather.rows, place[4:3]));
      row_start <= gather.base + (block.column << gather.shift) + gather.stride * size_t'(row_at);
    end
    if (left) own_progress <= new_progress;
    if (skip) begin
      own_progress <= '0;
      own_where <= own_where + 5'd1;
      own_done <= own_where == {last_group(gather.rows), 3'd7};
    end
    if (block_write && block_value.valid && comes != 8'd0) due <= due + block_size;
    else if (filed) due <= due - size_t'(length);
    if (start) begin
      own_done <= 1'b0;
      own_where <= 5'd0;
      own_progress <= '0;
      due <= '0;
      {found, stage} <= '0;
    end
  end
endmodule
