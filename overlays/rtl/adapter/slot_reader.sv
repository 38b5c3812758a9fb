// SPDX-License-Identifier: Apache-2.0
// Reads runs of lines: of the on-chip bank, or of a row's adapter slot, whose chunks of 128 lines go round the
// banks as abi.h says. A chunk's place takes a division, a cycle a bit; one is kept for each segment.
module slot_reader
  import adapter_types::*;
(
    input  logic        clk,
    input  logic        rst,
    input  slots_t      slots,
    input  logic [9:0]  slot,
    input  logic        forget,  // one cycle: another slot comes
    input  logic        run_valid,
    output logic        run_ready,
    input  run_t        run,
    output logic        bad,  // one cycle: the run leaves the slot, its rest is not read
    output logic        read_valid,
    input  logic        read_ready,
    output logic [5:0]  read_bank,
    output logic [31:0] read_line,
    output logic [15:0] read_tag
);
  localparam logic [5:0] ONCHIP = 6'd63;
  localparam int REQUEST_BITS = 31;
  typedef enum logic [2:0] {IDLE, LOOK, NUMBER, DIVIDE, PLACE, SEND} state_t;
  typedef struct packed {
    logic [20:0] chunk;
    logic [5:0]  bank;
    logic [31:0] line;
  } place_t;

  state_t state;
  run_t now;
  place_t kept[8], found, made;
  logic [7:0] is_kept;
  logic [2:0] index;
  logic [23:0] chunk;
  logic [REQUEST_BITS-1:0] request, quotient;
  logic [5:0] rest, bank;
  logic [6:0] brought, left;
  logic [4:0] bit_now;
  logic [31:0] base;
  logic sent, fits;
  assign index = now.where[7:5];
  assign chunk = now.line[30:7];
  assign found = kept[index];
  assign made = '{
      chunk: chunk[20:0], bank: slots.bank_first + rest, line: slots.line + {quotient[24:0], 7'd0}};
  assign brought = {rest, request[REQUEST_BITS-1]};
  assign fits = brought >= {1'b0, slots.bank_count};
  assign left = brought - {1'b0, slots.bank_count};

  assign run_ready = state == IDLE;
  assign bad = state == LOOK && now.in_slot && chunk >= {3'd0, slots.chunks};
  assign read_valid = state == SEND;
  assign read_bank = bank;
  assign read_line = base + {25'd0, now.line[6:0]};
  assign read_tag = tag_of(now.kind, now.where);
  assign sent = read_valid && read_ready;

  always_ff @(posedge clk) begin
    unique case (state)
      IDLE:
      if (run_valid) begin
        now <= run;
        state <= LOOK;
      end
      LOOK: begin
        bank <= found.bank;
        base <= found.line;
        if (!now.in_slot) begin
          bank <= ONCHIP;
          base <= {1'b0, now.line[30:7], 7'd0};
          state <= SEND;
        end else if (bad) state <= IDLE;
        else state <= is_kept[index] && found.chunk == chunk[20:0] ? SEND : NUMBER;
      end
      NUMBER: begin
        request <= {21'd0, slot} * {10'd0, slots.chunks} + {10'd0, chunk[20:0]};
        rest <= 6'd0;
        bit_now <= 5'(REQUEST_BITS - 1);
        state <= DIVIDE;
      end
      DIVIDE: begin
        request <= {request[REQUEST_BITS-2:0], 1'b0};
        quotient <= {quotient[REQUEST_BITS-2:0], fits};
        rest <= fits ? left[5:0] : brought[5:0];
        bit_now <= bit_now - 5'd1;
        if (bit_now == 5'd0) state <= PLACE;
      end
      PLACE: begin
        kept[index] <= made;
        is_kept[index] <= 1'b1;
        state <= LOOK;
      end
      default:
      if (sent) begin
        now.line <= now.line + 31'd1;
        now.where <= now.where + 9'd1;
        now.count <= now.count - 6'd1;
        if (now.count == 6'd1) state <= IDLE;
        else if (now.line[6:0] == 7'd127) state <= LOOK;
      end
    endcase
    if (forget) is_kept <= 8'd0;
    if (rst) begin
      state <= IDLE;
      is_kept <= 8'd0;
    end
  end
endmodule
