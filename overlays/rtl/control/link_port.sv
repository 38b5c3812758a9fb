// SPDX-License-Identifier: Apache-2.0
// What the control tells one link's kernel, in the link's clock, and how a link test ends. When the link is
// reset, as where its channel goes down, it is told the epoch again, and a test that was under way has failed.
module link_port
  import rv32_types::*;
(
    input  logic                  clk,
    input  logic                  rst,
    input  logic                  restart,      // no test is waited for
    input  logic [31:0]           epoch,
    input  logic [LOCAL_BITS-1:0] list,         // with `poison`
    input  logic [LOCAL_BITS-1:0] state,
    input  logic                  poison,       // one cycle
    input  logic [LOCAL_BITS-1:0] test,         // with `test_start`
    input  logic                  test_start,   // one cycle
    output logic                  testing,      // from the cycle behind it
    output logic                  test_failed,  // the last one, once it is over
    // the link's clock
    input  logic                  link_clk,
    input  logic                  link_rst,
    output logic [31:0]           link_epoch,
    output logic                  link_poison,  // one cycle, with list and state
    output logic [LOCAL_BITS-1:0] link_list,
    output logic [LOCAL_BITS-1:0] link_state,
    output logic                  link_test_start,  // one cycle, with its record
    output logic [LOCAL_BITS-1:0] link_test,
    input  logic                  link_test_done,   // one cycle
    input  logic                  link_test_failed
);
  logic stop, clear, link_stop, link_clear;
  reset_pair resets (
      .a_clk(clk),
      .a_rst(rst),
      .a_stop(stop),
      .a_clear(clear),
      .b_clk(link_clk),
      .b_rst(link_rst),
      .b_stop(link_stop),
      .b_clear(link_clear)
  );

  logic told, tells, epoch_comes;
  logic [31:0] last_epoch, new_epoch;
  always_ff @(posedge clk) begin
    if (tells) last_epoch <= epoch;
    told <= !stop && (told || tells);
  end
  word_cross #(
      .WIDTH(32)
  ) epochs (
      .from_clk(clk),
      .from_stop(stop),
      .from_clear(clear),
      .in_valid(!told || epoch != last_epoch),
      .in_ready(tells),
      .in_word(epoch),
      .to_clk(link_clk),
      .to_stop(link_stop),
      .to_clear(link_clear),
      .out_valid(epoch_comes),
      .out_ready(1'b1),
      .out_word(new_epoch)
  );
  always_ff @(posedge link_clk) if (epoch_comes) link_epoch <= new_epoch;

  logic poisons, poison_goes;
  always_ff @(posedge clk) poisons <= !rst && (poison || (poisons && !poison_goes));
  word_cross #(
      .WIDTH(2 * LOCAL_BITS)
  ) poison_of (
      .from_clk(clk),
      .from_stop(stop),
      .from_clear(clear),
      .in_valid(poisons),
      .in_ready(poison_goes),
      .in_word({list, state}),
      .to_clk(link_clk),
      .to_stop(link_stop),
      .to_clear(link_clear),
      .out_valid(link_poison),
      .out_ready(1'b1),
      .out_word({link_list, link_state})
  );

  logic asks, test_goes, done, failed, over;
  assign over = testing && (done || failed || (!asks && stop));
  always_ff @(posedge clk) begin
    asks <= !rst && !restart && (test_start || (asks && !test_goes));
    testing <= !rst && !restart && (test_start || (testing && !over));
    if (over) test_failed <= !done;
  end
  word_cross #(
      .WIDTH(LOCAL_BITS)
  ) test_of (
      .from_clk(clk),
      .from_stop(stop),
      .from_clear(clear),
      .in_valid(asks),
      .in_ready(test_goes),
      .in_word(test),
      .to_clk(link_clk),
      .to_stop(link_stop),
      .to_clear(link_clear),
      .out_valid(link_test_start),
      .out_ready(1'b1),
      .out_word(link_test)
  );

  // Ends wait for room; a link gives one a test.
  logic [1:0] ends, ends_go, ended;
  always_ff @(posedge link_clk)
    ends <= link_stop ? 2'd0 : {link_test_failed, link_test_done} | (ends & ~ends_go);
  for (genvar i = 0; i < 2; i++) begin : test_ends
    pulse_cross back (
        .from_clk(link_clk),
        .from_stop(link_stop),
        .from_clear(link_clear),
        .in_valid(ends[i]),
        .in_ready(ends_go[i]),
        .to_clk(clk),
        .to_stop(stop),
        .to_clear(clear),
        .out_pulse(ended[i])
    );
  end
  assign {failed, done} = ended;
endmodule
