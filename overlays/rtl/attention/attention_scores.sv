// SPDX-License-Identifier: Apache-2.0
// Scores of a head: sums of q.k in, one a cycle, times the scale, capped, with ALiBi, kept by position; their
// maximum (docs/numbers.md, 3.8, 3.13, 3.14, 6.6).
module attention_scores
  import float_types::*;
  import attention_types::*;
#(
    parameter int TILES = 4096
) (
    input  logic        clk,
    input  logic        rst,
    // of the command and the row, held
    input  logic        integers,
    input  logic [31:0] scale,
    input  logic [31:0] cap,
    input  logic [1:0]  slope_kind,
    input  logic [17:0] first,
    input  logic [17:0] committed,
    input  logic [17:0] count,
    input  logic        by_heads,      // of two heads there is room
    input  logic [127:0] on_path,      // slots
    output logic [6:0]  slot,          // whose place on the path is asked for
    input  logic [6:0]  from_last,     // along the path
    input  logic [1:0][31:0] slope,    // of two heads
    input  logic [1:0][31:0] factor,
    // sums
    input  logic        raw_valid,
    input  logic [31:0] raw,           // FP32 or an integer
    input  score_t      raw_place,
    output logic        ready,         // for a tile; without caps always
    // out
    output logic        complete,      // one cycle: all scores of the head are there
    output logic [31:0] maximum,       // until the next head's first score
    input  logic [16:0] address,       // of a score
    output logic [31:0] score          // a cycle later
);
  localparam int BITS = $clog2(32 * TILES);
  localparam int WIDTH = $bits(score_t);
  logic moves, capped_valid;
  logic [24:1] under_way;
  assign moves = raw_valid || under_way != '0 || !ready;
  always_ff @(posedge clk) under_way <= rst ? '0 : {under_way[23:1], raw_valid || capped_valid};

  // times the scale
  logic converted_valid, scale_valid, scaled_valid;
  logic [31:0] converted, scaled;
  score_t place_2, scale_place, scaled_place;
  int_to_float convert (
      .clk(clk),
      .valid(raw_valid && integers),
      .value(raw),
      .float_valid(converted_valid),
      .single(converted)
  );
  delay_line #(.WIDTH(WIDTH), .CYCLES(2)) keep_place_2 (.clk, .moves, .value(raw_place), .late(place_2));
  assign scale_valid = integers ? converted_valid : raw_valid;
  assign scale_place = integers ? place_2 : raw_place;
  float_multiply multiply (
      .clk(clk),
      .valid(scale_valid),
      .a(integers ? converted : raw),
      .b(scale),
      .product_valid(scaled_valid),
      .product(scaled)
  );
  delay_line #(.WIDTH(WIDTH), .CYCLES(4)) keep_place_6 (.clk, .moves, .value(scale_place), .late(scaled_place));

  // capped
  logic caps, cap_ready, entered;
  logic [4:0] capped_index;
  logic [31:0] capped;
  score_t first_place, capped_place;
  assign caps = cap[30:0] != 31'd0;
  score_cap cap_scores (
      .clk(clk),
      .rst(rst),
      .cap(cap),
      .score_valid(scaled_valid && caps && !rst),
      .score(scaled),
      .ready(cap_ready),
      .capped_valid(capped_valid),
      .capped_index(capped_index),
      .capped(capped)
  );
  always_comb begin
    capped_place = first_place;
    capped_place.index = capped_index;
    capped_place.last = first_place.last && capped_index == 5'd31;
    capped_place.first = first_place.first && capped_index == 5'd0;
  end
  assign ready = !caps || (cap_ready && !entered);
  always_ff @(posedge clk) begin  // of a tile its last place is kept; marks are of its ends
    if (raw_valid && caps) entered <= 1'b1;
    if (capped_valid || rst) entered <= 1'b0;
    if (scaled_valid && caps) begin
      first_place <= scaled_place;
      first_place.first <= scaled_place.first || (first_place.first && scaled_place.index != 5'd0);
    end
  end

  // where it belongs
  logic placed, seen_1, placed_valid;
  logic [31:0] value_1;
  logic [17:0] position, position_1;
  score_t place, place_1;
  assign place = caps ? capped_place : scaled_place;
  assign placed = caps ? capped_valid : scaled_valid;
  assign slot = {place.tile[1:0], place.index};
  function automatic logic [16:0] kept_at(input logic [16:0] at, input logic second);
    kept_at = at;
    if (by_heads) kept_at[BITS-1] = second;
  endfunction
  assign position = place.scratch ? count - 18'd1 - {11'd0, from_last} : {1'b0, place.tile, place.index};
  always_ff @(posedge clk) begin
    placed_valid <= placed && !rst;
    if (placed) begin
      value_1 <= caps ? capped : scaled;
      place_1 <= place;
      position_1 <= position;
      seen_1 <= position >= first && (place.scratch ? on_path[slot] : position < committed);
    end
  end

  // ALiBi: the bias is there seven cycles later, or eleven
  logic biases, rounds, bias_add, seen_12, biased_valid;
  logic [11:1] bias_at;
  logic [31:0] distance, near, near_2, product, bf16, bias_7, bias_11, value_7, value_11, biased;
  logic [16:0] position_7, position_11, position_12;
  logic seen_7, seen_11, last_7, last_11, last_12, first_7, first_11, first_12;
  logic head_2, head_3, head_7;  // a head's first scores follow the last ones of the head before
  assign biases = slope_kind != SLOPE_NONE;
  assign rounds = slope_kind != SLOPE_DISTANCE;
  always_ff @(posedge clk) bias_at <= rst ? '0 : {bias_at[10:1], placed_valid && biases};
  int_to_float of_distance (
      .clk(clk),
      .valid(placed_valid && biases),
      .value({14'd0, position_1} - {14'd0, count - 18'd1}),
      // verilator lint_off PINCONNECTEMPTY
      .float_valid(),
      // verilator lint_on PINCONNECTEMPTY
      .single(distance)
  );
  always_ff @(posedge clk) if (placed_valid && biases) {head_2, near} <= {place_1.head, position_bf16(position_1)};
  always_ff @(posedge clk) if (bias_at[1]) {head_3, near_2} <= {head_2, near};
  float_multiply times_slope (
      .clk(clk),
      .valid(bias_at[2]),
      .a(rounds ? near_2 : distance),
      .b(slope[head_3]),
      // verilator lint_off PINCONNECTEMPTY
      .product_valid(),
      // verilator lint_on PINCONNECTEMPTY
      .product(product)
  );
  assign bf16 = product + 32'h00007fff + {31'd0, product[16]};
  always_ff @(posedge clk) if (bias_at[6]) bias_7 <= rounds ? {bf16[31:16], 16'd0} : product;
  float_multiply times_factor (
      .clk(clk),
      .valid(bias_at[7] && rounds),
      .a(bias_7),
      .b(factor[head_7]),
      // verilator lint_off PINCONNECTEMPTY
      .product_valid(),
      // verilator lint_on PINCONNECTEMPTY
      .product(bias_11)
  );
  localparam int BESIDE = 32 + 17 + 3;
  delay_line #(.WIDTH(BESIDE + 1), .CYCLES(7)) keep_7 (.clk, .moves,
      .value({place_1.head, value_1, kept_at(position_1[16:0], place_1.head), seen_1, place_1.last, place_1.first}),
      .late({head_7, value_7, position_7, seen_7, last_7, first_7}));
  delay_line #(.WIDTH(BESIDE), .CYCLES(4)) keep_11 (.clk, .moves,
      .value({value_7, position_7, seen_7, last_7, first_7}),
      .late({value_11, position_11, seen_11, last_11, first_11}));
  assign bias_add = rounds ? bias_at[11] : bias_at[7];
  float_add add_bias (
      .clk(clk),
      .valid(bias_add && !rst),
      .a(rounds ? value_11 : value_7),
      .b(rounds ? bias_11 : bias_7),
      .sum_valid(biased_valid),
      .sum(biased)
  );
  delay_line #(.WIDTH(17 + 3), .CYCLES(5)) keep_12 (.clk, .moves,
      .value(rounds ? {position_11, seen_11, last_11, first_11} : {position_7, seen_7, last_7, first_7}),
      .late({position_12, seen_12, last_12, first_12}));

  // kept; a NaN is not the maximum: it makes its own weight NaN
  logic writes, write_seen, write_last, write_first;
  logic [16:0] write_position;
  logic [31:0] write_score, most;
  logic [31:0] scores[32*TILES];
  assign writes = (biases ? biased_valid : placed_valid) && !rst;
  assign {write_position, write_seen, write_last, write_first} =
      biases ? {position_12, seen_12, last_12, first_12}
      : {kept_at(position_1[16:0], place_1.head), seen_1, place_1.last, place_1.first};
  assign write_score = biases ? biased : value_1;
  assign most = write_first ? 32'hff800000 : maximum;
  always_ff @(posedge clk) begin
    score <= scores[address[BITS-1:0]];
    complete <= writes && write_last;
    if (writes) begin
      if (write_seen) scores[write_position[BITS-1:0]] <= write_score;
      maximum <= write_seen && float_less(most, write_score) ? write_score : most;
    end
  end
endmodule
