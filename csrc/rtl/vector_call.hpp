/* What the vector unit asks of a LORA_CMD_VECTOR. */
#ifndef LORA_RTL_VECTOR_CALL_HPP
#define LORA_RTL_VECTOR_CALL_HPP

#include "lora/abi.h"
#include "lora/kernels.h"

/* Rows of bytes in a bank. */
struct RowsAt {
    uint32_t bank, offset, stride;
    uint64_t bytes;   /* of a row */
    uint32_t element; /* bytes */
};

const lora_vector *vector_of(const lora_unit_call *call);
/* Where x and y lie: of some operations in one place. */
RowsAt x_of(const lora_unit_call *call);
RowsAt y_of(const lora_unit_call *call);
/* Columns of a head; of operations without heads all. */
uint32_t head_columns(const lora_unit_call *call);
/* How many of z's values are folded, and where a row's first result lies in z, in results. */
uint32_t folded_count(const lora_unit_call *call);
uint32_t first_record(const lora_unit_call *call);
/* A command as docs/numbers.md means it: sizes fit each other, rows lie within their banks, and no
 * row is written where another one is still to be read. The native kernels name what is wrong. */
bool vector_unit_can(const lora_unit_call *call);

#endif
