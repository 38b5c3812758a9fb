// SPDX-License-Identifier: Apache-2.0
// A DSP58 as AM004 describes it, as far as overlays/rtl uses it: INT8 mode, in which A holds three elements of 9 bits in
// two's complement and B three of 8, and the multiplier gives the sum of their products; registers of A, B, M and P; the
// ALU's sum with nothing, C or PCIN, modulo 2^58. Anything else ends the simulation.
module DSP58 #(
    parameter DSP_MODE = "INT24",
    parameter A_INPUT = "DIRECT",
    parameter B_INPUT = "DIRECT",
    parameter AMULTSEL = "A",
    parameter BMULTSEL = "B",
    parameter USE_MULT = "MULTIPLY",
    parameter USE_SIMD = "ONE58",
    parameter int AREG = 1,
    parameter int ACASCREG = 1,
    parameter int BREG = 1,
    parameter int BCASCREG = 1,
    parameter int MREG = 1,
    parameter int PREG = 1,
    parameter int ADREG = 1,
    parameter int DREG = 1,
    parameter int CREG = 1,
    parameter int ALUMODEREG = 1,
    parameter int CARRYINREG = 1,
    parameter int CARRYINSELREG = 1,
    parameter int INMODEREG = 1,
    parameter int OPMODEREG = 1
) (
    input  logic        CLK,
    input  logic [33:0] A,
    input  logic [23:0] B,
    input  logic [57:0] C,
    input  logic [26:0] D,
    input  logic [57:0] PCIN,
    input  logic [8:0]  OPMODE,
    input  logic [3:0]  ALUMODE,
    input  logic [4:0]  INMODE,
    input  logic [2:0]  NEGATE,
    input  logic        CARRYIN,
    input  logic [2:0]  CARRYINSEL,
    input  logic [33:0] ACIN,
    input  logic [23:0] BCIN,
    input  logic        CARRYCASCIN, MULTSIGNIN,
    input  logic        CEA1, CEA2, CEB1, CEB2, CEM, CEP, CEAD, CED, CEC, CEALUMODE, CECARRYIN, CECTRL, CEINMODE,
    input  logic        ASYNC_RST, RSTA, RSTB, RSTC, RSTD, RSTM, RSTP, RSTCTRL, RSTALUMODE, RSTINMODE, RSTALLCARRYIN,
    output logic [57:0] P,
    output logic [57:0] PCOUT,
    output logic [33:0] ACOUT,
    output logic [23:0] BCOUT,
    output logic        CARRYCASCOUT, MULTSIGNOUT, OVERFLOW, PATTERNBDETECT, PATTERNDETECT, UNDERFLOW,
    output logic [3:0]  CARRYOUT,
    output logic [7:0]  XOROUT
);
  initial begin
    if (DSP_MODE != "INT8" || USE_MULT != "MULTIPLY" || USE_SIMD != "ONE58" || A_INPUT != "DIRECT" || B_INPUT != "DIRECT" ||
        AMULTSEL != "A" || BMULTSEL != "B" || MREG != 1 || PREG != 1 || CREG != 0 || OPMODEREG != 0 || ALUMODEREG != 0 ||
        INMODEREG != 0 || CARRYINREG != 0 || CARRYINSELREG != 0)
      $fatal(1, "a mode of DSP58 that is not modelled");
    if (AREG > 2 || BREG > 2 || AREG != BREG || ACASCREG > AREG || ACASCREG < AREG - 1 || BCASCREG > BREG ||
        BCASCREG < BREG - 1)
      $fatal(1, "registers that a DSP58 does not have");
  end

  // operands: one register is the second
  logic [26:0] a_1, a_2, a;
  logic [23:0] b_1, b_2, b;
  assign a = AREG == 0 ? A[26:0] : a_2;
  assign b = BREG == 0 ? B : b_2;
  logic signed [18:0] products;
  always_comb begin
    products = '0;
    for (int i = 0; i < 3; i++) products += 19'($signed(a[9*i+:9])) * 19'($signed(b[8*i+:8]));
  end
  logic signed [18:0] m;
  logic [57:0] z;
  always_comb begin
    unique case (OPMODE[6:4])
      3'b000: z = 58'd0;
      3'b001: z = PCIN;
      3'b011: z = C;
      default: $fatal(1, "OPMODE %b is not modelled", OPMODE);
    endcase
  end
  always_ff @(posedge CLK) begin
    if (OPMODE[8:7] != 2'b00 || OPMODE[3:0] != 4'b0101 || ALUMODE != 4'd0 || INMODE != 5'd0 || NEGATE != 3'd0 || CARRYIN ||
        CARRYINSEL != 3'd0)
      $fatal(1, "OPMODE %b with ALUMODE %b is not modelled", OPMODE, ALUMODE);
    if (CEA1) a_1 <= A[26:0];
    if (CEA2) a_2 <= AREG == 2 ? a_1 : A[26:0];
    if (CEB1) b_1 <= B;
    if (CEB2) b_2 <= BREG == 2 ? b_1 : B;
    if (CEM) m <= products;
    if (CEP) P <= 58'(m) + z;
    if (RSTA) {a_1, a_2} <= '0;
    if (RSTB) {b_1, b_2} <= '0;
    if (RSTM) m <= '0;
    if (RSTP) P <= '0;
  end
  assign PCOUT = P;
  assign {ACOUT, BCOUT, CARRYCASCOUT, MULTSIGNOUT, OVERFLOW, PATTERNBDETECT, PATTERNDETECT, UNDERFLOW, CARRYOUT, XOROUT} =
      '0;  // not used
endmodule
