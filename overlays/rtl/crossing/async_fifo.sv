// SPDX-License-Identifier: Apache-2.0
// Words into another clock, as many at a time as the memory has. Pointers count one bit further than the
// memory and cross in Gray code, from flops: one bit changes a cycle, so what is seen is the pointer or the
// one before. A place is read once its pointer is here, and written again once the other is back.
// Resets as reset_pair has them.
`ifndef LORA_FLAT  // constraints find it by its name; open synthesis joins modules
(* keep_hierarchy = "yes" *)
`endif
module async_fifo #(
    parameter int WIDTH      = 32,
    parameter int DEPTH_BITS = 4
) (
    input  logic             from_clk,
    input  logic             from_stop,
    input  logic             from_clear,
    input  logic             in_valid,
    output logic             in_ready,
    input  logic [WIDTH-1:0] in_word,
    input  logic             to_clk,
    input  logic             to_stop,
    input  logic             to_clear,
    output logic             out_valid,
    input  logic             out_ready,
    output logic [WIDTH-1:0] out_word
);
  typedef logic [DEPTH_BITS:0] pointer_t;
  pointer_t written, written_gray, sees_written, next_written;
  pointer_t read, read_gray, sees_read, next_read;
  for (genvar i = 0; i <= DEPTH_BITS; i++) begin : pointers
    bit_sync there (
        .clk(to_clk),
        .d(written_gray[i]),
        .q(sees_written[i])
    );
    bit_sync back (
        .clk(from_clk),
        .d(read_gray[i]),
        .q(sees_read[i])
    );
  end
  (* ram_style = "distributed" *) logic [WIDTH-1:0] words[1<<DEPTH_BITS];

  // Full: all but the two highest bits of the other pointer's code are equal.
  logic write;
  assign in_ready = !from_stop && written_gray != (sees_read ^ {2'b11, (DEPTH_BITS - 1)'(0)});
  assign write = in_valid && in_ready;
  assign next_written = from_clear ? '0 : written + pointer_t'(write);
  always_ff @(posedge from_clk) begin
    if (write) words[written[DEPTH_BITS-1:0]] <= in_word;
    written <= next_written;
    written_gray <= next_written ^ (next_written >> 1);
  end

  logic full, take;
  assign take = !to_stop && sees_written != read_gray && (!full || out_ready);
  assign next_read = to_clear ? '0 : read + pointer_t'(take);
  assign out_valid = full && !to_stop;
  always_ff @(posedge to_clk) begin
`ifdef LORA_METASTABLE
    if (take)
      out_word <= crossing_model::crossing_age(ids[read[DEPTH_BITS-1:0]]) != 0 ?
          words[read[DEPTH_BITS-1:0]] : ~words[read[DEPTH_BITS-1:0]];
`else
    if (take) out_word <= words[read[DEPTH_BITS-1:0]];
`endif
    full <= take || (full && !out_ready && !to_stop);
    read <= next_read;
    read_gray <= next_read ^ (next_read >> 1);
  end

`ifdef LORA_METASTABLE
  // a place that was written just now has any bits
  int ids[1<<DEPTH_BITS];
  initial for (int i = 0; i < 1 << DEPTH_BITS; i++) ids[i] = crossing_model::crossing_new();
  always_ff @(posedge from_clk)
    if (write) crossing_model::crossing_written(ids[written[DEPTH_BITS-1:0]]);
`endif
endmodule
