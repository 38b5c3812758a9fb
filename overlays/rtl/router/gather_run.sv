// SPDX-License-Identifier: Apache-2.0
// How a gather goes, from its start to its result: checked, planned, run, ended by what a lane or a link says. It is checked
// and planned as soon as it is announced and the one before has ended well. Frames are counted in all and by port; what the
// firmware asks of a gather that is not over stays until the next one.
module gather_run
  import abi_types::*;
(
    input  logic             clk,
    input  logic             rst,
    // sequencer
    input  logic             unit_announce,
    input  logic             held,           // list and step are those of what was announced
    input  logic             unit_start,
    input  logic             unit_abort,
    output logic             unit_idle,
    output logic             result_valid,
    input  logic             result_ready,
    output logic [1:0]       result_state,
    output logic [7:0]       result_status,
    output logic [7:0]       result_port,
    output logic [2:0][31:0] result_frames,
    // unit
    input  logic             runs,           // of unit_port
    output logic             stops,
    output logic             takes,          // one cycle: what was announced becomes the command
    output logic             goes,           // one cycle: it has started
    output logic             empties,        // what was counted is of the gather before
    output logic             unseen,         // its plan is not of a gather that has started
    output logic             begins,         // one cycle: the command and its rows are there
    output logic             plans,          // one cycle
    output logic             active,
    output logic             idle,
    input  logic             nothing,        // no rows
    input  logic             checked,
    input  logic [7:0]       check_status,
    input  logic             planned,
    input  logic             complete,
    input  logic             sums_done,
    // lanes: lane i sends by port i, and receives by the other one
    input  logic             next_is_1,
    input  logic [1:0]       has_out,
    input  logic [1:0]       link_up,
    input  logic [1:0]       quiet,
    input  logic [1:0]       sent_all,
    input  logic [1:0]       failed,
    input  logic [1:0]       poisoned,
    input  logic [1:0]       sent,
    input  logic [1:0]       received,
    input  logic [1:0]       dropped,
    // by port
    output logic [1:0][31:0] port_sent,
    output logic [1:0][31:0] port_received
);
  typedef enum logic [2:0] {IDLE, BEGIN, CHECK, PLAN, READY, RUN, FAIL, RESULT} state_t;
  state_t state;
  logic [1:0] poison_ports, bad_ports, down_ports;
  logic ends_badly, starts, started, told, lost;  // lost: the one before has not ended well
  logic [31:0] idle_dropped;
  assign poison_ports = {poisoned[0], poisoned[1]};
  assign bad_ports = {failed[0], failed[1]};
  assign down_ports = has_out & ~link_up;
  assign ends_badly = (poison_ports | bad_ports | down_ports) != 2'b00;
  assign stops = unit_abort || (state == RUN && ends_badly);
  // both ports at once: the one to next is named
  function automatic logic [7:0] name(logic [1:0] ports, logic first);
    return ports[first] ? {7'd0, first} : {7'd0, !first};
  endfunction

  assign takes = state == IDLE && (starts || (told && held && runs && !lost));
  assign goes = starts;
  assign empties = takes || (state == IDLE && unit_start);
  assign begins = state == BEGIN;
  assign plans = state == CHECK && checked && check_status == 8'(LORA_OK) && !nothing;
  assign active = state == RUN && runs;
  assign idle = !started || state == RESULT;
  assign unit_idle = !started && runs && !starts;
  assign result_valid = state == RESULT;
  always_ff @(posedge clk) begin
    starts <= unit_start;
    told <= unit_announce || (told && !takes);
    if (takes) unseen <= !starts;
    if (idle) idle_dropped <= idle_dropped + 32'(dropped[0]) + 32'(dropped[1]);
    else begin
      result_frames[0] <= result_frames[0] + 32'(sent[0]) + 32'(sent[1]);
      result_frames[1] <= result_frames[1] + 32'(received[0]) + 32'(received[1]);
      result_frames[2] <= result_frames[2] + 32'(dropped[0]) + 32'(dropped[1]);
      for (int i = 0; i < 2; i++) begin
        port_sent[i] <= port_sent[i] + 32'(sent[i]);
        port_received[i] <= port_received[i] + 32'(received[1-i]);
      end
    end
    if (starts) begin
      {started, lost, unseen} <= 3'b100;
      result_frames <= {idle_dropped, 64'd0};
      idle_dropped <= 32'(dropped[0]) + 32'(dropped[1]);
      port_sent <= '0;
      port_received <= '0;
    end
    unique case (state)
      IDLE:
      if (takes) begin
        result_state <= 2'(LORA_UNIT_DONE);
        result_status <= 8'(LORA_OK);
        result_port <= 8'(LORA_NO_PORT);
        state <= BEGIN;
      end
      BEGIN: state <= CHECK;
      CHECK:
      if (checked) begin
        result_status <= check_status;
        if (check_status != 8'(LORA_OK)) result_state <= 2'(LORA_UNIT_FAILED);
        state <= plans ? PLAN : READY;
      end
      PLAN: if (planned) state <= started ? RUN : READY;
      READY: if (started) state <= result_status != 8'(LORA_OK) || nothing ? RESULT : RUN;
      RUN:
      if (ends_badly) begin
        result_state <= 2'(LORA_UNIT_FAILED);
        if (poison_ports != 2'b00) begin
          result_status <= 8'(LORA_ERR_LINK_POISON);
          result_port <= name(poison_ports, next_is_1);
        end else if (down_ports != 2'b00) begin
          result_status <= 8'(LORA_ERR_LINK_DOWN);
          result_port <= name(down_ports, next_is_1);
        end else begin
          result_status <= 8'(LORA_ERR_LINK_CRC);
          result_port <= name(bad_ports, next_is_1);
        end
        state <= FAIL;
      end else if (complete && &sent_all && &quiet && sums_done) state <= RESULT;
      FAIL: if (runs) state <= RESULT;  // nothing is left at the memory port
      default:
      if (result_ready) begin
        started <= 1'b0;
        lost <= result_state != 2'(LORA_UNIT_DONE);
        state <= IDLE;
      end
    endcase
    if (rst || unit_abort) begin
      state <= IDLE;
      {starts, started, told} <= 3'b000;
      lost <= !rst;
    end
    if (rst) {idle_dropped, unseen} <= '0;
  end
endmodule
