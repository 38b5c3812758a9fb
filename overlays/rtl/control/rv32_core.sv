// SPDX-License-Identifier: Apache-2.0
// The soft core: rv32imc, in order. Fetch, decode, execute, write back; docs/core.md has the cycles of
// each instruction. An instruction that cannot be done stops the core until its reset.
module rv32_core
  import rv32_types::*;
(
    input  logic                  clk,
    input  logic                  rst,
    // local memory, the instructions' side: a word a cycle later
    output logic                  fetch_read,
    output logic [LOCAL_BITS-3:0] fetch_word,
    input  logic [31:0]           fetch_data,
    // local memory, the data's side
    output logic                  local_reads,    // or writes
    output logic [3:0]            local_write,    // bytes
    output logic [LOCAL_BITS-3:0] local_word,
    output logic [31:0]           local_stored,
    input  logic [31:0]           local_data,
    // all other addresses; held until `bus_ready`
    output logic                  bus_valid,
    output logic [31:0]           bus_address,
    output logic [3:0]            bus_write,      // bytes; none: read
    output logic [31:0]           bus_stored,
    input  logic                  bus_ready,
    input  logic                  bus_error,
    input  logic [31:0]           bus_data,
    // why it has stopped
    output logic                  stopped,
    output cause_t                stopped_cause,
    output logic [31:0]           stopped_pc,
    // what is done, in order
    output logic                  retired,
    output logic [31:0]           retired_pc,
    output logic                  retired_writes,
    output logic [4:0]            retired_rd,
    output logic [31:0]           retired_value
);
  // --- decode --------------------------------------------------------------------------------------
  logic [31:0] pc, next_pc, instruction, expanded, target;
  logic fetched, long, take, redirect, jumps, leaves, waits;
  logic fresh;  // the first cycle behind a reset
  logic [31:0] redirect_pc;
  decoded_t d;
  rv32_fetch fetch (
      .clk(clk),
      .rst(rst),
      .redirect(redirect || fresh),
      .target(redirect_pc[LOCAL_BITS-1:0]),
      .memory_read(fetch_read),
      .memory_word(fetch_word),
      .memory_data(fetch_data),
      .upper(pc[1]),
      .take(take),
      .valid(fetched),
      .long(long),
      .instruction(instruction)
  );
  rv32_expand expand (
      .half(instruction[15:0]),
      .word(expanded)
  );
  rv32_decode decode (
      .word(long ? instruction : expanded),
      .decoded(d)
  );
  assign next_pc = pc + (long ? 32'd4 : 32'd2);
  assign target = pc + d.immediate;

  // Code lies in local memory alone.
  logic beyond;
  assign beyond = pc[31:LOCAL_BITS] != '0 || (long && pc[LOCAL_BITS-1:1] == '1);

  // --- registers; what is not yet there is taken on its way ------------------------------------------
  logic [31:0] registers[32];
  logic [31:0] first, second;
  logic m_valid, m_writes, m_load, m_local;
  logic [4:0] m_rd;
  logic [31:0] m_value, x_result;
  function automatic logic [31:0] read(
      input logic [4:0] which, input logic [31:0] stored, input logic x_has, input logic [4:0] x_at,
      input logic [31:0] x_value, input logic m_has, input logic [4:0] m_at, input logic [31:0] m_is);
    if (which == 5'd0) return 32'd0;
    if (x_has && which == x_at) return x_value;
    return m_has && which == m_at ? m_is : stored;
  endfunction
  always_ff @(posedge clk) if (m_writes) registers[m_rd] <= m_value;

  // --- execute ---------------------------------------------------------------------------------------
  typedef struct packed {
    decoded_t    what;
    logic [31:0] pc;
    logic [31:0] a;
    logic [31:0] b;
    logic [31:0] target;
  } execute_t;
  execute_t x;
  logic x_valid, x_done, faults, taken, product_done, quotient_done, accesses, misaligned, is_local;
  logic [31:0] sum, product, quotient, address;
  cause_t cause;
  assign first = read(d.rs1, registers[d.rs1], x_valid && x.what.writes, x.what.rd, x_result,
                      m_writes, m_rd, m_value);
  assign second = read(d.rs2, registers[d.rs2], x_valid && x.what.writes, x.what.rd, x_result,
                       m_writes, m_rd, m_value);
  rv32_alu alu (
      .operation(x.what.alu),
      .condition(x.what.funct),
      .a(x.a),
      .b(x.b),
      .result(sum),
      .taken(taken)
  );
  rv32_multiply multiply (
      .clk(clk),
      .rst(rst),
      .request(x_valid && x.what.multiply),
      .which(x.what.funct[1:0]),
      .a(x.a),
      .b(x.b),
      .done(product_done),
      .result(product)
  );
  rv32_divide divide (
      .clk(clk),
      .rst(rst),
      .request(x_valid && x.what.divide),
      .which(x.what.funct[1:0]),
      .a(x.a),
      .b(x.b),
      .done(quotient_done),
      .result(quotient)
  );
  assign x_result = x.what.multiply ? product : x.what.divide ? quotient : sum;

  assign address = x.a + {{20{x.what.immediate[11]}}, x.what.immediate[11:0]};
  assign accesses = x_valid && !x.what.fault && (x.what.load || x.what.store);
  assign misaligned = (x.what.funct[0] && address[0]) || (x.what.funct[1] && address[1:0] != 2'd0);
  assign is_local = address[31:LOCAL_BITS] == '0;
  assign local_reads = accesses && !misaligned && is_local;
  assign local_word = address[LOCAL_BITS-1:2];
  logic [3:0] bytes;
  always_comb begin
    case (x.what.funct[1:0])
      2'd0: begin
        bytes = 4'b0001 << address[1:0];
        local_stored = {4{x.b[7:0]}};
      end
      2'd1: begin
        bytes = 4'b0011 << address[1:0];
        local_stored = {2{x.b[15:0]}};
      end
      default: begin
        bytes = 4'b1111;
        local_stored = x.b;
      end
    endcase
    if (!x.what.store) bytes = 4'd0;
  end
  assign local_write = local_reads ? bytes : 4'd0;

  logic over;
  assign over = bus_valid && bus_ready;
  always_ff @(posedge clk) begin
    if (!bus_valid) begin
      bus_valid <= accesses && !misaligned && !is_local;
      bus_address <= address;
      bus_write <= bytes;
      bus_stored <= local_stored;
    end else if (bus_ready) bus_valid <= 1'b0;
    if (rst) bus_valid <= 1'b0;
  end

  always_comb begin
    x_done = 1'b1;
    if (x.what.multiply) x_done = product_done;
    if (x.what.divide) x_done = quotient_done;
    if (accesses && !misaligned && !is_local) x_done = over;
    if (x.what.fault || !x_valid) x_done = 1'b1;
    cause = x.what.cause;
    faults = x_valid && x.what.fault;
    if (accesses && misaligned) begin
      faults = 1'b1;
      cause = x.what.store ? STORE_ALIGN : LOAD_ALIGN;
    end else if (accesses && over && bus_error) begin
      faults = 1'b1;
      cause = x.what.store ? STORE_FAULT : LOAD_FAULT;
    end
  end

  // --- what goes on ----------------------------------------------------------------------------------
  assign leaves = x_valid && !x.what.fault && (x.what.jump_register || (x.what.branch && taken));
  assign waits = x_valid && x.what.load && x.what.writes &&
                 ((d.uses_1 && d.rs1 == x.what.rd) || (d.uses_2 && d.rs2 == x.what.rd));
  assign take = fetched && x_done && !waits && !leaves && !faults && !stopped && !fresh;
  assign jumps = take && d.jump && !beyond;
  assign redirect = leaves || jumps;
  always_comb begin
    redirect_pc = fresh ? 32'd0 : target;
    if (leaves) redirect_pc = x.what.jump_register ? {address[31:1], 1'b0} : x.target;
  end

  always_ff @(posedge clk) begin
    fresh <= rst;
    if (redirect || fresh) pc <= redirect_pc;
    else if (take) pc <= next_pc;
    if (x_done) x_valid <= take;
    if (x_done && take) begin
      x.what <= d;
      if (beyond) begin
        x.what.fault <= 1'b1;
        x.what.cause <= FETCH_FAULT;
      end
      x.pc <= pc;
      x.a <= first;
      x.target <= target;
      case (d.second)
        REGISTER: x.b <= second;
        IMMEDIATE: x.b <= d.immediate;
        TARGET: x.b <= target;
        default: x.b <= next_pc;
      endcase
    end
    if (faults && !stopped) begin
      stopped <= 1'b1;
      stopped_cause <= cause;
      stopped_pc <= x.pc;
    end
    if (rst) {x_valid, stopped} <= 2'b00;
  end

  // --- write back ------------------------------------------------------------------------------------
  logic [31:0] m_result, m_pc, m_loaded;
  logic [2:0] m_funct;
  logic [1:0] m_low;
  always_ff @(posedge clk) begin
    m_valid <= x_valid && x_done && !faults && !rst;
    m_writes <= x_valid && x_done && !faults && !rst && x.what.writes;
    m_rd <= x.what.rd;
    m_load <= x.what.load;
    m_local <= is_local;
    m_result <= x.what.load ? bus_data : x_result;
    m_funct <= x.what.funct;
    m_low <= address[1:0];
    m_pc <= x.pc;
  end
  always_comb begin
    m_loaded = (m_local ? local_data : m_result) >> {m_low, 3'd0};
    case (m_funct[1:0])
      2'd0: m_loaded = {{24{m_loaded[7] && !m_funct[2]}}, m_loaded[7:0]};
      2'd1: m_loaded = {{16{m_loaded[15] && !m_funct[2]}}, m_loaded[15:0]};
      default: m_loaded = m_loaded;
    endcase
    m_value = m_load ? m_loaded : m_result;
  end
  assign retired = m_valid;
  assign retired_pc = m_pc;
  assign retired_writes = m_writes;
  assign retired_rd = m_rd;
  assign retired_value = m_value;
endmodule
