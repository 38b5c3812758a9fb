// SPDX-License-Identifier: Apache-2.0
// Writes the control program from a ROM into local memory behind each reset, while `restart` holds the core:
// the program changes its data, so what it began with is not there any more. `crc` is the CRC-32 of what was
// written, as the image's header has it of its code.
module firmware_loader
  import rv32_types::*;
#(
    parameter int WORDS = 1
) (
    input  logic                  clk,
    input  logic                  rst,
    output logic [LOCAL_BITS-3:0] rom_word,
    input  logic [31:0]           rom_data,    // a cycle later
    output logic                  load_valid,
    input  logic                  load_ready,
    output logic [3:0]            load_write,
    output logic [LOCAL_BITS-3:0] load_word,
    output logic [31:0]           load_stored,
    output logic                  restart,
    output logic [31:0]           crc
);
  localparam logic [31:0] POLYNOMIAL = 32'hedb88320;
  typedef enum logic [1:0] {READ, WAIT, WRITE, DONE} state_t;
  state_t state;
  logic [LOCAL_BITS-3:0] word;
  logic [31:0] sum;

  function automatic logic [31:0] next_sum(input logic [31:0] last, input logic [31:0] data);
    logic [31:0] now;
    now = last ^ data;
    for (int i = 0; i < 32; i++) now = (now >> 1) ^ (now[0] ? POLYNOMIAL : 32'd0);
    return now;
  endfunction

  assign rom_word = word;
  assign load_valid = state == WRITE;
  assign load_write = 4'hf;
  assign load_word = word;
  assign crc = ~sum;
  always_ff @(posedge clk) begin
    case (state)
      READ: state <= WAIT;
      WAIT: begin
        load_stored <= rom_data;
        state <= WRITE;
      end
      WRITE:
      if (load_ready) begin
        sum <= next_sum(sum, load_stored);
        word <= word + 1'b1;
        state <= word == (LOCAL_BITS - 2)'(WORDS - 1) ? DONE : READ;
      end
      default: ;
    endcase
    restart <= state != DONE;
    if (rst) begin
      word <= '0;
      sum <= '1;
      state <= READ;
      restart <= 1'b1;
    end
  end
endmodule
