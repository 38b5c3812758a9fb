// SPDX-License-Identifier: Apache-2.0
// Two columns' sums of four products on a chain of DSP48E2s, packed as integer_pair has them: (d - a) * x for each tap, where
// d and a hold two columns, 18 bits apart. The pre-adders take a off; the cascade of P adds, all of it in the cycle before
// its register. Three cycles from operands to the sum. Simulated with a model of the primitive.
module dot_dsp48 (
    input  logic               clk,
    input  logic               enable,    // take operands
    input  logic               enable_1,  // a cycle later
    input  logic               enable_2,
    input  logic               clear,     // the sum is 0, whatever was taken
    input  logic        [26:0] d[4],
    input  logic        [26:0] a,
    input  logic signed [7:0]  x[4],
    output logic        [47:0] sum
);
  logic [47:0] cascade[5], sums[4];
  assign cascade[0] = 48'd0;
  for (genvar i = 0; i < 4; i++) begin : taps
    localparam int LAST = i == 3 ? 1 : 0;
    DSP48E2 #(
        .AMULTSEL("AD"),
        .BMULTSEL("B"),
        .PREADDINSEL("A"),
        .A_INPUT("DIRECT"),
        .B_INPUT("DIRECT"),
        .USE_MULT("MULTIPLY"),
        .USE_SIMD("ONE48"),
        .AREG(0),
        .ACASCREG(0),
        .DREG(0),
        .ADREG(1),
        .BREG(1),
        .BCASCREG(1),
        .MREG(1),
        .PREG(LAST),
        .CREG(0),
        .ALUMODEREG(0),
        .CARRYINREG(0),
        .CARRYINSELREG(0),
        .INMODEREG(0),
        .OPMODEREG(0)
    ) multiply (
        .CLK(clk),
        .A({3'd0, a}),
        .B(18'(x[i])),
        .C(48'd0),
        .D(d[i]),
        .PCIN(cascade[i]),
        .PCOUT(cascade[i+1]),
        .P(sums[i]),
        // P = product + (nothing or PCIN); the pre-adder gives D - A
        .OPMODE(i == 0 ? 9'b00_000_01_01 : 9'b00_001_01_01),
        .ALUMODE(4'd0),
        .INMODE(5'b01100),
        .CARRYIN(1'b0),
        .CARRYINSEL(3'd0),
        .ACIN(30'd0),
        .BCIN(18'd0),
        .CARRYCASCIN(1'b0),
        .MULTSIGNIN(1'b0),
        .CEA1(1'b0),
        .CEA2(1'b0),
        .CEB1(1'b0),
        .CEB2(enable),
        .CEM(enable_1),
        .CEP(enable_2),
        .CEAD(enable),
        .CED(1'b0),
        .CEC(1'b0),
        .CEALUMODE(1'b0),
        .CECARRYIN(1'b0),
        .CECTRL(1'b0),
        .CEINMODE(1'b0),
        .RSTA(1'b0),
        .RSTB(1'b0),
        .RSTC(1'b0),
        .RSTD(1'b0),
        .RSTM(1'b0),
        .RSTP(i == 3 ? clear : 1'b0),
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
  assign sum = sums[3];
endmodule
