// SPDX-License-Identifier: Apache-2.0
// Rows of y: quotients of sums, one a cycle, as FP16 to memory, 32 columns at a time (docs/numbers.md, 3.8, 6.6).
module attention_results
  import float_types::*;
  import vfu_types::*;
(
    input  logic        clk,
    input  logic        rst,
    input  logic        integers,
    input  logic [8:0]  head_dim,
    input  logic [31:0] v_scale,
    input  logic        row_begins,
    input  logic [31:0] y_row,         // bytes
    input  logic [15:0] of_start,      // of head_walk, and so are the next
    input  logic [15:0] group,
    input  logic [2:0]  unit,
    input  logic [2:0]  last_unit,
    // sums of a head: first the total
    input  logic        total_valid,
    input  logic [31:0] total,         // FP32 or an integer
    input  logic        poisoned,      // NaN in its place
    input  logic        sum_valid,     // at least three cycles later; in order
    input  logic [31:0] sum,
    output logic        busy,
    output logic        bad,           // a value that is not finite was made
    output logic        write_valid,
    input  logic        write_ready,
    output logic [31:0] write_line,
    output logic [63:0] write_bytes,
    output logic [511:0] write_data
);
  logic total_converted, converted_valid, quotient_valid, scaled_valid;
  logic [31:0] total_float, divisor, converted, quotient, scaled, divided;
  int_to_float convert_total (
      .clk(clk),
      .valid(total_valid && integers),
      .value(total),
      .float_valid(total_converted),
      .single(total_float)
  );
  int_to_float convert (
      .clk(clk),
      .valid(sum_valid && integers),
      .value(sum),
      .float_valid(converted_valid),
      .single(converted)
  );
  float_quotient divide (
      .clk(clk),
      .valid((integers ? converted_valid : sum_valid) && !rst),
      .a(integers ? converted : sum),
      .b(divisor),
      .quotient_valid(quotient_valid),
      .quotient(quotient)
  );
  float_multiply times_scale (
      .clk(clk),
      .valid(quotient_valid && integers),
      .a(quotient),
      .b(v_scale),
      .product_valid(scaled_valid),
      .product(scaled)
  );
  assign divided = integers ? scaled : quotient;

  // columns come in order
  logic [15:0] halves[256];
  logic [15:0] half;
  logic half_valid;
  logic [8:0] made, taken, begins, ends;
  logic [31:0] y_head;
  typedef enum logic [1:0] {IDLE, PLACE, WRITE, WRITING} state_t;
  state_t state;
  logic writes, own, head_ends;
  logic [5:0] columns;
  head_walk walk (
      .clk(clk),
      .begins(row_begins),
      .of_start(of_start),
      .group(group),
      .unit(unit),
      .last_unit(last_unit),
      .moves(!own || head_ends),
      .own(own),
      // verilator lint_off PINCONNECTEMPTY
      .ends_group()
      // verilator lint_on PINCONNECTEMPTY
  );
  assign head_ends = state == WRITING && !writes && ends == head_dim;
  assign ends = begins + 9'd32 < head_dim ? begins + 9'd32 : head_dim;
  assign columns = 6'(ends - begins);
  vfu_result result (
      .clk(clk),
      .rst(rst),
      .address({6'd0, y_head + {22'd0, begins, 1'b0}}),
      .element(ELEMENT_HALF),
      .count(columns),
      .store(1'b0),
      .beat(3'd0),
      .stored('0),
      .place(state == PLACE && own && taken != made && taken != ends),
      .placed_at(taken[4:0]),
      .placed(halves[taken[7:0]]),
      // verilator lint_off PINCONNECTEMPTY
      .values(),
      // verilator lint_on PINCONNECTEMPTY
      .start(state == WRITE),
      .busy(writes),
      .write_valid(write_valid),
      .write_ready(write_ready),
      .write_line(write_line),
      .write_bytes(write_bytes),
      .write_data(write_data)
  );
  assign busy = state != IDLE;
  assign bad = half_valid && half[14:10] == 5'd31;
  always_ff @(posedge clk) begin
    half_valid <= (integers ? scaled_valid : quotient_valid) && busy && !rst;
    half <= float_to_half(divided);
    if (half_valid) begin
      halves[made[7:0]] <= half;
      made <= made + 9'd1;
    end
    if (total_valid && !integers) divisor <= total;
    if (total_converted) divisor <= poisoned ? FLOAT_NAN : total_float;
    if (!own || head_ends) y_head <= y_head + {22'd0, head_dim, 1'b0};
    if (row_begins) y_head <= y_row;
    unique case (state)
      IDLE:
      if (total_valid) begin
        state <= PLACE;
        made <= 9'd0;
        taken <= 9'd0;
        begins <= 9'd0;
      end
      PLACE:
      if (own) begin
        if (taken == ends) state <= WRITE;
        else if (taken != made) taken <= taken + 9'd1;
      end
      WRITE: state <= WRITING;
      default:
      if (!writes) begin
        begins <= ends;
        state <= PLACE;
        if (ends == head_dim) state <= IDLE;
      end
    endcase
    if (rst) state <= IDLE;
  end
endmodule
