// SPDX-License-Identifier: Apache-2.0
// Words into another clock, one at a time. `held` does not change from the request, a level, until the other
// side's copy of it comes back; when the request is seen the word has stood for more than a cycle.
// Resets as reset_pair has them.
`ifndef LORA_FLAT  // constraints find it by its name; open synthesis joins modules
(* keep_hierarchy = "yes" *)
`endif
module word_cross #(
    parameter int WIDTH = 32
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
  logic [WIDTH-1:0] held, taken;
  logic request, copy, sees_request, sees_copy, full, take;
  bit_sync there (
      .clk(to_clk),
      .d(request),
      .q(sees_request)
  );
  bit_sync back (
      .clk(from_clk),
      .d(copy),
      .q(sees_copy)
  );
  assign in_ready = !from_stop && sees_copy == request;
  always_ff @(posedge from_clk) begin
    if (in_valid && in_ready) begin
      held <= in_word;
      request <= !request;
    end
    if (from_clear) request <= 1'b0;
  end

  assign take = !to_stop && sees_request != copy && (!full || out_ready);
  assign out_valid = full && !to_stop;
  assign out_word = taken;
  always_ff @(posedge to_clk) begin
    if (take) begin
`ifdef LORA_METASTABLE
      for (int part = 0; part < PARTS; part++)
        taken_bits[64*part+:64] <= crossing_model::crossing_take(ids[part], noted[part]);
`else
      taken <= held;
`endif
      copy <= sees_request;
    end
    full <= take || (full && !out_ready && !to_stop);
    if (to_clear) copy <= 1'b0;
  end

`ifdef LORA_METASTABLE
  localparam int PARTS = (WIDTH + 63) / 64;
  int ids[PARTS], noted[PARTS];
  logic [64*PARTS-1:0] held_bits, taken_bits;
  assign held_bits = (64 * PARTS)'(held);
  assign taken = WIDTH'(taken_bits);
  initial for (int part = 0; part < PARTS; part++) ids[part] = crossing_model::crossing_new();
  for (genvar part = 0; part < PARTS; part++) begin : look
    always_comb noted[part] = crossing_model::crossing_note(ids[part], held_bits[64*part+:64]);
  end
`endif
endmodule
