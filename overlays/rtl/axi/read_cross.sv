// SPDX-License-Identifier: Apache-2.0
// Readers of lines across several ports, one a bank, as line_ports knows them: each reader may have a line a cycle from any
// port, in any order; each port takes a line a cycle from any reader and gives its lines in order. A line of no port is
// answered as failed. Lines cross in two stages: PER ports, as far from each other as can be, have a register that takes
// one of their lines a cycle, and readers choose among these.
module read_cross #(
    parameter int                  READERS     = 4,
    parameter int                  PORTS       = 2,
    parameter int                  PER         = 2,   // ports that share a register, of which PORTS are a multiple
    parameter int                  TAG_BITS    = 13,
    parameter int                  DEPTH_BITS  = 6,   // of lines of a port under way
    parameter logic [42*PORTS-1:0] FIRST_LINES = '0,  // of line_ports
    parameter logic [6*PORTS-1:0]  SPAN_BITS   = '0
) (
    input  logic                clk,
    input  logic                rst,
    input  logic [READERS-1:0]  read_valid,
    output logic [READERS-1:0]  read_ready,
    input  logic [41:0]         read_line[READERS],
    input  logic [TAG_BITS-1:0] read_tag[READERS],
    output logic [READERS-1:0]  line_valid,
    input  logic [READERS-1:0]  line_ready,
    output logic [TAG_BITS-1:0] line_tag[READERS],
    output logic [READERS-1:0]  line_error,
    output logic [511:0]        line_data[READERS],
    // ports
    output logic [PORTS-1:0]    port_valid,
    input  logic [PORTS-1:0]    port_ready,
    output logic [41:0]         port_line[PORTS],
    input  logic [PORTS-1:0]    port_line_valid,
    output logic [PORTS-1:0]    port_line_ready,
    input  logic [PORTS-1:0]    port_line_error,
    input  logic [511:0]        port_line_data[PORTS]
);
  localparam int LOG = $clog2(READERS), GROUPS = PORTS / PER, CHOICES = GROUPS + 1, CHOICE_BITS = $clog2(CHOICES);
  localparam int GROUP_BITS = GROUPS > 1 ? $clog2(GROUPS) : 1;
  typedef logic [READERS-1:0] readers_t;
  typedef logic [PORTS-1:0] ports_t;
  typedef logic [GROUPS-1:0] groups_t;

  readers_t waits;                  // a read of each
  ports_t leads[READERS];
  logic [41:0] its_line[READERS];
  logic [TAG_BITS-1:0] its_tag[READERS];
  readers_t port_takes[PORTS];      // whose read goes to the port
  logic [LOG-1:0] owner[PORTS];     // of the line that the port gives now
  logic [TAG_BITS-1:0] tag[PORTS];
  groups_t waiting, group_error;    // a line of each
  logic [LOG-1:0] group_owner[GROUPS];
  logic [GROUPS-1:0][TAG_BITS-1:0] group_tag;
  logic [GROUPS-1:0][511:0] group_data;
  groups_t reader_takes[READERS];

  for (genvar p = 0; p < PORTS; p++) begin : ports
    readers_t asks;
    logic [LOG-1:0] whose;
    logic has_room, takes;
    logic [LOG+TAG_BITS-1:0] kept[1 << DEPTH_BITS];
    logic [DEPTH_BITS:0] put, got;
    unit_turns #(
        .UNITS(READERS)
    ) turns (
        .clk(clk),
        .rst(rst),
        .asks(asks),
        .ready(takes),
        .unit(whose)
    );
    assign has_room = put - got != {1'b1, DEPTH_BITS'(0)};
    assign port_valid[p] = asks != '0 && has_room;
    assign takes = port_valid[p] && port_ready[p];
    assign port_line[p] = its_line[whose];
    assign {owner[p], tag[p]} = kept[got[DEPTH_BITS-1:0]];
    always_comb begin
      for (int r = 0; r < READERS; r++) asks[r] = waits[r] && leads[r][p];
      port_takes[p] = '0;
      port_takes[p][whose] = takes;
    end
    always_ff @(posedge clk) begin
      if (takes) kept[put[DEPTH_BITS-1:0]] <= {whose, its_tag[whose]};
      put <= put + (DEPTH_BITS + 1)'(takes);
      got <= got + (DEPTH_BITS + 1)'(port_line_valid[p] && port_line_ready[p]);
      if (rst) {put, got} <= '0;
    end
  end

  // ports g, g + GROUPS, ..
  for (genvar g = 0; g < GROUPS; g++) begin : groups
    logic [PER-1:0] valid, ready;
    logic any, taken;
    logic [PER > 1 ? $clog2(PER)-1 : 0:0] choice;
    logic [PER-1:0][LOG+TAG_BITS+512:0] lines_of;
    for (genvar k = 0; k < PER; k++) begin : members
      assign valid[k] = port_line_valid[g+k*GROUPS];
      assign port_line_ready[g+k*GROUPS] = ready[k];
      assign lines_of[k] = {owner[g+k*GROUPS], tag[g+k*GROUPS], port_line_error[g+k*GROUPS], port_line_data[g+k*GROUPS]};
    end
    if (PER > 1) begin : several
      port_choice #(
          .PORTS(PER)
      ) lines (
          .clk(clk),
          .rst(rst),
          .hold(waiting[g] && !taken),
          .valid(valid),
          .ready(ready),
          .any(any),
          .port(choice)
      );
    end else begin : one
      assign any = valid[0] && (!waiting[g] || taken);
      assign ready = any;
      assign choice = 1'b0;
    end
    always_comb begin
      taken = 1'b0;
      for (int r = 0; r < READERS; r++) if (reader_takes[r][g]) taken = 1'b1;
    end
    always_ff @(posedge clk) begin
      if (taken) waiting[g] <= 1'b0;
      if (any) begin
        waiting[g] <= 1'b1;
        {group_owner[g], group_tag[g], group_error[g], group_data[g]} <= lines_of[choice];
      end
      if (rst) waiting[g] <= 1'b0;
    end
  end

  for (genvar r = 0; r < READERS; r++) begin : readers
    ports_t at;
    groups_t here;
    logic lost, lost_taken, moves, any;
    logic [CHOICE_BITS-1:0] choice;
    logic [GROUP_BITS-1:0] group;
    assign group = choice[GROUP_BITS-1:0];
    for (genvar p = 0; p < PORTS; p++) begin : banks
      localparam int SPAN = int'(SPAN_BITS[6*p+:6]);
      localparam logic [41:0] FIRST = FIRST_LINES[42*p+:42];
      assign at[p] = read_line[r][41:SPAN] == FIRST[41:SPAN];
    end
    for (genvar g = 0; g < GROUPS; g++) begin : of_groups
      assign here[g] = waiting[g] && group_owner[g] == LOG'(r);
    end
    assign lost = waits[r] && leads[r] == '0;
    always_comb begin
      moves = lost_taken;
      for (int p = 0; p < PORTS; p++) if (port_takes[p][r]) moves = 1'b1;
    end
    assign read_ready[r] = !waits[r] || moves;
    port_choice #(
        .PORTS(CHOICES)
    ) lines (
        .clk(clk),
        .rst(rst),
        .hold(line_valid[r] && !line_ready[r]),
        .valid({lost, here}),
        .ready({lost_taken, reader_takes[r]}),
        .any(any),
        .port(choice)
    );
    always_ff @(posedge clk) begin
      if (moves) waits[r] <= 1'b0;
      if (read_valid[r] && read_ready[r]) begin
        waits[r] <= 1'b1;
        leads[r] <= at;
        its_line[r] <= read_line[r];
        its_tag[r] <= read_tag[r];
      end
      if (line_ready[r]) line_valid[r] <= 1'b0;
      if (any) begin
        line_valid[r] <= 1'b1;
        line_tag[r] <= lost_taken ? its_tag[r] : group_tag[group];
        line_error[r] <= lost_taken || group_error[group];
        line_data[r] <= group_data[group];
      end
      if (rst) {waits[r], line_valid[r]} <= 2'b00;
    end
  end

`ifndef SYNTHESIS
  if (PER < 1 || PORTS % PER != 0) begin : wrong_groups
    $error("PER: 1 and more, of which PORTS are a multiple");
  end
`endif
endmodule
