// SPDX-License-Identifier: Apache-2.0
// Frames between the Router, 64 bytes in the control's clock, and a link's core, half of that in its own. A reset of
// either side loses what is on its way. Of a frame that is cut the rest is dropped, and what has passed of one is ended
// with a word that it does not have, so the next frame begins anew. Resets of both sides together as reset_pair has them.
module link_streams #(
    parameter int DEPTH_BITS = 5  // of words each way
) (
    input  logic         clk,
    input  logic         rst,
    // Router
    input  logic         tx_valid,
    output logic         tx_ready,
    input  logic [511:0] tx_data,
    input  logic [63:0]  tx_keep,
    input  logic         tx_last,
    output logic         rx_valid,
    input  logic         rx_ready,
    output logic [511:0] rx_data,
    output logic [63:0]  rx_keep,
    output logic         rx_last,
    output logic         link_up,
    // the link's core
    input  logic         link_clk,
    input  logic         link_rst,
    input  logic         channel_up,
    output logic         out_valid,
    input  logic         out_ready,
    output logic [255:0] out_data,
    output logic [31:0]  out_keep,
    output logic         out_last,
    input  logic         in_valid,
    output logic         in_ready,
    input  logic [255:0] in_data,
    input  logic [31:0]  in_keep,
    input  logic         in_last
);
  localparam int WIDTH = 512 + 64 + 1;
  logic stop, clear, link_stop, link_clear, up;
  reset_pair resets (
      .a_clk(clk),
      .a_rst(rst),
      .a_stop(stop),
      .a_clear(clear),
      .b_clk(link_clk),
      .b_rst(link_rst),
      .b_stop(link_stop),
      .b_clear(link_clear)
  );
  always_ff @(posedge link_clk) up <= channel_up && !link_stop;
  bit_sync channel (
      .clk(clk),
      .d(up),
      .q(link_up)
  );

  // --- frames that leave -----------------------------------------------------------------------------
  logic goes, goes_ready, narrow_valid, narrow_ready, narrow_last, half_valid, half_ready, half_last, half_ends;
  logic [511:0] narrow_data;
  logic [63:0] narrow_keep;
  logic [255:0] half_data;
  logic [31:0] half_keep;
  stream_drop tx_drop (
      .clk(clk),
      .rst(rst),
      .stop(stop),
      .in_valid(tx_valid),
      .in_ready(tx_ready),
      .in_last(tx_last),
      .out_valid(goes),
      .out_ready(goes_ready)
  );
  async_fifo #(
      .WIDTH(WIDTH),
      .DEPTH_BITS(DEPTH_BITS)
  ) sent (
      .from_clk(clk),
      .from_stop(stop),
      .from_clear(clear),
      .in_valid(goes),
      .in_ready(goes_ready),
      .in_word({tx_last, tx_keep, tx_data}),
      .to_clk(link_clk),
      .to_stop(link_stop),
      .to_clear(link_clear),
      .out_valid(narrow_valid),
      .out_ready(narrow_ready),
      .out_word({narrow_last, narrow_keep, narrow_data})
  );
  stream_narrow narrow (
      .clk(link_clk),
      .rst(link_stop),
      .in_valid(narrow_valid),
      .in_ready(narrow_ready),
      .in_data(narrow_data),
      .in_keep(narrow_keep),
      .in_last(narrow_last),
      .out_valid(half_valid),
      .out_ready(half_ready),
      .out_data(half_data),
      .out_keep(half_keep),
      .out_last(half_last)
  );
  stream_end out_end (
      .clk(link_clk),
      .rst(link_rst),
      .stop(link_stop),
      .in_valid(half_valid && !link_stop),
      .in_ready(half_ready),
      .in_last(half_last),
      .out_valid(out_valid),
      .out_ready(out_ready),
      .out_last(out_last),
      .ends(half_ends)
  );
  assign out_data = half_ends ? '0 : half_data;
  assign out_keep = half_ends ? '1 : half_keep;

  // --- frames that come ------------------------------------------------------------------------------
  logic wide_valid, wide_ready, wide_last, comes, comes_ready, comes_last, rx_ends, takes, takes_ready;
  logic [511:0] wide_data;
  logic [63:0] wide_keep, comes_keep;
  stream_drop in_drop (
      .clk(link_clk),
      .rst(link_rst),
      .stop(link_stop),
      .in_valid(in_valid),
      .in_ready(in_ready),
      .in_last(in_last),
      .out_valid(takes),
      .out_ready(takes_ready && !link_stop)
  );
  stream_widen widen (
      .clk(link_clk),
      .rst(link_stop),
      .in_valid(takes && !link_stop),
      .in_ready(takes_ready),
      .in_data(in_data),
      .in_keep(in_keep),
      .in_last(in_last),
      .out_valid(wide_valid),
      .out_ready(wide_ready),
      .out_data(wide_data),
      .out_keep(wide_keep),
      .out_last(wide_last)
  );
  async_fifo #(
      .WIDTH(WIDTH),
      .DEPTH_BITS(DEPTH_BITS)
  ) received (
      .from_clk(link_clk),
      .from_stop(link_stop),
      .from_clear(link_clear),
      .in_valid(wide_valid),
      .in_ready(wide_ready),
      .in_word({wide_last, wide_keep, wide_data}),
      .to_clk(clk),
      .to_stop(stop),
      .to_clear(clear),
      .out_valid(comes),
      .out_ready(comes_ready),
      .out_word({comes_last, comes_keep, rx_data})
  );
  stream_end rx_end (
      .clk(clk),
      .rst(rst),
      .stop(stop),
      .in_valid(comes),
      .in_ready(comes_ready),
      .in_last(comes_last),
      .out_valid(rx_valid),
      .out_ready(rx_ready),
      .out_last(rx_last),
      .ends(rx_ends)
  );
  assign rx_keep = rx_ends ? '0 : comes_keep;
endmodule
