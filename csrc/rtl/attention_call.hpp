/* What the attention unit asks of a LORA_CMD_ATTENTION. */
#ifndef LORA_RTL_ATTENTION_CALL_HPP
#define LORA_RTL_ATTENTION_CALL_HPP

#include "lora/abi.h"
#include "lora/kernels.h"

const lora_attention *attention_of(const lora_unit_call *call);
/* A command as docs/numbers.md means it, of sizes that the unit has: heads of up to 256 columns, up
 * to 131,072 positions, y apart from q. The native kernels name what is wrong. */
bool attention_unit_can(const lora_unit_call *call);

#endif
