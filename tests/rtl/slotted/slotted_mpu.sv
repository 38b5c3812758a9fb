// SPDX-License-Identifier: Apache-2.0
// The MPU before an arbiter. A test plays sequencer, step and memory.
module slotted_mpu #(
    parameter int LANES = 8,
    parameter int ROWS  = 1,
    parameter int AHEAD = 1,
    parameter int CHANNELS = 0,
    parameter int BANKS = CHANNELS > 0 ? CHANNELS : 1
) (
    input  logic          clk,
    input  logic          rst,
    // sequencer
    input  logic          unit_announce,
    input  logic [511:0]  unit_line,
    input  logic [6:0]    unit_rows,
    input  logic          unit_start,
    input  logic          unit_abort,
    output logic          unit_idle,
    output logic          result_valid,
    input  logic          result_ready,
    output logic [1:0]    result_state,
    output logic [7:0]    result_status,
    output logic [31:0]   result_nonfinite_count,
    output logic [31:0]   result_nonfinite_row,        
    // struct lora_list, as REGISTER accepts it; held while a command is told or runs
    input  logic [31:0]   list_onchip_bytes,
    input  logic [15:0]   list_kv_type,
    input  logic [15:0]   list_kv_layers,
    input  logic [15:0]   list_kv_heads,
    input  logic [15:0]   list_head_dim,
    input  logic [5:0]    list_kv_bank_first,
    input  logic [5:0]    list_kv_bank_count,
    input  logic [31:0]   list_kv_line,
    input  logic [16:0]   list_kv_spill_page,
    input  logic [5:0]    list_kv_spill_bank_first,
    input  logic [5:0]    list_kv_spill_bank_count,
    input  logic [31:0]   list_kv_spill_line,
    input  logic [5:0]    list_table_bank,
    input  logic [31:0]   list_table_line,
    input  logic [31:0]   list_max_tiles,
    input  logic [10:0]   list_adapter_slots,
    input  logic [20:0]   list_adapter_chunks,
    input  logic [15:0]   list_adapter_matrices,
    input  logic [24:0]   list_adapter_columns,
    input  logic [31:0]   list_adapter_line,
    input  logic [5:0]    list_adapter_bank_first,
    input  logic [5:0]    list_adapter_bank_count,
    // rows of the step, held too
    output logic [5:0]    row,                            // of the command; in the next cycle:
    output logic          row_selected,                   // it counts among the selected rows
    input  logic [5:0]    row_number,                     // in the step
    input  logic [31:0]   row_sequence,                   // struct lora_row
    input  logic [31:0]   row_slot,
    input  logic [31:0]   row_committed,                  // of its sequence
    input  logic [31:0]   row_adapter,                    // negative: none
    output logic [6:0]    slot,                           // in the next cycle:
    input  logic [15:0]   slot_parent,                    // struct lora_slot
    // memory
    output logic          read_valid,
    input  logic          read_ready,
    output logic [5:0]    read_bank,
    output logic [31:0]   read_line,
    output logic [18:0]   read_tag,
    input  logic          line_valid,
    input  logic [18:0]   line_tag,
    input  logic [511:0]  line_data,
    input  logic          line_refused,
    input  logic          line_error,
    output logic          write_valid,
    input  logic          write_ready,
    output logic [5:0]    write_bank,
    output logic [31:0]   write_line,
    output logic [63:0]   write_bytes,
    output logic [511:0]  write_data,
    output logic [4:0]    write_id,
    input  logic          written,
    input  logic [4:0]    written_id,
    input  logic          written_refused,
    input  logic          written_error,
    // banks of the channels
    output logic [BANKS-1:0] bank_read_valid,
    input  logic [BANKS-1:0] bank_read_ready,
    output logic [31:0]   bank_read_line[BANKS],
    input  logic [BANKS-1:0] bank_line_valid,
    input  logic [511:0]  bank_line_data[BANKS],
    input  logic [BANKS-1:0] bank_line_refused,
    input  logic [BANKS-1:0] bank_line_error,
    output logic          offer_changed   // of the MPU, before it was taken
);
  // the second of the arbiter's units; the other one asks for nothing
  logic asks, writes;
  logic [1:0] asked, lines, refused, failed, taken, opens, writes_refused, writes_failed;
  logic [5:0] from_bank, to_bank;
  logic [31:0] from_line, to_line;
  logic [17:0] from_tag, got_tag;
  logic [63:0] to_bytes;
  logic [511:0] to_data, got, no_lines[1];
  assign no_lines[0] = '0;
  logic no_kv_read, no_kv_ready;
  logic [31:0] no_kv_line[1];
  logic [5:0] no_kv_bank[1];
  logic [12:0] no_kv_tag[1], no_tags[1];
  assign no_tags[0] = '0;
  mpu_unit #(
      .LANES(LANES), .ROWS(ROWS), .TILES(64), .AHEAD(AHEAD), .CHANNELS(CHANNELS)
  ) mpu (
      .*, .read_valid(asks), .read_ready(asked[1]), .read_bank(from_bank), .read_line(from_line),
      .read_tag(from_tag), .line_valid(lines[1]), .line_tag(got_tag), .line_data(got), .line_refused(refused[1]),
      .line_error(failed[1]), .write_valid(writes), .write_ready(taken[1]), .write_bank(to_bank),
      .write_line(to_line), .write_bytes(to_bytes), .write_data(to_data), .write_refused(writes_refused[1]),
      .write_error(writes_failed[1]), .write_open(opens[1]), .kv_read_valid(no_kv_read), .kv_read_ready(1'b0), .kv_read_bank(no_kv_bank),
      .kv_read_line(no_kv_line), .kv_read_tag(no_kv_tag), .kv_line_valid(1'b0), .kv_line_ready(no_kv_ready),
      .kv_line_tag(no_tags), .kv_line_data(no_lines), .kv_line_refused(1'b0), .kv_line_error(1'b0)
  );
  logic read_waits, write_waits;
  logic [55:0] read_offer, read_offered;
  logic [613:0] write_offer, write_offered;
  assign read_offer = {from_bank, from_line, from_tag};
  assign write_offer = {to_bank, to_line, to_bytes, to_data};
  always_ff @(posedge clk) begin
    read_offered <= read_offer;
    write_offered <= write_offer;
    read_waits <= asks && !asked[1];
    write_waits <= writes && !taken[1];
    if ((read_waits && !(asks && read_offer == read_offered)) ||
        (write_waits && !(writes && write_offer == write_offered)))
      offer_changed <= 1'b1;
    if (rst) {read_waits, write_waits, offer_changed} <= 3'b000;
  end
  port_arbiter #(
      .UNITS(2), .TAG_BITS(18)
  ) arbiter (
      .*, .unit_read_valid({asks, 1'b0}), .unit_read_ready(asked), .unit_read_bank({from_bank, 6'd0}),
      .unit_read_line({from_line, 32'd0}), .unit_read_tag({from_tag, 18'd0}), .unit_line_valid(lines),
      .unit_line_tag(got_tag), .unit_line_data(got), .unit_line_refused(refused), .unit_line_error(failed),
      .unit_write_valid({writes, 1'b0}), .unit_write_ready(taken), .unit_write_bank({to_bank, 6'd0}),
      .unit_write_line({to_line, 32'd0}), .unit_write_bytes({to_bytes, 64'd0}),
      .unit_write_data({to_data, 512'd0}), .unit_write_open(opens), .unit_write_refused(writes_refused),
      .unit_write_error(writes_failed)
  );
endmodule
