// SPDX-License-Identifier: Apache-2.0
// What the sequencer needs of a command in this run. Rows and waits are those of fw_command_rows and
// fw_missing_counter.
module command_decode
  import abi_types::*;
  import sequencer_types::*;
(
    input  logic [511:0] line,
    input  index_t       index,
    input  logic [6:0]   rows,
    input  logic [6:0]   selected,
    input  logic         moves_kv,    // the step's header has KV operations
    input  logic         dry,         // units finish at once
    output command_t     command
);
  command_record_t record;
  attention_record_t attention;
  logic [15:0] flags;
  logic [6:0] its_rows;
  logic [GROUP_BITS-1:0] groups, times;

  assign record = line;
  assign attention = line;
  assign flags = record.flags;
  function automatic logic has(input logic [15:0] all, input logic [31:0] flag);
    return (all & flag[15:0]) != 16'd0;
  endfunction

  always_comb begin
    its_rows = has(flags, LORA_FLAG_SELECTED | LORA_FLAG_PACK) ? selected : rows;
    if (has(flags, LORA_FLAG_VOTES)) its_rows = {6'd0, rows != 7'd0};
  end
  assign groups = row_groups(its_rows);
  assign times  = has(flags, LORA_FLAG_WAIT_GROUPS) ? groups : GROUP_BITS'(1);
  always_comb begin
    command.index = index;
    command.opcode = record.opcode;
    command.rows = its_rows;
    command.groups = groups;
    command.empty = dry || (record.opcode == 8'(LORA_CMD_KV_COMMIT) ? !moves_kv : its_rows == 7'd0);
    command.wait_any = record.wait_counter != 16'(LORA_NO_COUNTER);
    command.wait_wide = has(flags, LORA_FLAG_WAIT_SEGMENTS);
    command.wait_counter = record.wait_counter[12:0];
    command.wait_value = (times[0] ? value_t'(record.wait_value) : '0) +
                         (times[1] ? value_t'({record.wait_value, 1'b0}) : '0) +
                         (times[2] ? value_t'({record.wait_value, 2'b0}) : '0);
    command.signal_any = record.signal_counter != 16'(LORA_NO_COUNTER);
    command.signal_wide = has(flags, LORA_FLAG_SIGNAL_SEGMENTS);
    command.signal_counter = record.signal_counter[12:0];
    command.signal_by = has(flags, LORA_FLAG_SIGNAL_HEADS) ? attention.q_heads : 16'd1;
  end
endmodule
