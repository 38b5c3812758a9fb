# The modules of a card (overlays/rtl/card/card.sv), packages first. RTL: the folder of the hardware source.
CARD_PACKAGES := $(addprefix $(RTL)/,control/abi_types.sv control/rv32_types.sv control/sequencer_types.sv \
                   port/arena_types.sv router/router_types.sv dma/dma_types.sv fp/float_types.sv vfu/vfu_types.sv \
                   vfu/vfu_program.sv vfu/pipe_types.sv mpu/mpu_types.sv channel/channel_types.sv adapter/adapter_types.sv attention/attention_types.sv \
                   card/card_types.sv)
CARD_CONTROL := $(addprefix $(RTL)/control/,rv32_expand.sv rv32_fetch.sv rv32_decode.sv rv32_alu.sv rv32_multiply.sv \
              rv32_divide.sv rv32_core.sv local_memory.sv soft_core.sv control_registers.sv unit_mailboxes.sv \
              arena_table.sv memory_window.sv control_core.sv list_seal.sv list_fetch.sv command_window.sv \
              command_decode.sv counter_file.sv unit_scan.sv unit_slot.sv run_records.sv stalled_unit.sv \
              sequencer.sv run_registers.sv control.sv)
CARD_ROUTER := $(addprefix $(RTL)/router/,frame_buffer.sv frame_receiver.sv frame_sender.sv frame_maker.sv frame_age.sv \
              part_walk.sv line_reads.sv piece_sum.sv lane_plan.sv lane_pieces.sv lane_ports.sv pattern_words.sv \
              link_test.sv router_lane.sv router_lanes.sv gather_check.sv gather_plan.sv gather_counts.sv \
              gather_sum.sv gather_run.sv router.sv)
CARD_PORTS := $(addprefix $(RTL)/port/,unit_port.sv divide.sv row_range.sv unit_run.sv port_arbiter.sv range_table.sv \
              line_address.sv arena_port.sv)
CARD_DMA := $(addprefix $(RTL)/dma/,page_walk.sv copy_walk.sv line_mover.sv memory_fetch.sv move_rows.sv range_sum.sv \
              kv_heads.sv kv_store.sv kv_commit.sv dma.sv)
# of a card with channels
CARD_CHANNELS := $(addprefix $(RTL)/channel/,line_buffer.sv x_rows.sv channel_work.sv channel_fetch.sv channel_schedule.sv \
              channel_passes.sv channel_row.sv channel.sv channel_block.sv channel_finish.sv channel_group.sv group_block.sv \
              channel_params.sv channel_queue.sv channel_writes.sv channel_matmul.sv) \
              $(RTL)/mpu/integer_arrays.sv $(RTL)/card/bank_ports.sv
CARD_MPU := $(addprefix $(RTL)/fp/,leading_zeros_29.sv sum_add.sv sum_to_float.sv) \
              $(addprefix $(RTL)/mpu/,block_walk.sv result_store.sv unit_fetch.sv fp16_schedule.sv fp16_operand.sv \
              fp16_product.sv fp16_lane.sv fp16_lanes.sv w4_weight.sv w4_unpack.sv mpu_fp16.sv integer_fetch.sv \
              integer_schedule.sv integer_pair.sv integer_lanes.sv group_product.sv w4_segments.sv w4_passes.sv \
              integer_round.sv integer_finish.sv mpu_int8.sv matmul_slot.sv told_commands.sv unit_turns.sv shared_port.sv mpu_unit.sv) \
              $(addprefix $(RTL)/adapter/,slot_reader.sv factor_fetch.sv h_ranks.sv factor_sums.sv tile_update.sv \
              adapter.sv) \
              $(if $(filter-out 0,$(CHANNELS)),$(CARD_CHANNELS)) $(addprefix $(RTL)/attention/,delay_line.sv kv_place.sv kv_weight.sv kv_block.sv slot_lane.sv integer_sums.sv \
              kv_lanes.sv kv_sums.sv kv_join.sv score_cap.sv \
    attention_scores.sv weight_pipe.sv attention_weights.sv attention_results.sv head_walk.sv attention.sv attention_units.sv attention_slot.sv)
CARD_VECTOR := $(addprefix $(RTL)/fp/,float_add.sv float_multiply.sv float_divide.sv float_quotient.sv normal_quotient.sv normal_multiply.sv horner_step.sv square_sum.sv int_to_float.sv) \
              $(addprefix $(RTL)/vfu/,vfu_operation.sv vfu_addresses.sv vfu_streams.sv vfu_fold.sv vfu_result.sv \
              vector_lane.sv gelu_table.sv vector_core.sv vfu.sv pipe_delay.sv pipe_silu.sv pipe_column.sv \
              pipe_factor.sv pipe_lines.sv pipe_maximum.sv pipe_sums.sv vector_pipes.sv vector_unit.sv vector_operands.sv vector_slot.sv \
              vector_part.sv)
CARD_SOURCES := $(CARD_PACKAGES) $(CARD_CONTROL) $(CARD_PORTS) $(CARD_DMA) $(CARD_VECTOR) $(CARD_MPU) $(CARD_ROUTER) \
                  $(addprefix $(RTL)/card/,step_feed.sv mail_commands.sv card_memory.sv card.sv)
