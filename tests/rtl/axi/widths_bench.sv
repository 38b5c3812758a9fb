// SPDX-License-Identifier: Apache-2.0
// Wide words become halves and whole words again; the halves can be seen and held back.
module widths_bench (
    input  logic         clk,
    input  logic         rst,
    input  logic         in_valid,
    output logic         in_ready,
    input  logic [511:0] in_data,
    input  logic [63:0]  in_keep,
    input  logic         in_last,
    input  logic         pass,
    output logic         half_valid,
    output logic         half_ready,
    output logic [255:0] half_data,
    output logic [31:0]  half_keep,
    output logic         half_last,
    output logic         out_valid,
    input  logic         out_ready,
    output logic [511:0] out_data,
    output logic [63:0]  out_keep,
    output logic         out_last
);
  logic ready;
  assign half_ready = ready && pass;
  stream_narrow narrow (
      .out_valid(half_valid),
      .out_ready(half_ready),
      .out_data(half_data),
      .out_keep(half_keep),
      .out_last(half_last),
      .*
  );
  stream_widen widen (
      .in_valid(half_valid && pass),
      .in_ready(ready),
      .in_data(half_data),
      .in_keep(half_keep),
      .in_last(half_last),
      .*
  );
endmodule
