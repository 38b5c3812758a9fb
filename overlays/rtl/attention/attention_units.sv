// SPDX-License-Identifier: Apache-2.0
// Several attention units as one: all are told the command, and its KV heads go to them round-robin (head_walk). Each reads
// lines of pages in banks below BANKS by a port of its own; all else (q, slopes, the page table, pages in other banks, results)
// goes by the port that they share. The command is done when all of them are. Not all units have everything: FP16 K and V
// and INT8 by head are the first FLOATS units', caps and slopes the first one's.
module attention_units
  import attention_types::*;
#(
    parameter int UNITS = 4,     // 2, 4 or 8
    parameter int FLOATS = 2,    // 1, 2, 4 or 8
    parameter int TILES = 4096,  // of attention
    parameter int BANKS = 4
) (
    input  logic         clk,
    input  logic         rst,
    // as attention has them
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
    // the shared port
    output logic         read_valid,
    input  logic         read_ready,
    output logic [5:0]   read_bank,
    output logic [31:0]  read_line,
    output logic [15:0]  read_tag,
    input  logic         line_valid,
    input  logic [15:0]  line_tag,
    input  logic [511:0] line_data,
    output logic         write_valid,
    input  logic         write_ready,
    output logic [5:0]   write_bank,
    output logic [31:0]  write_line,
    output logic [63:0]  write_bytes,
    output logic [511:0] write_data,
    // a port of each unit; lines come in any order
    output logic [UNITS-1:0] kv_read_valid,
    input  logic [UNITS-1:0] kv_read_ready,
    output logic [5:0]   kv_read_bank[UNITS],
    output logic [31:0]  kv_read_line[UNITS],
    output short_tag_t   kv_read_tag[UNITS],
    input  logic [UNITS-1:0] kv_line_valid,
    output logic [UNITS-1:0] kv_line_ready,
    input  short_tag_t   kv_line_tag[UNITS],
    input  logic [511:0] kv_line_data[UNITS]
);
  localparam int LOG = $clog2(UNITS);
  typedef logic [UNITS-1:0] units_t;

  // --- the command: of those units that have what it needs, or of none -------------------------------
  units_t ready, waits, ends, told;
  logic runs, starts, plain;
  logic [2:0] last_unit;
  assign plain = slope_kind == SLOPE_NONE && cap[30:0] == 31'd0;
  assign last_unit = !plain ? 3'd0 : kind == KV_INT8 ? 3'(UNITS - 1) : 3'(FLOATS - 1);
  assign told = ~(~units_t'(1) << last_unit);
  assign command_ready = &ready && !runs;
  assign starts = command_valid && command_ready;
  always_ff @(posedge clk) begin
    done <= 1'b0;
    waits <= waits & ~ends;
    if (runs && (waits & ~ends) == '0) {runs, done} <= 2'b01;
    if (starts) {runs, waits} <= {1'b1, told};
    if (rst || abort_valid) {runs, done} <= 2'b00;
  end
  logic [UNITS-1:0][31:0] counts, first_rows;
  always_comb begin
    nonfinite_count = '0;
    nonfinite_row = '1;
    for (int u = 0; u < UNITS; u++) begin
      if (told[u]) nonfinite_count += counts[u];
      if (told[u] && first_rows[u] < nonfinite_row) nonfinite_row = first_rows[u];
    end
  end

  // --- rows and slots of the step: a unit looks at its row and path, then the next one ---------------
  units_t looks;
  logic [LOG-1:0] looker;
  logic [UNITS-1:0][6:0] unit_rows, unit_slots;
  assign {row, slot} = {unit_rows[looker], unit_slots[looker]};
  always_ff @(posedge clk) begin
    if (!looks[looker]) for (int u = UNITS - 1; u >= 0; u--) if (looks[u]) looker <= LOG'(u);
    if (rst) looker <= '0;
  end

  // --- the shared port -------------------------------------------------------------------------------
  units_t reads, read_taken, shared_reads, shared_taken, shared_line, writes, write_taken;
  logic [UNITS-1:0][5:0] read_banks, write_banks;
  logic [UNITS-1:0][31:0] read_lines, write_lines;
  logic [UNITS-1:0][12:0] read_tags;
  logic [UNITS-1:0][63:0] bytes_written;
  logic [UNITS-1:0][511:0] data_written;
  logic [LOG+12:0] shared_tag;
  assign read_tag = 16'(shared_tag);
  shared_port #(
      .UNITS(UNITS), .TAG_BITS(13)
  ) shared (
      .clk(clk), .rst(rst), .unit_read_valid(shared_reads), .unit_read_ready(shared_taken), .unit_read_bank(read_banks),
      .unit_read_line(read_lines), .unit_read_tag(read_tags), .unit_line_valid(shared_line),
      // verilator lint_off PINCONNECTEMPTY
      .unit_line_refused(), .unit_line_error(),
      // verilator lint_on PINCONNECTEMPTY
      .unit_write_valid(writes), .unit_write_ready(write_taken), .unit_write_bank(write_banks),
      .unit_write_line(write_lines), .unit_write_bytes(bytes_written), .unit_write_data(data_written),
      .read_valid(read_valid), .read_ready(read_ready), .read_bank(read_bank), .read_line(read_line),
      .read_tag(shared_tag), .line_valid(line_valid), .line_refused(1'b0), .line_error(1'b0),
      .line_unit(line_tag[13+:LOG]), .write_valid(write_valid), .write_ready(write_ready), .write_bank(write_bank),
      .write_line(write_line), .write_bytes(write_bytes), .write_data(write_data)
  );

  // --- units -----------------------------------------------------------------------------------------
  for (genvar u = 0; u < UNITS; u++) begin : units
    logic of_page, to_bank;
    line_tag_t tag;
    assign to_bank = of_page && {26'd0, read_banks[u]} < BANKS;
    assign kv_read_valid[u] = reads[u] && to_bank;
    assign kv_read_bank[u] = read_banks[u];
    assign kv_read_line[u] = read_lines[u];
    assign kv_read_tag[u] = read_tags[u];
    assign read_tags[u] = shortened(tag);
    assign shared_reads[u] = reads[u] && !to_bank;
    assign read_taken[u] = to_bank ? kv_read_ready[u] : shared_taken[u];
    assign kv_line_ready[u] = !shared_line[u];
    attention #(
        .TILES(TILES), .FLOATS(u < FLOATS ? 1 : 0), .CAPS(u == 0 ? 1 : 0)
    ) its_unit (
        .clk(clk), .rst(rst), .unit(3'(u)), .last_unit(last_unit), .abort_valid(abort_valid),
        .command_valid(starts && told[u]), .command_ready(ready[u]),
        .kind(kind), .head_dim(head_dim), .rows(rows), .q_heads(q_heads),
        .q_first(q_first), .kv_first(kv_first), .group(group), .onchip_bank(onchip_bank),
        .q_offset(q_offset), .q_stride(q_stride),
        .y_offset(y_offset), .y_stride(y_stride), .scale(scale), .v_scale(v_scale), .cap(cap),
        .window(window), .slope_kind(slope_kind), .slope_bank(slope_bank), .slope_line(slope_line),
        .kv_layers(kv_layers), .kv_heads(kv_heads), .kv_layer(kv_layer), .kv_bank_first(kv_bank_first),
        .kv_bank_count(kv_bank_count), .kv_line(kv_line), .spill_page(spill_page),
        .spill_bank_first(spill_bank_first), .spill_bank_count(spill_bank_count), .spill_line(spill_line),
        .table_bank(table_bank), .table_line(table_line), .max_tiles(max_tiles), .looks(looks[u]),
        .turn(looks[u] && looker == LOG'(u)), .row(unit_rows[u]), .row_sequence(row_sequence),
        .row_committed(row_committed), .row_slot(row_slot), .slot(unit_slots[u]), .slot_is_last(slot_is_last),
        .slot_parent(slot_parent), .done(ends[u]), .nonfinite_count(counts[u]), .nonfinite_row(first_rows[u]),
        .read_valid(reads[u]), .read_ready(read_taken[u]), .read_kv(of_page), .read_bank(read_banks[u]),
        .read_line(read_lines[u]), .read_tag(tag), .line_valid(shared_line[u] || kv_line_valid[u]),
        .line_tag(lengthened(shared_line[u] ? line_tag[12:0] : kv_line_tag[u])),
        .line_data(shared_line[u] ? line_data : kv_line_data[u]), .write_valid(writes[u]),
        .write_ready(write_taken[u]), .write_bank(write_banks[u]), .write_line(write_lines[u]),
        .write_bytes(bytes_written[u]), .write_data(data_written[u])
    );
  end

`ifndef SYNTHESIS
  if (UNITS != 2 && UNITS != 4 && UNITS != 8) begin : wrong_units
    $error("UNITS: 2, 4 or 8");
  end
  if ((FLOATS & (FLOATS - 1)) != 0 || FLOATS < 1 || FLOATS > UNITS) begin : wrong_floats
    $error("FLOATS: 1, 2, 4 or 8, at most UNITS");
  end
  for (genvar u = 0; u < UNITS; u++) begin : checks
    logic waits_for_turn;
    logic [50:0] asked;
    logic [15:0] under_way;
    always_ff @(posedge clk) begin
      waits_for_turn <= kv_read_valid[u] && !kv_read_ready[u] && !rst;
      asked <= {kv_read_bank[u], kv_read_line[u], kv_read_tag[u]};
      under_way <= rst ? '0 : under_way + 16'(kv_read_valid[u] && kv_read_ready[u]) -
                   16'(kv_line_valid[u] && kv_line_ready[u]);
      if (!rst) begin
        assert (!waits_for_turn || {kv_read_valid[u], kv_read_bank[u], kv_read_line[u], kv_read_tag[u]} == {1'b1, asked})
        else $fatal(1, "a read changes before it is taken");
        assert (!kv_line_valid[u] || under_way != '0) else $fatal(1, "a line that was not asked for");
        assert (!ends[u] || waits[u] || abort_valid) else $fatal(1, "an end of a unit that was told no command");
      end
    end
  end
`endif
endmodule
