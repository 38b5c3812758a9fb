// SPDX-License-Identifier: Apache-2.0
// The sums of a factor's products, eight columns at a time: eight ranks of A times a row of x, or ranks of h times
// eight columns of B. Eight FP16 lanes, scheduled and cut as a matmul is (docs/numbers.md, 2 and 7).
module factor_sums
  import mpu_types::*;
  import adapter_types::LINE_OF_X;
  import adapter_types::LINE_VALUES;
  import adapter_types::run_t;
(
    input  logic         clk,
    input  logic         rst,
    input  logic         start,        // one cycle: all stripes
    input  logic         down,         // A, else B
    input  logic [15:0]  k,            // as factor_fetch has these
    input  logic [15:0]  first,
    input  logic [15:0]  range_end,
    input  logic [31:0]  base,
    input  logic [15:0]  stripe_step,
    input  logic [30:0]  x_line,
    input  logic [7:0]   stripes,
    input  logic [1:0]   part_first,   // of B: the first stripe's part of the tile
    output logic         run_valid,
    input  logic         run_ready,
    output run_t         run,
    input  logic         line_valid,
    input  logic [1:0]   line_kind,
    input  logic [8:0]   line_where,
    input  logic [511:0] line_data,
    input  logic         h_valid,      // a rank of h
    input  logic [9:0]   h_rank,
    input  logic [15:0]  h_value,
    input  logic         store_free,   // the stripe before has been taken
    output logic         value_valid,  // of a stripe's eight columns, one after the other
    output logic [31:0]  single,
    output logic [15:0]  half
);
  logic is_x, is_values;
  assign is_x = line_valid && line_kind == LINE_OF_X;
  assign is_values = line_valid && line_kind == LINE_VALUES;

  logic round_free, whole;
  logic [1:0] round_ready;
  assign whole = !down && k <= 16'd256;
  factor_fetch fetch (
      .clk(clk),
      .rst(rst),
      .start(start),
      .down(down),
      .k(k),
      .first(first),
      .range_end(range_end),
      .base(base),
      .stripe_step(stripe_step),
      .x_line(x_line),
      .stripes(stripes),
      .whole(whole),
      .run_valid(run_valid),
      .run_ready(run_ready),
      .run(run),
      .line_valid(is_x || is_values),
      .line_side(line_where[8]),
      .round_free(round_free),
      .round_ready(round_ready)
  );

  command_t cut;
  logic use_product, join_hold, hold_load, sum_clear, flags_take, result_valid;
  logic [9:0] stream_address, x_unit, unit_now;
  logic [4:0] stripe_now, x_column, result_column;
  always_comb begin
    cut = '0;
    cut.k = k == 16'd0 ? 16'd1 : k;
  end
  fp16_schedule #(
      .LANES(8)
  ) schedule (
      .clk(clk),
      .rst(rst),
      .start(start),
      .command(cut),
      .stripes({24'd0, stripes}),
      // verilator lint_off PINCONNECTEMPTY
      .busy(),
      // verilator lint_on PINCONNECTEMPTY
      .round_ready(round_ready),
      .round_free(round_free),
      .store_free(store_free),
      .stream_address(stream_address),
      .x_unit(x_unit),
      // verilator lint_off PINCONNECTEMPTY
      .stripe_part(),
      // verilator lint_on PINCONNECTEMPTY
      .stripe_now(stripe_now),
      .x_column(x_column),
      // verilator lint_off PINCONNECTEMPTY
      .x_is_one(),
      // verilator lint_on PINCONNECTEMPTY
      .use_product(use_product),
      .join_hold(join_hold),
      .hold_load(hold_load),
      .sum_clear(sum_clear),
      .flags_take(flags_take),
      .result_valid(result_valid),
      .result_column(result_column)
  );

  // Two sides of eight segments: 32 lines of B, or nine of A and one of x. Ranks of h lie by number.
  logic [511:0] values[512], xs[16], values_line, x_line_now;
  logic [15:0] ranks[1024], rank_now;
  logic [8:0] address;
  logic [6:0] place;  // of A: column, from the first line's begin on
  logic [1:0] phase, part;
  logic held, is_down;
  assign phase = base[1:0] + stripe_now[1:0] * stripe_step[1:0];
  assign place = {5'd0, phase} + {2'd0, stream_address[4:0]};
  assign address = down ? {stream_address[8:5], place[6:2]} : {stream_address[8] && !whole, stream_address[7:0]};
  always_ff @(posedge clk) begin
    if (is_values) values[line_where] <= line_data;
    if (is_x) xs[line_where[8:5]] <= line_data;
    if (h_valid) ranks[h_rank] <= h_value;
    values_line <= values[address];
    x_line_now <= xs[stream_address[8:5]];
    rank_now <= ranks[{x_unit[4:0], stream_address[4:0]}];
    part <= down ? place[1:0] : part_first + stripe_now[1:0];
    unit_now <= x_unit;
    is_down <= down;
  end
  logic [15:0] k_now;
  assign k_now = {1'b0, unit_now, x_column};
  assign held = k_now >= first && k_now < range_end;

  fp16_lanes #(
      .LANES(8),
      .ROWS(1)
  ) lanes (
      .clk(clk),
      .w(values_line[128*part+:128]),
      .x(is_down ? x_line_now[16*x_column+:16] : rank_now),
      .use_product(use_product && held),
      .join_hold(join_hold),
      .hold_load(hold_load),
      .column(result_column),
      .sum_clear(sum_clear),
      .flags_take(flags_take),
      .single(single),
      .half(half)
  );
  always_ff @(posedge clk) value_valid <= result_valid && !rst;
endmodule
