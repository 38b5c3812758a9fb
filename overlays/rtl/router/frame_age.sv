// SPDX-License-Identifier: Apache-2.0
// Whether a frame is of an earlier gather, or of a later one. Numbers of epochs and steps go round.
module frame_age
  import abi_types::*;
  import router_types::*;
(
    input  frame_t  head,
    input  gather_t gather,
    output logic    is_old,
    output logic    is_future
);
  logic [31:0] epochs, steps;
  logic [16:0] collectives;
  assign epochs = head.epoch - gather.epoch;
  assign steps = head.step - gather.step;
  assign collectives = {1'b0, head.collective} - {1'b0, gather.collective};
  always_comb begin
    if (epochs != '0) {is_old, is_future} = {epochs[31], !epochs[31]};
    else if (steps != '0)
      {is_old, is_future} = {steps[31] && head.kind != 8'(LORA_FRAME_POISON), !steps[31]};
    else
      {is_old, is_future} = {collectives[16], !collectives[16] && collectives != '0} &
          {2{head.kind == 8'(LORA_FRAME_DATA)}};
    if (head.kind == 8'(LORA_FRAME_TEST)) {is_old, is_future} = 2'b10;
  end
endmodule
