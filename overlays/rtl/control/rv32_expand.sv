// SPDX-License-Identifier: Apache-2.0
// A 16-bit instruction as the 32-bit one that it stands for. What stands for none becomes 0, which is
// not an instruction.
module rv32_expand (
    input  logic [15:0] half,
    output logic [31:0] word
);
  localparam logic [6:0] OP = 7'h33, OP_IMM = 7'h13, LUI = 7'h37, LOAD = 7'h03, STORE = 7'h23,
                         BRANCH = 7'h63, JAL = 7'h6f, JALR = 7'h67;
  localparam logic [4:0] ZERO = 5'd0, LINK = 5'd1, STACK = 5'd2;

  logic [4:0] rd, rs2, rd_short, rs1_short;
  logic [11:0] small_value;
  logic [20:0] jump;
  logic [12:0] branch;
  assign rd = half[11:7];
  assign rs2 = half[6:2];
  assign rs1_short = {2'b01, half[9:7]};
  assign rd_short = {2'b01, half[4:2]};
  assign small_value = {{7{half[12]}}, half[6:2]};
  assign jump = {{10{half[12]}}, half[8], half[10:9], half[6], half[7], half[2], half[11], half[5:3], 1'b0};
  assign branch = {{5{half[12]}}, half[6:5], half[2], half[11:10], half[4:3], 1'b0};

  function automatic logic [31:0] jal(input logic [20:0] to, input logic [4:0] link);
    return {to[20], to[10:1], to[11], to[19:12], link, JAL};
  endfunction

  always_comb begin
    word = 32'd0;
    case ({half[1:0], half[15:13]})
      // addi4spn, lw, sw
      5'b00_000:
      if (half[12:5] != 8'd0)
        word = {2'b00, half[10:7], half[12:11], half[5], half[6], 2'b00, STACK, 3'd0, rd_short, OP_IMM};
      5'b00_010: word = {5'd0, half[5], half[12:10], half[6], 2'b00, rs1_short, 3'd2, rd_short, LOAD};
      5'b00_110:
      word = {5'd0, half[5], half[12], rd_short, rs1_short, 3'd2, half[11:10], half[6], 2'b00, STORE};
      // addi, jal, li
      5'b01_000: word = {small_value, rd, 3'd0, rd, OP_IMM};
      5'b01_001: word = jal(jump, LINK);
      5'b01_010: word = {small_value, ZERO, 3'd0, rd, OP_IMM};
      // addi16sp, lui
      5'b01_011:
      if ({half[12], half[6:2]} != 6'd0) begin
        if (rd == STACK)
          word = {{3{half[12]}}, half[4:3], half[5], half[2], half[6], 4'd0, STACK, 3'd0, STACK, OP_IMM};
        else word = {{15{half[12]}}, half[6:2], rd, LUI};
      end
      // srli, srai, andi, sub, xor, or, and
      5'b01_100:
      case (half[11:10])
        2'b00: if (!half[12]) word = {7'h00, rs2, rs1_short, 3'd5, rs1_short, OP_IMM};
        2'b01: if (!half[12]) word = {7'h20, rs2, rs1_short, 3'd5, rs1_short, OP_IMM};
        2'b10: word = {small_value, rs1_short, 3'd7, rs1_short, OP_IMM};
        default:
        if (!half[12])
          case (half[6:5])
            2'b00: word = {7'h20, rd_short, rs1_short, 3'd0, rs1_short, OP};
            2'b01: word = {7'h00, rd_short, rs1_short, 3'd4, rs1_short, OP};
            2'b10: word = {7'h00, rd_short, rs1_short, 3'd6, rs1_short, OP};
            default: word = {7'h00, rd_short, rs1_short, 3'd7, rs1_short, OP};
          endcase
      endcase
      // j, beqz, bnez
      5'b01_101: word = jal(jump, ZERO);
      5'b01_110, 5'b01_111:
      word = {branch[12], branch[10:5], ZERO, rs1_short, 2'b00, half[13], branch[4:1], branch[11], BRANCH};
      // slli, lwsp
      5'b10_000: if (!half[12]) word = {7'h00, rs2, rd, 3'd1, rd, OP_IMM};
      5'b10_010:
      if (rd != ZERO) word = {4'd0, half[3:2], half[12], half[6:4], 2'b00, STACK, 3'd2, rd, LOAD};
      // jr, mv, ebreak, jalr, add
      5'b10_100:
      if (rs2 != ZERO) word = {7'h00, rs2, half[12] ? rd : ZERO, 3'd0, rd, OP};
      else if (rd != ZERO) word = {12'd0, rd, 3'd0, 4'd0, half[12], JALR};
      else if (half[12]) word = 32'h0010_0073;
      // swsp
      5'b10_110:
      word = {4'd0, half[8:7], half[12], rs2, STACK, 3'd2, half[11:9], 2'b00, STORE};
      default: word = 32'd0;
    endcase
  end
endmodule
