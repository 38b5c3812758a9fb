// SPDX-License-Identifier: Apache-2.0
// What the modules of the soft core hand each other.
package rv32_types;
  parameter int LOCAL_BITS = 17;  // address bits of local memory: 128 KiB from address 0

  // SECOND: the second operand as it is.
  typedef enum logic [3:0] {ADD, SUB, SLT, SLTU, XOR, OR, AND, SLL, SRL, SRA, SECOND} alu_t;
  // Where the second operand comes from. TARGET: pc and immediate. NEXT: the next instruction's address.
  typedef enum logic [1:0] {REGISTER, IMMEDIATE, TARGET, NEXT} second_t;
  // Why the core has stopped: mcause of the privileged specification.
  typedef enum logic [3:0] {
    FETCH_FAULT    = 4'd1,
    ILLEGAL        = 4'd2,
    BREAKPOINT     = 4'd3,
    LOAD_ALIGN     = 4'd4,
    LOAD_FAULT     = 4'd5,
    STORE_ALIGN    = 4'd6,
    STORE_FAULT    = 4'd7,
    CALL           = 4'd11
  } cause_t;

  typedef struct packed {
    alu_t        alu;
    second_t     second;
    logic        branch;
    logic        jump;            // jal
    logic        jump_register;   // jalr
    logic        load;
    logic        store;
    logic        multiply;
    logic        divide;
    logic [2:0]  funct;           // which branch, size of a load or store, which product
    logic        fault;
    cause_t      cause;
    logic        writes;          // a register other than x0
    logic [4:0]  rd;
    logic        uses_1;
    logic        uses_2;
    logic [4:0]  rs1;
    logic [4:0]  rs2;
    logic [31:0] immediate;
  } decoded_t;
endpackage
