// SPDX-License-Identifier: Apache-2.0
// r of a row from the sums of its segments (docs/numbers.md, 2.2 and 3.5): one adder, a bit of a quotient or root a cycle.
module pipe_factor
  import vfu_types::*;
(
    input  logic             clk,
    input  logic             rst,
    input  logic             start,
    input  logic [7:0][31:0] sums,
    input  logic [31:0]      columns,    // of all boards; held, and so are the next two
    input  logic [31:0]      eps,
    input  logic [31:0]      numerator,
    output logic             busy,
    output logic [31:0]      factor
);
  typedef enum logic [2:0] {IDLE, PAIRS, JOIN, BY_COLUMNS, EPS, ROOT, QUOTIENT} state_t;
  state_t state;
  logic [7:0][31:0] term;
  logic [1:0] pair, joined, last;  // of this level of the tree
  logic started, adds, sum_valid, divide_busy, divide_start;
  logic [31:0] sum, divided, width;
  assign busy = state != IDLE;
  assign adds = state == PAIRS || (state == EPS && !started);
  float_add adder (
      .clk(clk), .valid(adds), .a(state == EPS ? divided : term[{pair, 1'b0}]), .b(state == EPS ? eps : term[{pair, 1'b1}]),
      .sum_valid(sum_valid), .sum(sum)
  );
  // verilator lint_off PINCONNECTEMPTY
  int_to_float convert (
      .clk(clk), .valid(1'b1), .value(columns), .float_valid(), .single(width)
  );
  // verilator lint_on PINCONNECTEMPTY
  assign divide_start = (state == BY_COLUMNS || state == ROOT || state == QUOTIENT) && !started;
  float_divide divider (
      .clk(clk), .rst(rst), .start(divide_start), .is_root(state == ROOT),
      .a(state == BY_COLUMNS ? term[0] : state == ROOT ? sum : numerator), .b(state == BY_COLUMNS ? width : divided),
      .busy(divide_busy), .result(divided)
  );
  always_ff @(posedge clk) begin
    started <= 1'b1;
    if (sum_valid && (state == PAIRS || state == JOIN)) begin
      term[joined] <= sum;
      joined <= joined + 2'd1;
    end
    unique case (state)
      IDLE:
      if (start) begin
        state <= PAIRS;
        {pair, joined, last} <= {2'd0, 2'd0, 2'd3};
        for (int s = 0; s < 8; s++)  // empty segments have no sum
          term[s] <= segment_column(4'(s), columns) == segment_column(4'(s + 1), columns) ? 32'd0 : sums[s];
      end
      PAIRS: begin
        pair <= pair + 2'd1;
        if (pair == last) state <= JOIN;
      end
      JOIN:
      if (sum_valid && joined == last) begin
        {pair, joined, last} <= {2'd0, 2'd0, last >> 1};
        started <= 1'b0;
        state <= last == 2'd0 ? BY_COLUMNS : PAIRS;
      end
      EPS:
      if (sum_valid) begin
        started <= 1'b0;
        state <= ROOT;
      end
      default:
      if (started && !divide_busy) begin
        started <= 1'b0;
        factor <= divided;
        state <= state == BY_COLUMNS ? EPS : state == ROOT ? QUOTIENT : IDLE;
      end
    endcase
    if (rst) state <= IDLE;
  end
endmodule
