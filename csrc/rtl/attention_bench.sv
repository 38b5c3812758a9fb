// SPDX-License-Identifier: Apache-2.0
// An attention unit, or UNITS of them whose ports take turns at one, for csrc/rtl.
module attention_bench
  import attention_types::*;
#(
    parameter int UNITS = 1,
    parameter int FLOATS = 1,
    parameter int BANKS = 6  // below which pages are read by a unit's own port
) (
    input  logic         clk,
    input  logic         rst,
    input  logic         abort_valid,
    input  logic         command_valid,
    output logic         command_ready,
    input  logic [1:0]   kind,
    input  logic [8:0]   head_dim,
    input  logic [6:0]   rows,
    input  logic [15:0]  q_heads,
    input  logic [15:0]  q_first,
    input  logic [15:0]  kv_first,
    input  logic [15:0]  group,
    input  logic [5:0]   onchip_bank,
    input  logic [31:0]  q_offset,
    input  logic [31:0]  q_stride,
    input  logic [31:0]  y_offset,
    input  logic [31:0]  y_stride,
    input  logic [31:0]  scale,
    input  logic [31:0]  v_scale,
    input  logic [31:0]  cap,
    input  logic [31:0]  window,
    input  logic [1:0]   slope_kind,
    input  logic [5:0]   slope_bank,
    input  logic [31:0]  slope_line,
    input  logic [15:0]  kv_layers,
    input  logic [15:0]  kv_heads,
    input  logic [15:0]  kv_layer,
    input  logic [5:0]   kv_bank_first,
    input  logic [5:0]   kv_bank_count,
    input  logic [31:0]  kv_line,
    input  logic [16:0]  spill_page,
    input  logic [5:0]   spill_bank_first,
    input  logic [5:0]   spill_bank_count,
    input  logic [31:0]  spill_line,
    input  logic [5:0]   table_bank,
    input  logic [31:0]  table_line,
    input  logic [16:0]  max_tiles,
    output logic [6:0]   row,
    input  logic [15:0]  row_sequence,
    input  logic [17:0]  row_committed,
    input  logic [6:0]   row_slot,
    output logic [6:0]   slot,
    input  logic         slot_is_last,
    input  logic [6:0]   slot_parent,
    output logic         done,
    output logic [31:0]  nonfinite_count,
    output logic [31:0]  nonfinite_row,
    output logic         read_valid,
    input  logic         read_ready,
    output logic [5:0]   read_bank,
    output logic [31:0]  read_line,
    output logic [19:0]    read_tag,
    input  logic         line_valid,
    input  logic [19:0]    line_tag,
    input  logic [511:0] line_data,
    output logic         write_valid,
    input  logic         write_ready,
    output logic [5:0]   write_bank,
    output logic [31:0]  write_line,
    output logic [63:0]  write_bytes,
    output logic [511:0] write_data,
    output logic [4:0]   state           // of the first unit
);
  if (UNITS == 1) begin : one
    line_tag_t tag;
    assign read_tag = {5'd0, tag};
    attention its_unit (
        .clk(clk), .rst(rst), .abort_valid(abort_valid), .command_valid(command_valid), .command_ready(command_ready),
        .kind(kind), .head_dim(head_dim), .rows(rows), .q_heads(q_heads), .q_first(q_first), .kv_first(kv_first),
        .group(group), .onchip_bank(onchip_bank), .q_offset(q_offset), .q_stride(q_stride), .y_offset(y_offset),
        .y_stride(y_stride), .scale(scale), .v_scale(v_scale), .cap(cap), .window(window), .slope_kind(slope_kind),
        .slope_bank(slope_bank), .slope_line(slope_line), .kv_layers(kv_layers), .kv_heads(kv_heads),
        .kv_layer(kv_layer), .kv_bank_first(kv_bank_first), .kv_bank_count(kv_bank_count), .kv_line(kv_line),
        .spill_page(spill_page), .spill_bank_first(spill_bank_first), .spill_bank_count(spill_bank_count),
        .spill_line(spill_line), .table_bank(table_bank), .table_line(table_line), .max_tiles(max_tiles), .row(row),
        .row_sequence(row_sequence), .row_committed(row_committed), .row_slot(row_slot), .slot(slot),
        .slot_is_last(slot_is_last), .slot_parent(slot_parent), .done(done), .nonfinite_count(nonfinite_count),
        .nonfinite_row(nonfinite_row), .line_data(line_data), .write_valid(write_valid), .write_ready(write_ready),
        .write_bank(write_bank), .write_line(write_line), .write_bytes(write_bytes), .write_data(write_data),
        .unit(3'd0), .last_unit(3'd0), .looks(), .turn(1'b1), .read_kv(), .read_valid(read_valid),
        .read_ready(read_ready), .read_bank(read_bank), .read_line(read_line), .read_tag(tag), .line_valid(line_valid),
        .line_tag(line_tag[14:0])
    );
    assign state = its_unit.state;
  end else begin : several
    localparam int LOG = $clog2(UNITS + 1);
    logic [UNITS:0] reads, taken, lines;
    logic [UNITS:0][5:0] banks;
    logic [UNITS:0][31:0] places;
    logic [UNITS:0][15:0] tags;
    logic [LOG+15:0] tag;
    logic [5:0] kv_bank[UNITS];
    logic [31:0] kv_place[UNITS];
    short_tag_t kv_tag[UNITS], kv_line_tag[UNITS];
    logic [511:0] kv_data[UNITS];
    logic [UNITS-1:0] kv_ready;
    assign read_tag = 20'(tag);
    for (genvar u = 0; u < UNITS; u++) begin : ports
      assign {banks[u], places[u], tags[u]} = {kv_bank[u], kv_place[u], 3'd0, kv_tag[u]};
      assign {kv_line_tag[u], kv_data[u]} = {line_tag[12:0], line_data};
    end
    shared_port #(
        .UNITS(UNITS + 1), .TAG_BITS(16)
    ) port (
        .clk(clk), .rst(rst), .unit_read_valid(reads), .unit_read_ready(taken), .unit_read_bank(banks),
        .unit_read_line(places), .unit_read_tag(tags), .unit_line_valid(lines), .unit_line_refused(),
        .unit_line_error(), .unit_write_valid('0), .unit_write_ready(), .unit_write_bank('0), .unit_write_line('0),
        .unit_write_bytes('0), .unit_write_data('0), .read_valid(read_valid), .read_ready(read_ready),
        .read_bank(read_bank), .read_line(read_line), .read_tag(tag), .line_valid(line_valid), .line_refused(1'b0),
        .line_error(1'b0), .line_unit(line_tag[16+:LOG]), .write_valid(), .write_ready(1'b0), .write_bank(),
        .write_line(), .write_bytes(), .write_data()
    );
    attention_units #(
        .UNITS(UNITS), .FLOATS(FLOATS), .BANKS(BANKS)
    ) all (
        .clk(clk), .rst(rst), .abort_valid(abort_valid), .command_valid(command_valid), .command_ready(command_ready),
        .kind(kind), .head_dim(head_dim), .rows(rows), .q_heads(q_heads), .q_first(q_first), .kv_first(kv_first),
        .group(group), .onchip_bank(onchip_bank), .q_offset(q_offset), .q_stride(q_stride), .y_offset(y_offset),
        .y_stride(y_stride), .scale(scale), .v_scale(v_scale), .cap(cap), .window(window), .slope_kind(slope_kind),
        .slope_bank(slope_bank), .slope_line(slope_line), .kv_layers(kv_layers), .kv_heads(kv_heads),
        .kv_layer(kv_layer), .kv_bank_first(kv_bank_first), .kv_bank_count(kv_bank_count), .kv_line(kv_line),
        .spill_page(spill_page), .spill_bank_first(spill_bank_first), .spill_bank_count(spill_bank_count),
        .spill_line(spill_line), .table_bank(table_bank), .table_line(table_line), .max_tiles(max_tiles), .row(row),
        .row_sequence(row_sequence), .row_committed(row_committed), .row_slot(row_slot), .slot(slot),
        .slot_is_last(slot_is_last), .slot_parent(slot_parent), .done(done), .nonfinite_count(nonfinite_count),
        .nonfinite_row(nonfinite_row), .line_data(line_data), .write_valid(write_valid), .write_ready(write_ready),
        .write_bank(write_bank), .write_line(write_line), .write_bytes(write_bytes), .write_data(write_data),
        .read_valid(reads[UNITS]), .read_ready(taken[UNITS]), .read_bank(banks[UNITS]), .read_line(places[UNITS]),
        .read_tag(tags[UNITS]), .line_valid(lines[UNITS]), .line_tag(line_tag[15:0]),
        .kv_read_valid(reads[UNITS-1:0]), .kv_read_ready(taken[UNITS-1:0]), .kv_read_bank(kv_bank),
        .kv_read_line(kv_place), .kv_read_tag(kv_tag), .kv_line_valid(lines[UNITS-1:0]), .kv_line_ready(kv_ready),
        .kv_line_tag(kv_line_tag), .kv_line_data(kv_data)
    );
    always_ff @(posedge clk)
      if (!rst) assert ((lines[UNITS-1:0] & ~kv_ready) == '0) else $fatal(1, "a line that nobody takes");
    assign state = all.units[0].its_unit.state;
  end
endmodule
