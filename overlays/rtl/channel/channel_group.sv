// SPDX-License-Identifier: Apache-2.0
// Channels that share a finisher, and the registers of the broadcast beside them: what comes down is registered here once and
// goes to all of them, what goes back is joined and registered.
// Reset: `rst` is not registered, as ports are reset together with it. Assumes: `fields` and `row_lines` hold in a pass.
module channel_group
  import channel_types::*;
#(
    parameter int CHANNELS = 32,
    parameter int LINKS = 4,
    parameter int ROWS = 2,
    parameter int QUEUE = 2,
    parameter int LINES = 4096,
    parameter int DSP58 = 0,
    parameter int DSP48 = 0
) (
    input  logic                           clk,
    input  logic                           rst,
    input  logic         [4:0]             first,  // of its channels
    input  down_t                          down,
    input  pass_fields_t                   fields,
    input  logic         [ROWS-1:0][31:0]  row_lines,
    output up_t                            up,
    output logic         [LINKS-1:0]       params_taken,
    output result_line_t                   line,
    input  logic                           room,
    output mem_req_t     [LINKS-1:0]       request,
    input  logic         [LINKS-1:0]       ready,
    input  mem_rsp_t     [LINKS-1:0]       response
);
  down_t down_1;
  pass_fields_t fields_1;
  logic [ROWS-1:0][31:0] row_lines_1;
  logic [LINKS-1:0] runs, over, any_bad, take, total_valid, taken;
  fault_t [LINKS-1:0] bad;
  fault_t all_bad;
  logic [LINKS-1:0][ROWS-1:0][31:0] total;
  tile_t [LINKS-1:0] tiles;
  logic quiet;
  fault_t params_bad;
  always_comb begin
    all_bad = params_bad;
    for (int i = 0; i < LINKS; i++) begin
      all_bad |= bad[i];
      any_bad[i] = bad[i] != '0;
    end
  end
  always_ff @(posedge clk) begin
    {down_1.ends, down_1.clear, down_1.push, down_1.go, down_1.whole, down_1.feed.valid}
        <= {down.ends, down.clear, down.push, down.go, down.whole, down.feed.valid};
    if (down.push) down_1.descriptor <= down.descriptor;
    if (down.feed.valid)
      {down_1.feed.fault, down_1.feed.tag, down_1.feed.data} <= {down.feed.fault, down.feed.tag, down.feed.data};
    fields_1 <= fields;
    row_lines_1 <= row_lines;
    params_taken <= taken;
    up <= '{runs: &runs, over: &over, quiet: quiet, bad: all_bad};
    if (rst) begin
      {down_1.ends, down_1.push, down_1.go, down_1.whole, down_1.feed.valid} <= 5'd0;
      down_1.clear <= 1'b1;
      params_taken <= '0;
      up <= '0;
    end
  end

  for (genvar i = 0; i < LINKS; i++) begin : channels
    channel_block #(
        .CHANNELS(CHANNELS),
        .ROWS(ROWS),
        .QUEUE(QUEUE),
        .LINES(LINES),
        .DSP58(DSP58),
        .DSP48(DSP48)
    ) one (
        .clk(clk),
        .rst(rst),
        .index(first + i[4:0]),
        .abort_valid(down_1.ends),
        .runs(runs[i]),
        .push(down_1.push),
        .descriptor(down_1.descriptor),
        .go(down_1.go),
        .whole(down_1.whole),
        .feed(down_1.feed),
        .over(over[i]),
        .bad(bad[i]),
        .tile(tiles[i]),
        .take(take[i]),
        .total_valid(total_valid[i]),
        .total(total[i]),
        .request(request[i]),
        .ready(ready[i]),
        .response(response[i])
    );
  end
  channel_finish #(
      .LINKS(LINKS),
      .ROWS(ROWS)
  ) finish (
      .clk(clk),
      .rst(rst || down_1.clear),
      .first(first),
      .fields(fields_1),
      .row_lines(row_lines_1),
      .feed(down_1.feed),
      .tiles(tiles),
      .channel_bad(any_bad),
      .take(take),
      .total_valid(total_valid),
      .total(total),
      .params_taken(taken),
      .params_bad(params_bad),
      .quiet(quiet),
      .line(line),
      .room(room)
  );
endmodule
