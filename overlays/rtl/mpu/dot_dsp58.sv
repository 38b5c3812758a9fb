// SPDX-License-Identifier: Apache-2.0
// A column's sum of TAPS products, 9 bits by 8, on the DSP58s of a Versal device: three products each in
// INT8 mode, joined along the cascade of P, whose stages take their operands one cycle after another.
// ceil(TAPS/3) + 1 cycles. Simulated with a model of the primitive.
module dot_dsp58 #(
    parameter int TAPS = 8  // at most 9: operands have two registers at most
) (
    input  logic              clk,
    input  logic signed [8:0] w[TAPS],
    input  logic signed [7:0] x[TAPS],
    output int                sum
);
  localparam int STAGES = (TAPS + 2) / 3;
  logic [57:0] cascade[STAGES+1], sums[STAGES];
  assign cascade[0] = 58'd0;
  for (genvar s = 0; s < STAGES; s++) begin : stages
    logic [26:0] a;
    logic [23:0] b;
    for (genvar i = 0; i < 3; i++) begin : elements
      if (3 * s + i < TAPS) begin : used
        assign a[9*i+:9] = w[3*s+i];
        assign b[8*i+:8] = x[3*s+i];
      end else begin : unused
        assign a[9*i+:9] = 9'd0;
        assign b[8*i+:8] = 8'd0;
      end
    end
    DSP58 #(
        .DSP_MODE("INT8"),
        .A_INPUT("DIRECT"),
        .B_INPUT("DIRECT"),
        .AMULTSEL("A"),
        .BMULTSEL("B"),
        .USE_MULT("MULTIPLY"),
        .USE_SIMD("ONE58"),
        .AREG(s),
        .ACASCREG(s),
        .BREG(s),
        .BCASCREG(s),
        .MREG(1),
        .PREG(1),
        .ADREG(0),
        .DREG(0),
        .CREG(0),
        .ALUMODEREG(0),
        .CARRYINREG(0),
        .CARRYINSELREG(0),
        .INMODEREG(0),
        .OPMODEREG(0)
    ) multiply (
        .CLK(clk),
        .A({7'd0, a}),
        .B(b),
        .C(58'd0),
        .D(27'd0),
        .PCIN(cascade[s]),
        .PCOUT(cascade[s+1]),
        .P(sums[s]),
        // P = products + (nothing or PCIN)
        .OPMODE(s == 0 ? 9'b00_000_01_01 : 9'b00_001_01_01),
        .ALUMODE(4'd0),
        .INMODE(5'd0),
        .NEGATE(3'd0),
        .CARRYIN(1'b0),
        .CARRYINSEL(3'd0),
        .ACIN(34'd0),
        .BCIN(24'd0),
        .CARRYCASCIN(1'b0),
        .MULTSIGNIN(1'b0),
        .CEA1(1'b1),
        .CEA2(1'b1),
        .CEB1(1'b1),
        .CEB2(1'b1),
        .CEM(1'b1),
        .CEP(1'b1),
        .CEAD(1'b0),
        .CED(1'b0),
        .CEC(1'b0),
        .CEALUMODE(1'b0),
        .CECARRYIN(1'b0),
        .CECTRL(1'b0),
        .CEINMODE(1'b0),
        .ASYNC_RST(1'b0),
        .RSTA(1'b0),
        .RSTB(1'b0),
        .RSTC(1'b0),
        .RSTD(1'b0),
        .RSTM(1'b0),
        .RSTP(1'b0),
        .RSTCTRL(1'b0),
        .RSTALUMODE(1'b0),
        .RSTINMODE(1'b0),
        .RSTALLCARRYIN(1'b0),
        /* verilator lint_off PINCONNECTEMPTY */
        .ACOUT(),
        .BCOUT(),
        .CARRYCASCOUT(),
        .CARRYOUT(),
        .MULTSIGNOUT(),
        .OVERFLOW(),
        .PATTERNBDETECT(),
        .PATTERNDETECT(),
        .UNDERFLOW(),
        .XOROUT()
        /* verilator lint_on PINCONNECTEMPTY */
    );
  end
  assign sum = int'(sums[STAGES-1]);
endmodule
