// SPDX-License-Identifier: Apache-2.0
// Commands that the MPU was told and that have not started, AHEAD at most, in order: each goes to the slot that runs it when
// that one has room. Attention has room for one that did not start; matmuls have room unless one waits for its checks.
// A start is of the oldest, behind its announce and the result before. Reset, abort: `clear` forgets them all.
module told_commands
  import abi_types::*;
#(
    parameter int AHEAD = 1
) (
    input  logic         clk,
    input  logic         clear,
    input  logic         announce,
    input  logic [511:0] line,
    input  logic [6:0]   rows,
    input  logic         start,
    // slots
    /* verilator lint_off UNUSEDSIGNAL */  // where AHEAD is 1
    input  logic         room_for_matmul,
    input  logic         room_for_attention,
    /* verilator lint_on UNUSEDSIGNAL */
    output logic         tell_matmul,
    output logic         tell_attention,
    output logic [511:0] told_line,
    output logic [6:0]   told_rows,
    output logic         attends,         // the oldest that did not start is attention
    output logic         empty            // all have gone to their slots
);
  localparam int COUNT = $clog2(AHEAD + 1), PLACE = AHEAD > 1 ? $clog2(AHEAD) : 1;
  typedef logic [COUNT-1:0] count_t;
  typedef logic [PLACE-1:0] place_t;
  logic for_attention;
  logic [AHEAD-1:0] kinds;  // of those that did not start, the oldest first
  count_t unstarted;
  assign for_attention = line[7:0] == 8'(LORA_CMD_ATTENTION);
  assign attends = kinds[0];
  always_ff @(posedge clk) begin
    unstarted <= unstarted + count_t'(announce) - count_t'(start);
    for (int i = 0; i < AHEAD; i++) begin
      if (start && i + 1 < AHEAD) kinds[i] <= kinds[(i+1)%AHEAD];
      if (announce && unstarted - count_t'(start) == count_t'(i)) kinds[i] <= for_attention;
    end
    if (clear) unstarted <= '0;
  end

  if (AHEAD == 1) begin : at_once
    assign tell_attention = announce && for_attention;
    assign tell_matmul = announce && !for_attention;
    assign {told_line, told_rows} = {line, rows};
    assign empty = 1'b1;
  end else begin : in_order
    logic [518:0] lines[2**PLACE];
    place_t put, get;
    count_t waiting;
    logic here, told_attention, tells, waits;
    assign empty = waiting == '0;
    assign here = announce || !empty;
    assign {told_line, told_rows} = empty ? {line, rows} : lines[get];
    assign told_attention = told_line[7:0] == 8'(LORA_CMD_ATTENTION);
    assign tell_attention = here && told_attention && room_for_attention;
    assign tell_matmul = here && !told_attention && room_for_matmul;
    assign tells = tell_attention || tell_matmul;
    assign waits = announce && !(empty && tells);
    always_ff @(posedge clk) begin
      if (waits) begin
        lines[put] <= {line, rows};
        put <= put + 1'b1;
      end
      if (tells && !empty) get <= get + 1'b1;
      waiting <= waiting + count_t'(waits) - count_t'(tells && !empty);
      if (clear) begin
        put <= '0;
        get <= '0;
        waiting <= '0;
      end
    end
  end

`ifndef SYNTHESIS
  always_ff @(posedge clk) if (!clear) begin
    assert (!announce || int'(unstarted) < AHEAD) else $fatal(1, "more commands than the MPU has room for");
    assert (!start || unstarted != '0) else $fatal(1, "the MPU starts what it was not told");
  end
`endif
endmodule
