// SPDX-License-Identifier: Apache-2.0
// The counters of a run, eight banks of them: counter c lies in bank c mod 8, so eight that follow each
// other are read, compared or raised in one access. They rise to 65,535 and stay there. An access is
// taken in each cycle but the one behind a raise; a compare answers two cycles later.
module counter_file
  import abi_types::*;
  import sequencer_types::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        clear,     // one cycle: zero the first `count`
    input  index_t      count,
    output logic        clearing,
    input  logic        access_valid,
    output logic        access_ready,
    input  access_t     access_in,
    output logic        answer_valid,
    output logic        answer_holds,
    output logic [2:0]  answer_lane,   // the first that is below, counted from the access' counter
    output logic [15:0] answer_found,  // its value
    output logic [15:0] answer_first   // value of the access' counter
);
  localparam int BANKS = LORA_SEGMENTS;
  localparam int ROWS = LORA_MAX_COUNTERS / BANKS;

  logic [9:0] clear_row, clear_last;
  always_ff @(posedge clk) begin
    if (clear) begin
      clearing <= count != '0;
      clear_row <= 10'd0;
      clear_last <= 10'((count - 14'd1) >> 3);
    end else if (clearing) begin
      clearing <= clear_row != clear_last;
      clear_row <= clear_row + 10'd1;
    end
    if (rst) clearing <= 1'b0;
  end

  access_t held;
  logic held_valid;
  assign access_ready = !clearing && !clear && !(held_valid && held.raise);
  always_ff @(posedge clk) begin
    held <= access_in;
    held_valid <= access_valid && access_ready && !rst;
  end

  logic [BANKS-1:0][15:0] value;
  logic [BANKS-1:0] below;
  for (genvar b = 0; b < BANKS; b++) begin : bank
    logic [15:0] cells[ROWS];
    logic [9:0] read_row, held_row;
    logic [2:0] lane;  // of the access, that this bank holds
    logic touched;
    logic [16:0] sum;
    // a bank below the first counter's holds one of the next row
    assign read_row = access_in.counter[12:3] + 10'(4'(b) < {1'b0, access_in.counter[2:0]});
    assign lane = 3'(b) - held.counter[2:0];
    assign touched = held.wide || lane == 3'd0;
    assign sum = {1'b0, value[b]} + (held.wide ? 17'(held.groups[lane]) : {1'b0, held.by});
    assign below[b] = touched && value_t'(value[b]) < held.value;
    always_ff @(posedge clk) begin
      held_row <= read_row;
      value[b] <= cells[read_row];
      if (clearing) cells[clear_row] <= 16'd0;
      else if (held_valid && held.raise && touched)
        cells[held_row] <= sum[16] ? 16'hffff : sum[15:0];
    end
  end

  // the first that is below, in the order of counters
  logic [BANKS-1:0] ordered;
  logic [2:0] first, first_bank;
  assign first_bank = first + held.counter[2:0];
  always_comb begin
    for (int s = 0; s < BANKS; s++) begin
      logic [2:0] from;
      from = 3'(s) + held.counter[2:0];
      ordered[s] = below[from];
    end
    first = 3'd0;
    for (int s = BANKS - 1; s >= 0; s--) if (ordered[s]) first = 3'(s);
  end
  always_ff @(posedge clk) begin
    answer_valid <= held_valid && !held.raise && !rst;
    answer_holds <= below == '0;
    answer_lane <= first;
    answer_found <= value[first_bank];
    answer_first <= value[held.counter[2:0]];
  end
endmodule
