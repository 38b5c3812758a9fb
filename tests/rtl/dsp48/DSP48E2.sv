// SPDX-License-Identifier: Apache-2.0
// A DSP48E2 as UG579 describes it, as far as overlays/rtl uses it: the pre-adder's D - A in its register, B in one, the
// product in M, and the ALU's sum with nothing or PCIN, modulo 2^48, with or without a register. Anything else ends the
// simulation.
module DSP48E2 #(
    parameter AMULTSEL = "A",
    parameter BMULTSEL = "B",
    parameter PREADDINSEL = "A",
    parameter A_INPUT = "DIRECT",
    parameter B_INPUT = "DIRECT",
    parameter USE_MULT = "MULTIPLY",
    parameter USE_SIMD = "ONE48",
    parameter int AREG = 1,
    parameter int ACASCREG = 1,
    parameter int DREG = 1,
    parameter int ADREG = 1,
    parameter int BREG = 1,
    parameter int BCASCREG = 1,
    parameter int MREG = 1,
    parameter int PREG = 1,
    parameter int CREG = 1,
    parameter int ALUMODEREG = 1,
    parameter int CARRYINREG = 1,
    parameter int CARRYINSELREG = 1,
    parameter int INMODEREG = 1,
    parameter int OPMODEREG = 1
) (
    input  logic        CLK,
    input  logic [29:0] A,
    input  logic [17:0] B,
    input  logic [47:0] C,
    input  logic [26:0] D,
    input  logic [47:0] PCIN,
    input  logic [8:0]  OPMODE,
    input  logic [3:0]  ALUMODE,
    input  logic [4:0]  INMODE,
    input  logic        CARRYIN,
    input  logic [2:0]  CARRYINSEL,
    input  logic [29:0] ACIN,
    input  logic [17:0] BCIN,
    input  logic        CARRYCASCIN, MULTSIGNIN,
    input  logic        CEA1, CEA2, CEB1, CEB2, CEM, CEP, CEAD, CED, CEC, CEALUMODE, CECARRYIN, CECTRL, CEINMODE,
    input  logic        RSTA, RSTB, RSTC, RSTD, RSTM, RSTP, RSTCTRL, RSTALUMODE, RSTINMODE, RSTALLCARRYIN,
    output logic [47:0] P,
    output logic [47:0] PCOUT,
    output logic [29:0] ACOUT,
    output logic [17:0] BCOUT,
    output logic        CARRYCASCOUT, MULTSIGNOUT, OVERFLOW, PATTERNBDETECT, PATTERNDETECT, UNDERFLOW,
    output logic [3:0]  CARRYOUT,
    output logic [7:0]  XOROUT
);
  initial begin
    if (AMULTSEL != "AD" || BMULTSEL != "B" || PREADDINSEL != "A" || A_INPUT != "DIRECT" || B_INPUT != "DIRECT" ||
        USE_MULT != "MULTIPLY" || USE_SIMD != "ONE48" || AREG != 0 || ACASCREG != 0 || DREG != 0 || ADREG != 1 ||
        BREG != 1 || BCASCREG != 1 || MREG != 1 || PREG > 1 || CREG != 0 || ALUMODEREG != 0 || CARRYINREG != 0 ||
        CARRYINSELREG != 0 || INMODEREG != 0 || OPMODEREG != 0)
      $fatal(1, "a mode of DSP48E2 that is not modelled");
  end

  logic signed [26:0] ad;
  logic signed [17:0] b;
  logic signed [44:0] m;
  logic [47:0] p, z, sum;
  always_comb begin
    unique case (OPMODE[6:4])
      3'b000: z = 48'd0;
      3'b001: z = PCIN;
      default: $fatal(1, "OPMODE %b is not modelled", OPMODE);
    endcase
  end
  assign sum = 48'(m) + z;
  always_ff @(posedge CLK) begin
    if (OPMODE[8:7] != 2'b00 || OPMODE[3:0] != 4'b0101 || ALUMODE != 4'd0 || INMODE != 5'b01100 || CARRYIN ||
        CARRYINSEL != 3'd0 || RSTA || RSTC || RSTD)
      $fatal(1, "OPMODE %b, ALUMODE %b, INMODE %b are not modelled", OPMODE, ALUMODE, INMODE);
    if (CEAD) ad <= D - A[26:0];
    if (CEB2) b <= B;
    if (CEM) m <= 45'(ad) * 45'(b);
    if (CEP) p <= sum;
    if (RSTB) b <= '0;
    if (RSTM) m <= '0;
    if (RSTP) p <= '0;
  end
  assign P = PREG == 1 ? p : sum;
  assign PCOUT = P;
  assign {ACOUT, BCOUT, CARRYCASCOUT, MULTSIGNOUT, OVERFLOW, PATTERNBDETECT, PATTERNDETECT, UNDERFLOW, CARRYOUT, XOROUT} =
      '0;  // not used
endmodule
