// SPDX-License-Identifier: Apache-2.0
// What a 32-bit instruction of rv32im is to do. No CSRs: the control program has no handler, so ecall,
// ebreak and whatever is not an instruction stop the core.
module rv32_decode
  import rv32_types::*;
(
    input  logic [31:0] word,
    output decoded_t    decoded
);
  logic [6:0] opcode, high;
  logic [2:0] funct;
  logic legal;
  logic [31:0] i, s, b, u, j;
  assign opcode = word[6:0];
  assign high = word[31:25];
  assign funct = word[14:12];
  assign i = {{20{word[31]}}, word[31:20]};
  assign s = {{20{word[31]}}, word[31:25], word[11:7]};
  assign b = {{20{word[31]}}, word[7], word[30:25], word[11:8], 1'b0};
  assign u = {word[31:12], 12'd0};
  assign j = {{12{word[31]}}, word[19:12], word[20], word[30:21], 1'b0};

  function automatic alu_t alu_of(input logic [2:0] which, input logic other);
    case (which)
      3'd0: return other ? SUB : ADD;
      3'd1: return SLL;
      3'd2: return SLT;
      3'd3: return SLTU;
      3'd4: return XOR;
      3'd5: return other ? SRA : SRL;
      3'd6: return OR;
      default: return AND;
    endcase
  endfunction

  logic writes;
  always_comb begin
    decoded = '0;
    decoded.alu = SECOND;
    decoded.second = IMMEDIATE;
    decoded.funct = funct;
    decoded.rd = word[11:7];
    decoded.rs1 = word[19:15];
    decoded.rs2 = word[24:20];
    decoded.immediate = i;
    decoded.cause = ILLEGAL;
    legal = 1'b0;
    writes = 1'b0;
    case (opcode)
      7'h37: begin  // lui
        legal = 1'b1;
        writes = 1'b1;
        decoded.immediate = u;
      end
      7'h17: begin  // auipc
        legal = 1'b1;
        writes = 1'b1;
        decoded.immediate = u;
        decoded.second = TARGET;
      end
      7'h6f: begin  // jal
        legal = 1'b1;
        writes = 1'b1;
        decoded.immediate = j;
        decoded.second = NEXT;
        decoded.jump = 1'b1;
      end
      7'h67: begin  // jalr
        legal = funct == 3'd0;
        writes = 1'b1;
        decoded.second = NEXT;
        decoded.jump_register = 1'b1;
        decoded.uses_1 = 1'b1;
      end
      7'h63: begin  // branches
        legal = funct[2:1] != 2'b01;
        decoded.immediate = b;
        decoded.second = REGISTER;
        decoded.alu = SUB;
        decoded.branch = 1'b1;
        decoded.uses_1 = 1'b1;
        decoded.uses_2 = 1'b1;
      end
      7'h03: begin  // loads
        legal = funct != 3'd3 && funct[2:1] != 2'b11;
        writes = 1'b1;
        decoded.load = 1'b1;
        decoded.uses_1 = 1'b1;
      end
      7'h23: begin  // stores
        legal = funct < 3'd3;
        decoded.immediate = s;
        decoded.second = REGISTER;
        decoded.store = 1'b1;
        decoded.uses_1 = 1'b1;
        decoded.uses_2 = 1'b1;
      end
      7'h13: begin  // with an immediate
        legal = funct[1:0] != 2'b01 || high == 7'h00 || (high == 7'h20 && funct[2]);
        writes = 1'b1;
        decoded.alu = alu_of(funct, funct == 3'd5 && word[30]);
        decoded.uses_1 = 1'b1;
      end
      7'h33: begin  // of two registers
        legal = high == 7'h00 || high == 7'h01 ||
                (high == 7'h20 && (funct == 3'd0 || funct == 3'd5));
        writes = 1'b1;
        decoded.second = REGISTER;
        decoded.alu = alu_of(funct, word[30]);
        decoded.multiply = word[25] && !funct[2];
        decoded.divide = word[25] && funct[2];
        decoded.uses_1 = 1'b1;
        decoded.uses_2 = 1'b1;
      end
      7'h0f: legal = funct == 3'd0;  // fence: each access is over before the next instruction
      7'h73: begin
        if (word[31:7] == 25'h0000000) decoded.cause = CALL;
        if (word[31:7] == 25'h0002000) decoded.cause = BREAKPOINT;
      end
      default: legal = 1'b0;
    endcase
    decoded.fault = !legal;
    decoded.writes = writes && decoded.rd != 5'd0;
  end
endmodule
