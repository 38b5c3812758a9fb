// SPDX-License-Identifier: Apache-2.0
// silu(g) = g / (1 + exp(-g)) of an FP16 g, step by step as docs/numbers.md, 3.10 and 4.1: one a cycle,
// pipe_types' SILU_CYCLES. exp's powers of two are added to an exponent: what they multiply has no bit to lose. An FP16 value
// has no subnormals in FP32, |r| is at most 0.35; where x is beyond exp's range, or NaN, what was made of it is not used.
module pipe_silu
  import float_types::*;
  import vfu_types::*;
  import pipe_types::*;
(
    input  logic        clk,
    input  logic        valid,
    input  logic [31:0] g,           // widened from FP16
    output logic        silu_valid,
    output logic [31:0] silu
);
  localparam int TERM = 9, TERMS = 6, RANGE = 19, SERIES = RANGE + TERM * TERMS;  // cycles
  logic [31:0] x;
  assign x = {!g[31], g[30:0]};

  // n = rint(x*LOG2E), the nearest multiple of ln(2)
  logic scaled_valid, n_valid;
  logic [31:0] scaled, n;
  logic signed [9:0] n_integer, n_late;
  normal_multiply scale (
      .clk(clk), .valid(valid), .a(x), .b(EXP_LOG2E), .product_valid(scaled_valid), .product(scaled)
  );
  always_ff @(posedge clk) begin
    n_valid <= scaled_valid;
    if (scaled_valid) n <= rounded(scaled);
    n_integer <= small_integer(n);
  end
  pipe_delay #(
      .WIDTH(10), .CYCLES(SERIES - 6)
  ) delay_n (
      .clk(clk), .word(n_integer), .later(n_late)
  );

  // r = (x - n*LN2_HI) - n*LN2_LO
  logic [18:0] g_9, g_late, g_latest;  // without the bits that FP16 has not
  logic high_valid, less_valid, r_valid;
  logic [31:0] high, low, low_late, less, r;
  pipe_delay #(
      .WIDTH(19), .CYCLES(9)
  ) delay_x (
      .clk(clk), .word(g[31:13]), .later(g_9)
  );
  normal_multiply times_high (
      .clk(clk), .valid(n_valid), .a(n), .b(EXP_LN2_HI), .product_valid(high_valid), .product(high)
  );
  // verilator lint_off PINCONNECTEMPTY
  normal_multiply times_low (
      .clk(clk), .valid(n_valid), .a(n), .b(EXP_LN2_LO), .product_valid(), .product(low)
  );
  // verilator lint_on PINCONNECTEMPTY
  float_add less_high (
      .clk(clk), .valid(high_valid), .a({!g_9[18], g_9[17:0], 13'd0}), .b({!high[31], high[30:0]}),
      .sum_valid(less_valid), .sum(less)
  );
  pipe_delay #(
      .CYCLES(5)
  ) delay_low (
      .clk(clk), .word(low), .later(low_late)
  );
  float_add less_low (
      .clk(clk), .valid(less_valid), .a(less), .b({!low_late[31], low_late[30:0]}), .sum_valid(r_valid), .sum(r)
  );

  // the polynomial
  logic [TERMS:0] p_valid;
  logic [TERMS:0][31:0] p;
  logic [TERMS-1:0][31:0] r_of;
  assign p_valid[0] = r_valid;
  assign p[0] = EXP_C[0];
  assign r_of[0] = r;
  for (genvar i = 0; i < TERMS; i++) begin : terms
    horner_step #(
        .C(EXP_C[i+1])
    ) step (
        .clk(clk), .valid(p_valid[i]), .p(p[i]), .r(r_of[i]), .sum_valid(p_valid[i+1]), .sum(p[i+1])
    );
    if (i + 1 < TERMS) begin : more
      pipe_delay #(
          .CYCLES(TERM)
      ) delay_r (
          .clk(clk), .word(r_of[i]), .later(r_of[i+1])
      );
    end
  end

  // exp(-g), then 1 + exp(-g), then the quotient
  logic exp_valid, below_valid;
  logic [31:0] exp, below, x_late;
  pipe_delay #(
      .WIDTH(19), .CYCLES(SERIES)
  ) delay_g (
      .clk(clk), .word(g[31:13]), .later(g_late)
  );
  pipe_delay #(
      .WIDTH(19), .CYCLES(6)
  ) delay_dividend (
      .clk(clk), .word(g_late), .later(g_latest)
  );
  assign x_late = {!g_late[18], g_late[17:0], 13'd0};
  always_ff @(posedge clk) begin
    exp_valid <= p_valid[TERMS];
    if (p_valid[TERMS]) begin
      if (x_late[30:0] > 31'h7f800000) exp <= FLOAT_NAN;
      else if (float_less(x_late, EXP_MIN)) exp <= 32'd0;
      else if (float_less(EXP_MAX, x_late)) exp <= 32'h7f800000;
      else exp <= {p[TERMS][31], p[TERMS][30:23] + n_late[7:0], p[TERMS][22:0]};
    end
  end
  float_add one_more (
      .clk(clk), .valid(exp_valid), .a(exp), .b(FLOAT_ONE), .sum_valid(below_valid), .sum(below)
  );
  normal_quotient divide (
      .clk(clk), .valid(below_valid), .a({g_latest, 13'd0}), .b(below), .quotient_valid(silu_valid), .quotient(silu)
  );
endmodule
