/* The contract between host, firmware, units and Python. The only definition of every number and
 * structure that crosses the card's edge. Kept to what cffi parses without a preprocessor: plain
 * #define NAME NUMBER, enums, fixed-width structs. Little endian, natural alignment, no padding
 * that is not named. Every structure that is written to board memory starts with its size in
 * bytes. */
#ifndef LORA_ABI_H
#define LORA_ABI_H

#include <stdint.h>

#define LORA_ABI_NUMBER 5

/* --- arithmetic constants (docs/numbers.md, 2.1) ---------------------------------------------- */
#define LORA_UNIT_COLUMNS 32 /* K is cut into units of 32 columns */
#define LORA_SEGMENTS 8      /* segment s = units floor(s*B/8) .. floor((s+1)*B/8)-1 */
#define LORA_TILE_POSITIONS 32
#define LORA_CHUNK_POSITIONS 4096 /* of attention, summed apart: docs/numbers.md, 3.8 */
#define LORA_FP16_NAN 0x7e00
#define LORA_FP32_NAN 0x7fc00000

/* --- weight blocks ----------------------------------------------------------------------------
 * A matrix [K][N] is cut into blocks of 128 (K) x 32 (N), numbered K fastest: block
 * j = column_tile * ceil(K/128) + k_block. Request r = j / merge. Within a group of bank_count
 * banks starting at bank_first:
 *   bank = bank_first + (first + r) mod bank_count,
 *   line = weight_line + ((first + r) / bank_count * merge + j mod merge) * (block bytes / 64).
 * Inside an FP16 block the element (k, n) is at index k*32 + n, inside an INT8 block at byte
 * k/4*128 + n*4 + k%4. A 4-bit block with groups of g = 32, 64 or 128 along K holds, in this order:
 *   values: byte k/8*128 + n*4 + k%4, low four bits where k%8 < 4, else the high ones;
 *   FP16 scales [128/g][32];
 *   zero points, four bits each, [128/g][32], the even column low, padded to a line.
 * A block of LORA_WEIGHT_GGUF holds, in this order, without gaps and in whole lines:
 *   values, element (k, n): Q8_0 INT8, at byte k*32 + n. All others, of which v + offset is stored
 *     (Q4_0 8, Q5_0 16, Q6_K and K_MIXED 32): the low four bits at byte k/2*32 + n, low half
 *     where k is even; then Q5_0, Q5_1, Q5_K the fifth bit at byte k/8*32 + n, bit k%8; Q6_K,
 *     K_MIXED the upper two at byte k/4*32 + n, from bit 2*(k%4) on;
 *   Q8_0, Q4_0, IQ4_NL, Q5_0, Q4_1, Q5_1: FP16 d[4][32], by groups of 32;
 *   MXFP4: bytes e[4][32], by groups of 32, each 104 to 143: v*2^(e - 128);
 *   Q4_1, Q5_1: FP16 m[4][32] behind;
 *   Q4_K, Q5_K: bytes [4][32], the low four bits of a scale, of a minimum those above; bytes
 *     [2][32] with their upper two: scale and minimum of group 2i from bits 0 and 2 on, of group
 *     2i + 1 from bits 4 and 6 on; then FP16 d[32] where the block's number along K is even, and
 *     dmin[32] where it is odd: both are those of two blocks;
 *   Q6_K, K_MIXED: FP16 d[32], INT8 scales [8][32], by groups of 16; K_MIXED: FP16 dmin[32] and
 *     bytes [8][32] with the minima of the same groups behind.
 * So one request brings weights and what belongs to them. Rows k >= K and columns n >= N are zero
 * and are not read. */
#define LORA_BLOCK_K 128
#define LORA_BLOCK_N 32
#define LORA_BLOCK_BYTES_FP16 8192
#define LORA_BLOCK_BYTES_INT8 4096
#define LORA_BLOCK_BYTES_INT4 2048     /* of the values alone */
#define LORA_BLOCK_BYTES_INT4_128 2176 /* 34 lines: values, 64 B scales, 16 B zero points */
#define LORA_BLOCK_BYTES_INT4_64 2240
#define LORA_BLOCK_BYTES_INT4_32 2368
#define LORA_BLOCK_BYTES_Q8_0 4352
#define LORA_BLOCK_BYTES_Q5_0 2816
#define LORA_BLOCK_BYTES_Q4_1 2560
#define LORA_BLOCK_BYTES_Q5_1 3072
#define LORA_BLOCK_BYTES_Q4_K 2304
#define LORA_BLOCK_BYTES_Q5_K 2816
#define LORA_BLOCK_BYTES_Q6_K 3392
#define LORA_BLOCK_BYTES_K_MIXED 3712
#define LORA_BLOCK_BYTES_Q4_0 2304
#define LORA_BLOCK_BYTES_IQ4_NL 2304
#define LORA_BLOCK_BYTES_MXFP4 2176
#define LORA_LINE_BYTES 64 /* board addresses count lines of 64 bytes within a bank */

/* --- limits of this ABI (a manifest may set less, never more) --------------------------------- */
#define LORA_MAX_BOARDS 64
#define LORA_ROW_MAXIMA 8 /* boards that exchange maxima of rows; more quantize whole rows */
#define LORA_MAX_BANKS 63
#define LORA_BANK_ONCHIP 63 /* the activation buffer; not visible to the host */
#define LORA_NO_BANK 255
#define LORA_MAX_ARENAS 128
#define LORA_MAX_LISTS 2
#define LORA_MAX_COUNTERS 8192
#define LORA_NO_COUNTER 0xffff
#define LORA_MAX_ROWS 64
#define LORA_MAX_SCRATCH 128
#define LORA_MAX_SEQUENCES 64
#define LORA_MAX_KV_OPS 512
#define LORA_MAX_TAPS 8
#define LORA_MAX_EXPERTS 1024          /* of a layer */
#define LORA_MAX_CHOSEN 32             /* of them, by a row */
#define LORA_MAX_CONVOLUTION 8         /* positions of a recurrence's convolution */
#define LORA_MAX_RECURRENT_COLUMNS 512 /* of a head of a gated delta rule */
#define LORA_PORTS 2
#define LORA_NO_PORT 255
#define LORA_ROW_GROUP 16 /* rows packed into one link transfer (paper, section III.B) */
#define LORA_MAX_COMMANDS 8192
#define LORA_CHUNK_COMMANDS 16 /* commands that are fetched and sealed together */
#define LORA_WINDOW_CHUNKS 32  /* no unit looks further beyond the oldest command not done */

/* --- control registers of lora_ctrl ----------------------------------------------------------- */
enum lora_control_register {
    LORA_REG_AP_CTRL = 0x00, /* bit 0 start, 1 done (clears on read), 2 idle, 3 ready */
    LORA_REG_GIE = 0x04,
    LORA_REG_IER = 0x08,
    LORA_REG_ISR = 0x0c,
    LORA_REG_OPERATION = 0x10, /* enum lora_operation */
    LORA_REG_LIST_ID = 0x14,
    LORA_REG_BLOCK_OFFSET = 0x18, /* bytes into the control bank: step block, list or link test */
    LORA_REG_STEP = 0x1c,         /* this and the next one: not read, a step block has both */
    LORA_REG_EPOCH = 0x20,
    LORA_REG_BANK = 0x24, /* CHECKSUM: range to sum */
    LORA_REG_OFFSET_LO = 0x28,
    LORA_REG_OFFSET_HI = 0x2c,
    LORA_REG_BYTES_LO = 0x30,
    LORA_REG_BYTES_HI = 0x34,
    LORA_REG_CONTROL_BANK = 0x38,
    LORA_REG_ARENA_COUNT = 0x3c,
    LORA_REG_IDENTITY_ABI = 0x40,   /* from here on read-only */
    LORA_REG_IDENTITY_BOARD = 0x44, /* enum lora_board_kind */
    LORA_REG_IDENTITY_SERIAL = 0x48,
    LORA_REG_FIRMWARE_CRC = 0x4c,
    LORA_REG_FIRMWARE_STATE = 0x50, /* enum lora_firmware_state */
    LORA_REG_WATCHDOG_MS = 0x54,    /* writable: ends a run before the host's timeout */
    LORA_REG_LAST_STEP = 0x58,      /* number of the last step that is done */
    LORA_REG_TOKEN = 0x5c,          /* writable; GENERATE: the newest token, LORA_TOKEN_* */
    LORA_REG_CANCEL = 0x60,         /* writable; GENERATE, rank 0: not 0 ends it */
    LORA_REG_STOP_CAUSE = 0x64,     /* LORA_FW_STOPPED: why, as mcause has it */
    LORA_REG_STOP_PC = 0x68,        /* and where */
    LORA_REG_LAST_INDEX = 0x80,     /* + 4*unit: last command index started there, ~0 none */
    LORA_REG_UNIT_STATE = 0xa0,     /* + 4*unit: enum lora_unit_state */
    LORA_REG_ARENAS = 0x400         /* LORA_MAX_ARENAS records of struct lora_arena_record */
};
#define LORA_AP_START 0x1
#define LORA_AP_DONE 0x2
#define LORA_AP_IDLE 0x4
#define LORA_AP_READY 0x8

enum lora_board_kind { LORA_BOARD_U280 = 0x280, LORA_BOARD_V80 = 0x80, LORA_BOARD_U55C = 0x55c };

enum lora_operation {
    LORA_OP_IDENTIFY = 1,  /* writes a completion record, nothing else */
    LORA_OP_REGISTER = 2,  /* check and seal the list at BLOCK_OFFSET */
    LORA_OP_STEP = 3,      /* run list LIST_ID on the step block at BLOCK_OFFSET */
    LORA_OP_CHECKSUM = 4,  /* CRC-32 of BANK, OFFSET, BYTES by the DMA unit */
    LORA_OP_LINK_TEST = 5, /* numbered pattern both ways: struct lora_link_test at BLOCK_OFFSET */
    LORA_OP_GENERATE = 6,  /* STEP, then greedy tokens, a step each: struct lora_generate */
    LORA_OP_REGIONS = 7,   /* take the table of weight regions at BLOCK_OFFSET: struct lora_scrub */
    LORA_OP_SCRUB = 8      /* sum regions now: BYTES of them at most; 0: all since the last step */
};

/* The word at LORA_REG_TOKEN: tokens of this run modulo 128, the newest one, whether the run is
 * over. The host clears it before the doorbell. */
#define LORA_TOKEN_MASK 0xffffff
#define LORA_TOKEN_COUNT_SHIFT 24
#define LORA_TOKEN_COUNT_MASK 0x7f
#define LORA_TOKEN_OVER 0x80000000
#define LORA_MAX_GENERATE 64 /* tokens a run */
#define LORA_MAX_STOP_TOKENS 64

enum lora_firmware_state {
    LORA_FW_IDLE = 0,
    LORA_FW_RUNNING = 1,
    LORA_FW_WAITING = 2,
    LORA_FW_DONE = 3,
    LORA_FW_ERROR = 4,
    LORA_FW_STOPPED = 5 /* its core cannot go on; from the hardware */
};

struct lora_arena_record { /* 32 bytes; registers at LORA_REG_ARENAS */
    uint64_t base;         /* physical address, from the runtime that reserved it */
    uint64_t offset;       /* first byte of the bank that it covers */
    uint64_t bytes;
    uint32_t bank;
    uint32_t valid;
};

/* --- what is stored at fixed offsets in the control bank (DDR[0]) ----------------------------- */
#define LORA_COMPLETION_OFFSET 0x0
#define LORA_ERROR_OFFSET 0x80
#define LORA_ROUTER_OFFSET 0xc0
#define LORA_ARGMAX_OFFSET 0x100 /* struct lora_argmax of each selected row */
#define LORA_RECORDS_BYTES 0x300 /* all of these: one read tells how a step ended */
#define LORA_CONTROL_PAGE 0x1000 /* the first page of the control bank is the firmware's */

enum lora_status {
    LORA_OK = 0,
    /* firmware and units; each is written to the error record */
    LORA_ERR_ABI = 1,
    LORA_ERR_SIZE = 2,         /* a structure's size or a count is out of range */
    LORA_ERR_CRC = 3,          /* a list does not match its seal */
    LORA_ERR_OPCODE = 4,       /* unknown opcode, unit or vector operation */
    LORA_ERR_ADDRESS = 5,      /* outside every arena, or crossing one's end */
    LORA_ERR_COUNTER = 6,      /* counter outside the list's, or one that nothing signals */
    LORA_ERR_LIST = 7,         /* list id not registered */
    LORA_ERR_STEP = 8,         /* step number is neither last+1 nor a redo with a higher epoch */
    LORA_ERR_ROW = 9,          /* a row's field is out of range, found/expected say which */
    LORA_ERR_KV = 10,          /* a KV operation's field is out of range */
    LORA_ERR_WATCHDOG = 11,    /* a unit did not finish or a counter never came */
    LORA_ERR_LINK_DOWN = 12,   /* port lost its channel */
    LORA_ERR_LINK_CRC = 13,    /* a frame's CRC or header did not hold */
    LORA_ERR_LINK_POISON = 14, /* another board failed this step */
    LORA_ERR_UNIT = 15,        /* a unit reported failure */
    LORA_ERR_OPERATION = 16,   /* unknown control operation */
    LORA_ERR_GATHERED = 17,    /* boards differ in what they gathered, votes included */
    /* host library */
    LORA_ERR_ARGUMENT = 64,
    LORA_ERR_MEMORY = 65, /* host memory exhausted */
    LORA_ERR_URI = 66,
    LORA_ERR_TRANSPORT = 67,
    LORA_ERR_BANK_FULL = 68,
    LORA_ERR_RANGE = 69, /* access outside a reserved arena */
    LORA_ERR_OVERLAY = 70,
    LORA_ERR_IDENTITY = 71,
    LORA_ERR_TIMEOUT = 72,      /* a hang: neither done nor error within the timeout */
    LORA_ERR_LINK_STATUS = 73,  /* bring-up: channel not healthy in time */
    LORA_ERR_LINK_CONFIG = 74,  /* framing or width differ from the manifest */
    LORA_ERR_LINK_PAYLOAD = 75, /* pattern arrived wrong */
    LORA_ERR_LINK_CABLING = 76, /* the far board is not the cabling map's */
    LORA_ERR_COMPLETION = 77,   /* done bit without a matching completion record */
    LORA_ERR_CANCELLED = 78,
    LORA_ERR_NAN = 79, /* non-finite values were written */
    LORA_ERR_ECC = 80  /* a word of a board's memory has two wrong bits, or more */
};

/* How far the sums of weight regions are, since the table was taken. */
struct lora_scrub_state { /* 32 bytes */
    uint64_t bytes;       /* summed */
    uint32_t passes;      /* turns over all regions */
    uint32_t good;        /* the last step that had been done when the last whole turn began */
    uint32_t
        damaged; /* 1 + the number of the region that differs, 0 none: nothing is summed then */
    uint32_t found, expected; /* its sums */
    uint32_t sums;            /* commands of the DMA unit */
};

struct lora_completion { /* 128 bytes at LORA_COMPLETION_OFFSET */
    uint32_t size;
    uint32_t abi;
    uint32_t operation;
    uint32_t status;
    uint32_t step;
    uint32_t epoch;
    uint32_t list_id;
    uint32_t row_count;
    uint32_t selected_count;
    uint32_t checksum; /* of CHECKSUM */
    uint32_t nonfinite_count;
    uint32_t nonfinite_index; /* command that wrote the first one */
    uint32_t nonfinite_row;   /* index of the row in the step */
    uint32_t frames_sent;
    uint32_t frames_received;
    uint32_t frames_dropped; /* of an old epoch */
    uint64_t cycles;
    uint32_t tokens; /* GENERATE: emitted by this run; `step` is the last one begun */
    uint32_t end;    /* GENERATE: enum lora_generate_end */
    struct lora_scrub_state scrub;
    uint32_t reserved[4];
};

struct lora_error_record { /* 64 bytes at LORA_ERROR_OFFSET; `code` is LORA_OK when there is none */
    uint32_t size;
    uint32_t code;
    uint32_t index; /* of the command, ~0 where none is concerned */
    uint32_t opcode;
    uint32_t unit;
    uint32_t bank;
    uint64_t offset; /* bytes */
    uint32_t found;
    uint32_t expected;
    uint32_t counter;
    uint32_t port;
    uint32_t step;
    uint32_t row;
    uint32_t reserved[2];
};

/* How far the Router was in its gather, frames of each port. The host compares the boards' records
 * of a step that failed by the watchdog: it names the board that did not take what lay before it.
 */
struct lora_router_record { /* 32 bytes at LORA_ROUTER_OFFSET; valid with WATCHDOG, LINK_POISON */
    uint32_t size;
    uint32_t step;
    uint16_t collective; /* of the gather that was not over */
    uint16_t begun;      /* 0: no gather was; the rest is 0 too */
    uint32_t waits;      /* LORA_ROUTER_RECEIVES and LORA_ROUTER_BLOCKED, shifted by the port */
    uint32_t sent[LORA_PORTS], received[LORA_PORTS];
};
#define LORA_ROUTER_RECEIVES 0x1  /* more frames have to come in by this port */
#define LORA_ROUTER_BLOCKED 0x100 /* a frame is to leave by this port, and the far FIFO is full */

/* --- firmware image --------------------------------------------------------------------------- */
#define LORA_IMAGE_MAGIC 0x57464c41 /* "ALFW" */
struct lora_image_header {          /* 32 bytes before the code */
    uint32_t magic;
    uint32_t size; /* of this header */
    uint32_t abi;
    uint32_t board; /* enum lora_board_kind */
    uint32_t code_bytes;
    uint32_t code_crc;
    uint32_t entry; /* offset of the first instruction in the code */
    uint32_t reserved;
};

/* --- commands --------------------------------------------------------------------------------- */
enum lora_unit {
    LORA_UNIT_CONTROL = 0, /* FENCE, END */
    LORA_UNIT_MPU = 1,
    LORA_UNIT_VFU = 2,
    LORA_UNIT_ROUTER = 3,
    LORA_UNIT_DMA = 4,
    LORA_UNITS = 5
};
enum lora_unit_state {
    LORA_UNIT_IDLE = 0,
    LORA_UNIT_BUSY = 1,
    LORA_UNIT_DONE = 2,
    LORA_UNIT_FAILED = 3
};

enum lora_opcode {
    LORA_CMD_MATRIX = 1,    /* MPU */
    LORA_CMD_VECTOR = 2,    /* VFU */
    LORA_CMD_ATTENTION = 3, /* MPU (it owns the multipliers; SoftMax inside) */
    LORA_CMD_KV_STORE = 4,  /* DMA: rows' K and V into their scratch slots */
    LORA_CMD_KV_COMMIT = 5, /* DMA: the step header's KV operations, of some layers */
    LORA_CMD_GATHER = 6,    /* ROUTER: all-gather of activations or LayerNorm sums */
    LORA_CMD_MOVE_ROWS = 7, /* DMA: copy rows between buffers */
    LORA_CMD_CHECKSUM = 8,  /* DMA; only issued by LORA_OP_CHECKSUM */
    LORA_CMD_FENCE = 9,     /* CONTROL: all units idle */
    LORA_CMD_END = 10,      /* CONTROL: last command of every list */
    LORA_CMD_ADAPTER = 11,  /* MPU: h = FP16(A*x) of the rows that name an adapter */
    LORA_CMD_BALLOT = 12,   /* CONTROL: as FENCE; GENERATE: then writes this board's vote */
    LORA_CMD_EXPERTS = 13,  /* MPU: a matmul whose weights are those of each row's chosen experts */
    LORA_CMD_RECURRENCE = 14 /* MPU: what stands in attention's place: enum lora_recurrence_form */
};

enum lora_vector_op {
    LORA_VEC_EMBED = 1,        /* y = FP16(token[t] + position[p + extra]) or FP16(token[t]) */
    LORA_VEC_ADD_POSITION = 2, /* y = FP16(x + position[p + extra]) (OPT's project_in) */
    LORA_VEC_LN_SUMS = 3,      /* z[segment] = {T, Q} of the local segments */
    LORA_VEC_RMS_SUMS = 4,     /* z[segment] = {S} of the local segments */
    LORA_VEC_LN_APPLY = 5,
    LORA_VEC_RMS_APPLY = 6,
    LORA_VEC_ROPE = 7,     /* in place on the q and k columns of a QKV row */
    LORA_VEC_RESIDUAL = 8, /* y = FP16(x + z) */
    LORA_VEC_RELU = 9,
    LORA_VEC_GELU_TANH = 10,
    LORA_VEC_GELU_ERF = 11,
    LORA_VEC_SWIGLU = 12,          /* y = FP16(silu(x) * z) */
    LORA_VEC_ARGMAX = 13,          /* y = struct lora_argmax of an FP32 row; lowest id wins */
    LORA_VEC_QUANTIZE = 14,        /* y = INT8 clamp(rint(x*scalar), -127, 127); NaN 0, counted */
    LORA_VEC_QUANTIZE_HEADS = 15,  /* each head of `extra` columns by a scale of its own: */
                                   /* z[head] = FP16(amax/127), y = INT8 as above, scalar 1/z */
    LORA_VEC_PERMUTE = 16,         /* y[i] = x[table[i]], uint32 at a_line; `extra` B an element */
    LORA_VEC_RMS_HEADS = 17,       /* y = RMSNorm of each head of `extra` columns, gamma [extra] */
    LORA_VEC_HEAD_SUMS = 18,       /* z[head] = {S} of each local head */
    LORA_VEC_RMS_ROW = 19,         /* y = RMSNorm over the columns of all heads, by their sums z */
    LORA_VEC_EMBED_SCALED = 20,    /* as EMBED, token[t]*scalar in token[t]'s place */
    LORA_VEC_RESIDUAL_SCALED = 21, /* y = FP16(x + z*scalar) */
    LORA_VEC_SCALE = 22,           /* y = y*scalar of an FP32 row, in place */
    LORA_VEC_SOFTCAP = 23,         /* y = tanh(y*(1/scalar))*scalar of an FP32 row, in place */
    LORA_VEC_GEGLU = 24,           /* y = FP16(gelu(x) * z), GELU by tanh */
    LORA_VEC_ROW_MAX = 25,         /* z.maxima[first] = max of |x|, 0 without columns */
    LORA_VEC_QUANTIZE_ROW = 26,    /* y = INT8 as QUANTIZE, by 127/max of z.maxima[0 .. extra-1]; */
                                   /* z.scale = that max*FP32(1/127) */
    LORA_VEC_ROUTE = 27,         /* y = struct lora_chosen of the `extra` largest of an FP32 row, */
                                 /* by index; weights by SoftMax over all columns */
    LORA_VEC_ROUTE_CHOSEN = 28,  /* the same, over the chosen ones */
    LORA_VEC_ADD_GATED = 29,     /* y = FP16(y + x/(1 + exp(-z))), z one FP32 value a row */
    LORA_VEC_GATE = 30,          /* y = FP16(x * (1/(1 + exp(-z)))) */
    LORA_VEC_ROUTE_SIGMOID = 31, /* the same, of sigmoid(x) plus a bias; weights by the sigmoids */
    LORA_VEC_SWIGLU_CLAMPED = 32, /* y = FP16((x'/(1 + exp(-(x'*alpha))))*(z' + 1)): x' at most */
                                  /* scalar, z' within it; alpha's FP32 bits in `extra` */
    LORA_VEC_JOIN_HEADS = 33      /* y[head] = columns of z, columns of x[head], +0 */
};

enum lora_element { LORA_FP16 = 1, LORA_FP32 = 2, LORA_INT8 = 3 };

/* weight_type of a matmul: the low four bits say which, the high four hold log2 of the group
 * of 4-bit weights (5, 6 or 7), of GGUF's blocks an enum lora_gguf_block, else 0. */
enum lora_weight_type {
    LORA_WEIGHT_FP16 = 1,  /* x FP16 */
    LORA_WEIGHT_INT8 = 3,  /* x INT8, exact INT32 sums */
    LORA_WEIGHT_W4A8 = 4,  /* x INT8 */
    LORA_WEIGHT_W4A16 = 5, /* x FP16, w = FP16((q - zero)*scale) */
    LORA_WEIGHT_GGUF = 6   /* x FP16, w = FP16(v*scale - minimum): docs/numbers.md, 6.11 */
};
#define LORA_WEIGHT_TYPE_MASK 0x0f
#define LORA_WEIGHT_GROUP_SHIFT 4

/* By GGUF's names; K_MIXED holds whatever Q2_K to Q6_K hold. */
enum lora_gguf_block {
    LORA_GGUF_Q8_0 = 1,
    LORA_GGUF_Q5_0 = 2,
    LORA_GGUF_Q4_1 = 3,
    LORA_GGUF_Q5_1 = 4,
    LORA_GGUF_Q4_K = 5,
    LORA_GGUF_Q5_K = 6,
    LORA_GGUF_Q6_K = 7,
    LORA_GGUF_K_MIXED = 8,
    LORA_GGUF_Q4_0 = 9,
    LORA_GGUF_IQ4_NL = 10,
    LORA_GGUF_MXFP4 = 11
};

/* How K and V are stored in the cache. Blocks are [head_dim][32] and [32][head_dim] in every
 * type. */
enum lora_kv_type {
    LORA_KV_FP16 = 0,
    LORA_KV_INT8 = 1, /* static scales; q is INT8 as well; q*k and e*v are exact INT32 */
    /* Each head of a position by its own FP16 scale. After the values of a block: FP16 [32], one a
     * position. Read as FP16(value*scale), then as FP16. */
    LORA_KV_INT8_HEADS = 2
};

enum lora_command_flag {
    LORA_FLAG_WAIT_SEGMENTS = 0x1,   /* wait_counter..+7, one a segment */
    LORA_FLAG_WAIT_GROUPS = 0x2,     /* wait_value counts row groups: times ceil(rows/ROW_GROUP) */
    LORA_FLAG_SIGNAL_SEGMENTS = 0x4, /* GATHER: signal_counter..+7, one more a row group */
    LORA_FLAG_SELECTED = 0x8,        /* works on the selected rows, packed, not on all rows */
    LORA_FLAG_PACK = 0x10,           /* MOVE_ROWS: source row = selected[i], target row = i */
    LORA_FLAG_SIGNAL_HEADS = 0x20,   /* ATTENTION: signal_counter rises by one a head */
    LORA_FLAG_NO_BIAS = 0x40,        /* MATRIX with scales: no bias behind them */
    LORA_FLAG_ONE_PLUS = 0x80,       /* RMS_APPLY, RMS_HEADS, RMS_ROW: 1 + gamma, and */
                                     /* r = numerator/sqrt(..), its FP32 bits in b_line */
    LORA_FLAG_ROW_SCALES = 0x100,    /* MATRIX, EXPERTS: x INT8, a struct lora_row_scale a row */
    LORA_FLAG_VOTES = 0x200,         /* GATHER, MOVE_ROWS: one row, the boards' votes; none in a */
                                     /* step without rows */
    LORA_FLAG_COMBINE = 0x400,       /* EXPERTS: the chosen experts' outputs become one */
    LORA_FLAG_TOKEN_BLOCKS = 0x800,  /* EMBED, EMBED_SCALED: the tokens are columns of a matrix */
    LORA_FLAG_EXPERT_BIAS = 0x1000   /* EXPERTS: each expert has a bias, behind its scales */
};
/* "selected" rows are those with want_logits or want_argmax, in row order. A command with SELECTED
 * and no selected rows finishes at once and signals. Waits on 0 row groups hold at once. */

/* Every command is 64 bytes and begins with these 12. Activation addresses are byte offsets into
 * the bank named beside them (on-chip or control bank); row i lies at offset + i*stride. */
struct lora_command {
    uint8_t opcode;
    uint8_t unit;
    uint16_t flags;
    uint16_t wait_counter; /* LORA_NO_COUNTER: starts when its unit is free */
    uint16_t wait_value;
    uint16_t signal_counter; /* rises by one when the command is done */
    uint16_t layer;          /* for messages and traces; 0xffff outside the blocks */
    uint32_t body[13];
};

/* Of a row of INT8 activations with a scale of its own (docs/numbers.md, 6.10): what lies in the
 * line behind its columns, which are padded to whole lines. ROW_MAX's and QUANTIZE_ROW's z. */
struct lora_row_scale {
    float maxima[LORA_ROW_MAXIMA]; /* of |x| over each board's columns, by rank */
    float scale;                   /* of the row: a matmul's sums are multiplied by it */
    uint32_t reserved[7];
};

struct lora_matrix { /* y = FP16(x*W + bias), or FP32; W INT8 or W4A8: FP16(x*W*scale[n] + bias) */
    uint8_t opcode, unit;
    uint16_t flags, wait_counter, wait_value, signal_counter, layer;
    uint8_t bank_first, bank_count, merge, weight_type; /* enum lora_weight_type */
    uint32_t weight_line;
    uint16_t first;
    uint8_t x_bank, y_bank;
    uint32_t k, n;
    uint32_t x_offset, x_stride;
    uint32_t y_offset, y_stride;
    uint32_t bias_line; /* FP16 [n]; INT8, W4A8: FP32 scale[n] in whole lines, then the bias */
    uint8_t bias_bank;  /* LORA_NO_BANK: neither (FP16, W4A16) */
    uint8_t y_type;     /* enum lora_element */
    /* 0 none; else 1 + the matrix's number in the slots' directories: y becomes
     * FP16((acc + bias) + scale*(B*h)) in the rows that name an adapter. */
    uint16_t adapter;
    uint32_t h_offset, h_stride; /* on-chip, what the ADAPTER command of that number has written */
};

struct lora_chosen { /* of ROUTE, `chosen` a row, by ascending expert */
    float weight;
    uint32_t expert;
};

/* Expert e's matrix [k][n] has the blocks of one of MATRIX whose `first` is first + e*requests,
 * requests = ceil(its blocks/merge). Rows have struct lora_chosen c[chosen]; column i of the j-th
 * is element i*chosen + j of what has one for each expert: y, or with COMBINE x. y[i*chosen + j] =
 * FP16(x*W_j); COMBINE: y = FP16(c[0].weight*(x_0*W_0) + c[1].weight*(x_1*W_1) ..)
 * (docs/numbers.md, 3.16). Experts that no row has chosen are not read. INT8, W4A8: x is INT8, with
 * ROW_SCALES a struct lora_row_scale behind a whole row of x; the sums of expert e are multiplied
 * by its FP32 scale[n], which lies, in whole lines, behind those of the experts before. With
 * EXPERT_BIAS FP16 bias[n], in whole lines, is behind each expert's scales, or is all that it has;
 * it is added to W_j's sums, behind the scale. */
struct lora_experts {
    uint8_t opcode, unit;
    uint16_t flags, wait_counter, wait_value, signal_counter, layer;
    uint8_t bank_first, bank_count, merge, weight_type; /* enum lora_weight_type */
    uint32_t weight_line;
    uint16_t first;
    uint16_t experts, chosen;
    uint8_t scale_bank, reserved;
    uint32_t k, n;
    uint32_t x_offset, x_stride; /* all on-chip */
    uint32_t y_offset, y_stride;
    uint32_t chosen_offset, chosen_stride; /* what ROUTE has written */
    uint32_t scale_line;                   /* of expert 0: INT8, W4A8, EXPERT_BIAS */
};

struct lora_adapter { /* h = FP16(A*x), FP16 rows on-chip, x as the matmul reads it */
    uint8_t opcode, unit;
    uint16_t flags, wait_counter, wait_value, signal_counter, layer;
    uint16_t adapter, reserved; /* number of the matrix in the slots' directories */
    uint32_t k;
    uint32_t x_offset, x_stride;
    uint32_t h_offset, h_stride; /* rows of the list's adapter_columns values */
    uint32_t reserved_2[7];
};

struct lora_vector {
    uint8_t opcode, unit;
    uint16_t flags, wait_counter, wait_value, signal_counter, layer;
    uint8_t op, a_bank, b_bank, y_bank; /* x and z: on-chip; ARGMAX has x in y_bank */
    uint32_t columns;                   /* real local columns */
    uint32_t x_offset, x_stride;
    uint32_t y_offset, y_stride;
    uint32_t z_offset, z_stride;
    uint32_t a_line, b_line; /* tables: EMBED token, position; NORM gamma, beta; ROPE cos/sin */
    uint32_t scalar;         /* FP32 bits: eps; QUANTIZE: the scale's reciprocal; a factor */
    uint32_t first;          /* global index of the first local column (ARGMAX: token id) */
    uint32_t extra;          /* NORM: d; EMBED, ADD_POSITION: row offset; ROPE, QUANTIZE_HEADS, */
                             /* RMS_HEADS: head_dim; PERMUTE: bytes of an element; ROW_MAX, */
                             /* QUANTIZE_ROW: maxima of a row */
};
/* Table rows of EMBED and ADD_POSITION are the local columns padded to whole lines.
 * With TOKEN_BLOCKS the token table is a matrix [columns][vocabulary] of LORA_WEIGHT_GGUF instead,
 * of which a_bank is bank_first, a_line weight_line, x_stride first, and x_offset
 * bank_count | merge << 8 | weight_type << 16 (lora_token_matrix).
 * ROPE's table row p is FP32 cos[head_dim/2], sin[head_dim/2], padded to whole lines.
 * NORM sums: z row = 8 records, LN {FP32 T, Q}, RMS {FP32 S}, indexed by segment of d; this board
 * writes the segments that it owns, whose columns are first .. first + columns - 1; a norm without
 * gamma/beta has a_bank/b_bank LORA_NO_BANK.
 * ROUTE, ROUTE_CHOSEN, ROUTE_SIGMOID: x is FP32, y on-chip. ADD_GATED: y on-chip.
 * ROUTE, ROUTE_CHOSEN: where b_line is not 0, a choice in groups, b_line as of ROUTE_SIGMOID, by
 * the largest logit of each; where `scalar` is not 0, it is a factor of the weights. ROUTE_SIGMOID:
 * a_line is the FP32 bias of the choice [columns]; b_line the groups and, times 2^16, how many of
 * them a row takes; `first` is 1 where the weights are divided by their sum and 1e-20, 2 where by
 * it and 1e-6, else 0; `scalar` their factor, positive and finite. HEAD_SUMS, RMS_ROW: `extra` is
 * d, the columns of all heads; z row = FP32 S[d/head_dim], of which HEAD_SUMS writes those of the
 * heads in columns first .. first + columns - 1; without ONE_PLUS, a b_line above 0 takes
 * head_dim's place. RELU: `extra` 2: y = relu(x)^2. SWIGLU: `scalar`, where not 0, is a factor of
 * x, in FP32. JOIN_HEADS: `columns` is that of all heads, `extra` of one head of y; y on-chip. Head
 * h of y has a_line columns of z from (h mod b_line)*a_line on, then `scalar` columns of x from
 * h*first on, then +0; without columns of z a_line and b_line are 0. */

/* What attention adds to the score of logical position p of a row that sees n positions. */
enum lora_slope {
    LORA_SLOPE_NONE = 0,
    LORA_SLOPE_DISTANCE = 1,      /* slope*(p - (n - 1)) */
    LORA_SLOPE_BF16_POSITION = 2, /* BF16(slope*BF16(p))*factor (Falcon) */
    LORA_SLOPE_SINK = 3           /* nothing: `slope` is one more logit, which weighs no position */
};

struct lora_head_slope {
    float slope, factor;
};

struct lora_attention {
    uint8_t opcode, unit;
    uint16_t flags, wait_counter, wait_value, signal_counter, layer;
    uint16_t head_dim, kv_layer;
    uint16_t q_heads, q_first;      /* local count, first global query head */
    uint16_t kv_heads, kv_first;    /* local count, first global KV head */
    uint16_t group;                 /* query heads a KV head: kv = (q_first+i)/group - kv_first */
    uint8_t slope_kind, slope_bank; /* enum lora_slope; the bank of the slopes */
    uint32_t q_offset, q_stride;
    uint32_t y_offset, y_stride;
    uint32_t scale;      /* FP32 bits; KV_INT8: that of q and of k included */
    uint32_t v_scale;    /* FP32 bits; KV_INT8 alone */
    uint32_t slope_line; /* struct lora_head_slope of each local query head */
    uint32_t window;     /* a row sees its last `window` positions, itself included; 0: all */
    uint32_t cap;        /* FP32 bits: scores become tanh(s*(1/cap))*cap; 0: they stay */
};
/* KV_INT8: q is INT8; e8 = rint(127*exp(s - m)), y = FP16((FP32(sum e8*v8)/FP32(sum e8))*v_scale).
 * Both sums are exact up to LORA_MAX_INT8_POSITIONS; a list with more is refused. */
#define LORA_MAX_INT8_K 131071         /* of an INT8 matmul: 2^14*K stays below 2^31 */
#define LORA_MAX_INT8_POSITIONS 133144 /* floor((2^31 - 1)/(127*127)) */

enum lora_recurrence_form {
    LORA_RECURRENCE_SHORT_CONV = 1,    /* docs/numbers.md, 3.17 */
    LORA_RECURRENCE_GATED_DELTA = 2,   /* 3.18 */
    LORA_RECURRENCE_SELECTIVE_SCAN = 3 /* 3.20 */
};

/* A recurrence of the local KV heads; with each go key_heads key heads and value_heads value heads
 * (SHORT_CONV: no key heads, one value head). FP16 caches alone. A row of x has the parts one after
 * another, each of all local KV heads in order:
 *   SHORT_CONV   B, x [value_heads*value_columns]
 *   GATED_DELTA  q, k [key_heads*key_columns], v [value_heads*value_columns], a, b [value_heads]
 *   SELECTIVE_SCAN  C, B [key_heads*key_columns], x [value_heads*value_columns], dt [value_heads];
 *       where `sharing` KV heads read one key head, C and B of local KV head h are key head
 *       (sharing_first + h)/sharing of those in x, and key_heads is 1
 * then, of the board's own columns y_first .. y_first + y_columns - 1 of the local KV heads'
 * values, C or z. y has these columns. Of a position the layer keeps, for each KV head, B*x, or q,
 * k, v, a, b: column c is value c mod head_dim of block c / head_dim of the position; block i is K
 * (i even) or V of plane kv_layer + i / 2. The state behind the last position of a full page
 * (GATED_DELTA), FP32 [value_heads][key_columns][value_columns] of each KV head, fills the blocks
 * of the planes behind those of the positions in the same order, byte by byte. The table, each row
 * in whole lines: FP16 [kernel] weights of the convolution over the columns of x's parts
 * (SHORT_CONV: of the last part; GATED_DELTA: of q, k, v); GATED_DELTA: FP32 A [value heads],
 * dt_bias [value heads], FP16 gamma [value_columns]. SELECTIVE_SCAN, behind the weights over C, B,
 * x: FP16 biases of their columns, FP32 A, dt_bias, D [value heads], struct lora_scan_constants. It
 * has no eps. */
struct lora_scan_constants {             /* FP32 */
    float low, high;                     /* limits of the time step */
    float of_c, of_b, of_x, of_dt, of_z; /* factors of the inputs */
    float reserved;
};
struct lora_recurrence {
    uint8_t opcode, unit;
    uint16_t flags, wait_counter, wait_value, signal_counter, layer;
    uint8_t form, kernel, table_bank, reserved; /* enum lora_recurrence_form */
    uint16_t kv_layer, planes;
    uint16_t key_heads, value_heads;     /* of a KV head */
    uint16_t key_columns, value_columns; /* of a head */
    uint32_t x_offset, x_stride;         /* on-chip, as y */
    uint32_t y_offset, y_stride;
    uint32_t y_first, y_columns;
    uint32_t table_line;
    uint32_t eps;                    /* FP32 bits */
    uint16_t sharing, sharing_first; /* 0: each KV head has key heads of its own */
};

struct lora_kv_store {
    uint8_t opcode, unit;
    uint16_t flags, wait_counter, wait_value, signal_counter, layer;
    uint16_t head_dim, kv_layer;
    uint16_t kv_heads, reserved;
    uint32_t k_offset, v_offset, stride; /* on-chip; head h at + h*head_dim*2, INT8 h*head_dim */
    uint32_t k_scales, v_scales, scale_stride; /* on-chip, KV_INT8_HEADS: FP16, head h at + h*2 */
    uint32_t reserved_2[5];
};

/* A list's commits, if it has any, have its layers in order, each layer before its KV_STORE. */
struct lora_kv_commit {
    uint8_t opcode, unit;
    uint16_t flags, wait_counter, wait_value, signal_counter, layer;
    uint16_t kv_layer, layers; /* the first one, and how many; 0: all from there on */
    uint32_t reserved[12];
};

struct lora_gather {
    uint8_t opcode, unit;
    uint16_t flags, wait_counter, wait_value, signal_counter, layer;
    uint32_t offset, stride; /* on-chip, full width; the local share is stored there already */
    uint32_t columns;
    uint16_t share_unit;    /* board b owns columns from min(columns, floor(b*U/N)*share_unit), */
                            /* U = ceil(columns/share_unit) */
    uint16_t segment_unit;  /* segment s = columns floor(s*B/8)*segment_unit .., B likewise */
    uint16_t element_bytes; /* INT8 1; FP16 2; LayerNorm's pair 8; RMSNorm's sum 4 */
    uint16_t collective;    /* number of this collective in the list */
    uint16_t span;          /* enum lora_span: b and N count in it */
    uint16_t reserved_0;
    uint32_t reserved[7];
};

/* The boards of a gather. In a list of stages all but the votes have one of the last three. */
enum lora_span {
    LORA_SPAN_ALL = 0,
    LORA_SPAN_STAGE = 1,        /* those of this board's stage, as a path */
    LORA_SPAN_TO_NEXT = 2,      /* those of its stage own the columns; they and those of the next */
                                /* stage gather them, all of them one path; the last gather */
    LORA_SPAN_FROM_PREVIOUS = 3 /* the same from the other side; the first gather of a list */
};

struct lora_move_rows {
    uint8_t opcode, unit;
    uint16_t flags, wait_counter, wait_value, signal_counter, layer;
    uint8_t x_bank, y_bank;
    uint16_t reserved;
    uint32_t x_offset, x_stride;
    uint32_t y_offset, y_stride;
    uint32_t bytes; /* of one row */
    uint32_t reserved_2[7];
};

struct lora_checksum { /* CRC-32 of a range of a bank, continued from `crc` as zlib does */
    uint8_t opcode, unit;
    uint16_t flags, wait_counter, wait_value, signal_counter, layer;
    uint32_t bank;
    uint32_t crc; /* of what came before, 0 at first; the sum so far is hal_unit_result.value */
    uint32_t offset_lo, offset_hi;
    uint32_t bytes;
    uint32_t reserved[8];
};

/* CONTROL. Offsets in the control bank's results. A list without it knows no GENERATE, and compares
 * no gathers. */
struct lora_ballot {
    uint8_t opcode, unit;
    uint16_t flags, wait_counter, wait_value, signal_counter, layer;
    uint32_t argmax_offset; /* struct lora_argmax of the step's selected row; 0: no vocabulary */
    uint32_t votes_offset;  /* struct lora_vote of each board, by rank */
    uint32_t ring_offset;   /* LORA_MAX_GENERATE struct lora_token, at step modulo that */
    uint32_t reserved[10];
};

struct lora_argmax { /* 8 bytes a selected row */
    float value;     /* NaN where any logit is NaN */
    uint32_t token;  /* ~0 where the board has no vocabulary */
};

/* --- command list: header, then command_count commands ---------------------------------------- */
struct lora_list { /* 256 bytes */
    uint32_t size; /* of this header */
    uint32_t abi;
    uint32_t list_id;
    uint32_t command_count;
    uint32_t crc; /* CRC-32 of header and commands with this field 0 */
    uint32_t counter_count;
    uint8_t rank, boards; /* index in the path or ring */
    uint8_t ring;         /* 1: the last board's next is the first */
    uint8_t port_next, port_previous;
    uint8_t control_bank, table_bank, reserved_0;
    uint32_t max_rows, max_scratch, max_sequences;
    uint32_t max_tiles;  /* tiles a sequence may have */
    uint32_t page_count; /* KV pages; the first ceil(max_scratch/32) hold the scratch slots */
    uint32_t vocabulary, positions;
    uint32_t onchip_bytes;
    /* KV block of (page, layer, head, v): j = page*page_stride + (layer*kv_heads + head)*2 + v,
     * page_stride = (kv_layers*kv_heads*2) | 1; bank = kv_bank_first + j mod kv_bank_count;
     * line = kv_line + j / kv_bank_count * block_lines; block_lines = head_dim for FP16
     * (64*head_dim B), head_dim/2 for KV_INT8, head_dim/2 + 1 for KV_INT8_HEADS (head_dim is even
     * there). K is [head_dim][32], V is [32][head_dim]. Slot s is in page s/32, lane s mod 32.
     * Pages from kv_spill_page on, where kv_spill_bank_count is not 0, lie in banks of their own:
     * the same with page - kv_spill_page, kv_spill_bank_* and kv_spill_line. */
    uint8_t kv_bank_first, kv_bank_count;
    uint16_t kv_layers, kv_heads, head_dim;
    uint32_t kv_line;
    uint32_t table_line; /* uint16 page_table[max_sequences][max_tiles], padded to lines a row */
    uint32_t results_offset, results_bytes; /* bytes in the control bank */
    uint32_t embed_columns; /* width of a vector input (LORA_ROW_VECTOR), the whole row */
    uint32_t taps;
    /* Adapter slots, 0 without adapters. A slot is adapter_chunks chunks of LORA_ADAPTER_CHUNK
     * bytes, one linear space. Chunk c of slot s is number r = s*adapter_chunks + c:
     * bank = adapter_bank_first + r mod adapter_bank_count,
     * line = adapter_line + r / adapter_bank_count * (LORA_ADAPTER_CHUNK / 64). */
    uint32_t adapter_slots, adapter_chunks;
    uint32_t adapter_matrices; /* entries of a slot's directory */
    uint32_t adapter_columns;  /* FP16 values of a row of h */
    uint32_t adapter_line;
    uint8_t adapter_bank_first, adapter_bank_count;
    uint16_t kv_type; /* enum lora_kv_type */
    uint32_t kv_spill_page, kv_spill_line;
    uint8_t kv_spill_bank_first, kv_spill_bank_count;
    /* 0: all boards run all layers. Else stages of so many boards: ranks 0 .. stage_boards-1 are
     * the first, and so on; each runs layers of its own, and `boards` is a multiple. */
    uint8_t stage_boards;
    uint8_t reserved_1;
    uint32_t reserved[31];
};

/* --- adapter slots ----------------------------------------------------------------------------
 * A slot begins with its header, then the directory: one struct lora_adapter_matrix a matrix; each
 * names its factors, `down_count` of A, then `up_count` of B, at `offset` bytes of the slot.
 * Factors are what this board holds of one checkpoint tensor's A or B, or of one block of a
 * block-diagonal one. j counts ranks of the whole adapter: the sums of B*h are cut as those of the
 * dense matrix.
 *   A: FP16 [ceil(rank_count/8)][count][8], k = first .. first+count-1, ranks past the end zero.
 *   B: FP16 [column tiles that first .. first+count-1 touches][rank_count][32].
 * Rank j of h lies at column h_first + j / h_run * h_skip + j mod h_run. */
#define LORA_ADAPTER_CHUNK 8192
#define LORA_ADAPTER_MAGIC 0x54504441 /* "ADPT"; any other first word: the slot is empty */
#define LORA_ADAPTER_GROUP 8          /* ranks that lie together in A */
#define LORA_MAX_ADAPTER_SLOTS 1024
#define LORA_MAX_ADAPTER_RANK 1024

struct lora_adapter_slot { /* 64 bytes */
    uint32_t magic;
    uint32_t size;     /* of this header */
    uint32_t bytes;    /* of the slot that are used */
    uint32_t matrices; /* of the directory, which follows */
    uint32_t reserved[12];
};

struct lora_adapter_matrix { /* 8 bytes */
    uint32_t offset;         /* of its factors, 64 bytes each */
    uint16_t down_count, up_count;
};

struct lora_adapter_factor { /* 64 bytes */
    uint32_t first, count;   /* A: columns of x; B: columns of the board's matrix */
    uint32_t offset;         /* of the values, a multiple of 64 */
    uint16_t rank_first, rank_count;
    uint16_t rank;  /* of the whole adapter, a multiple of 8 */
    uint16_t h_run; /* at least 1 */
    uint32_t h_first, h_skip;
    uint32_t scale; /* B: FP32 bits */
    uint32_t reserved[8];
};

/* --- one step --------------------------------------------------------------------------------- */
enum lora_row_flag {
    LORA_ROW_WANT_LOGITS = 0x1,
    LORA_ROW_WANT_ARGMAX = 0x2,
    LORA_ROW_WANT_HIDDEN = 0x4,
    LORA_ROW_VECTOR = 0x8 /* `token` is the byte offset in the step block of an FP16 input vector */
};

struct lora_row { /* 64 bytes */
    uint32_t sequence;
    uint32_t position;
    uint32_t token;
    int32_t adapter; /* slot, -1 none */
    int32_t slot;    /* scratch slot of this row */
    int32_t parent;  /* -1: last committed position; else slot of an uncommitted row */
    uint32_t flags;
    uint32_t reserved[9];
};

enum lora_kv_op_kind {
    LORA_KV_TABLE = 1,  /* table[sequence][a] = page b */
    LORA_KV_LENGTH = 2, /* length[sequence] = a; drops its uncommitted rows (new, forked, freed) */
    LORA_KV_COPY = 3,   /* first c positions of page a to page b, all layers and heads */
    LORA_KV_COMMIT = 4  /* path of c slots at index b of the path array, from length a; the other
                           uncommitted rows of the sequence are dropped; c may be 0. Where a list has
                           states (RECURRENCE) and it fills a page, no TABLE behind it in the same
                           header is of that sequence's tiles up to there, or of a tile that any
                           commit before the TABLE writes */
};
struct lora_kv_op { /* 16 bytes; done in order, before the rows */
    uint16_t kind;
    uint16_t sequence;
    uint32_t a, b, c;
};

/* A row may not use a slot that the same step's header commits: a redone step reads it again. */
struct lora_step { /* 64 bytes, then kv_ops, path, rows and vectors at the offsets named here */
    uint32_t size; /* of this header */
    uint32_t abi;
    uint32_t bytes; /* of the whole block */
    uint32_t list_id;
    uint32_t step;
    uint32_t epoch;
    uint32_t row_count, rows_offset;
    uint32_t kv_op_count, kv_ops_offset;
    uint32_t path_count, path_offset; /* uint16 slots, at most LORA_MAX_ROWS*LORA_MAX_SEQUENCES */
    uint32_t generate_offset;         /* GENERATE: of its struct lora_generate */
    uint32_t reserved[3];
};

/* --- tokens without the host ------------------------------------------------------------------
 * docs/firmware.md has the rules. The block of a GENERATE is a step block of one row, which wants
 * its argmax and has no parent; `generate_offset` says where this structure lies in it. The
 * header's KV operations are those of the row's sequence: pages of tiles that hold nothing yet, and
 * at most one COMMIT of one row. */
struct lora_generate { /* 128 bytes */
    uint32_t size;
    uint32_t max_tokens;              /* 1..LORA_MAX_GENERATE */
    uint32_t stop_count, stop_offset; /* uint32 tokens in the block, LORA_MAX_STOP_TOKENS at most */
    uint16_t slots[4];                /* three scratch slots used in turn, the first row's first */
    uint32_t reserved[2];
    /* What every later token's step is made of, written by the firmware. */
    struct lora_kv_op commit;
    uint16_t path[8];
    struct lora_row row;
};

enum lora_generate_end {
    LORA_GENERATE_COUNT = 1, /* max_tokens */
    LORA_GENERATE_STOP = 2,  /* a stop token, which is in the ring */
    LORA_GENERATE_CANCELLED = 3,
    LORA_GENERATE_NONFINITE = 4 /* the last step is done and has no token */
};

/* 32 bytes: what a board says of its share of a step. In a STEP only step, rank, digest and seal.
 *
 * A gather's sum is the CRC-32 of the gathered rows, all columns, row after row, by the addresses
 * at which this board has filed (or held, of its own share) every byte. With the sum of each gather
 * that has rows, in the list's order: digest = rotate_left((digest ^ sum) * 0x9e3779b1, 16), from
 * 0. All boards of a stage have the same digest in a step, or one holds rows that others did not
 * send; and what a stage has passed is what the next one has received. */
struct lora_vote {
    uint32_t value, token;    /* struct lora_argmax, the value's bits; token ~0: no vocabulary */
    uint16_t nonfinite_count; /* 0xffff: as many or more */
    uint8_t rank;
    uint8_t cancel; /* rank 0's LORA_REG_CANCEL counts: not 0 */
    uint32_t step;
    uint32_t digest;
    uint32_t received, passed; /* sums of the gathers FROM_PREVIOUS and TO_NEXT; 0 without */
    uint32_t seal; /* of the words before: seal = rotate_left((seal ^ word) * 0x9e3779b1, 16) */
};

struct lora_token { /* 16 bytes of the ring */
    uint32_t step, epoch;
    uint32_t token, value; /* the value's FP32 bits */
};

/* --- sums of weights between steps -------------------------------------------------------------
 * docs/firmware.md has the rules. The table in the control bank: this header, then
 * region_count regions. The host writes all of it but what the firmware writes back. */
#define LORA_MAX_REGIONS 4096
struct lora_scrub {         /* 32 bytes */
    uint32_t size;          /* of this header */
    uint32_t region_count;  /* 0: nothing is summed */
    uint32_t slice_bytes;   /* summed by one command at most */
    uint32_t step_bytes;    /* earned by each step */
    uint32_t idle_bytes;    /* earned by each ms without an operation */
    uint32_t command_bytes; /* that a command costs besides those that it sums */
    uint32_t crc;           /* CRC-32 of the regions as the host wrote them */
    uint32_t reserved;
};

struct lora_region { /* 32 bytes */
    uint64_t offset, bytes;
    uint32_t bank;
    uint32_t expected;  /* CRC-32 of what the host loaded */
    uint32_t good_step; /* written back: the last step done when a sum that was right began */
    uint32_t found;     /* written back: the last sum */
};

/* What firmware derives from a step block and its own tables, and hands to the units. */
struct lora_slot {
    int16_t parent; /* slot, -1 */
    uint16_t sequence;
    uint32_t position;
    uint32_t valid;
};
struct lora_step_state {
    uint32_t size;
    uint32_t step, epoch, list_id;
    uint32_t row_count, selected_count;
    uint32_t kv_op_count, path_count;
    uint32_t block_offset;               /* of the step block in the control bank */
    uint32_t kv_ops_offset, path_offset; /* bytes in the control bank */
    uint32_t reserved;
    uint16_t selected[LORA_MAX_ROWS];
    uint32_t lengths[LORA_MAX_SEQUENCES];     /* committed, this step's commits included */
    struct lora_slot slots[LORA_MAX_SCRATCH]; /* this step's rows included */
    struct lora_row rows[LORA_MAX_ROWS];
};

/* --- links ------------------------------------------------------------------------------------ */
/* Aurora cores, as published by AuroraFlow. */
enum lora_link_register {
    LORA_LINK_CORE_RESET = 0x10,
    LORA_LINK_COUNTER_RESET = 0x14,
    LORA_LINK_CONFIGURATION = 0x18, /* bit 0 tkeep, 1 tlast (framing), 2..10 FIFO width in bytes */
    LORA_LINK_FIFO_THRESHOLDS = 0x1c,
    LORA_LINK_STATUS = 0x20,
    LORA_LINK_NOT_OK_CYCLES = 0x24,
    LORA_LINK_FIFO_STATUS = 0x28,
    LORA_LINK_RX_OVERFLOWS = 0x2c,
    LORA_LINK_TX_OVERFLOWS = 0x30,
    LORA_LINK_FC_FULL = 0x34,
    LORA_LINK_FC_EMPTY = 0x38,
    LORA_LINK_FC_LATENCY = 0x3c,
    LORA_LINK_TX_COUNT = 0x40, /* 64-byte transfers */
    LORA_LINK_RX_COUNT = 0x44,
    LORA_LINK_GT_NOT_READY = 0x48, /* + 4*lane */
    LORA_LINK_LINE_DOWN = 0x58,    /* + 4*lane */
    LORA_LINK_PLL_NOT_LOCKED = 0x68,
    LORA_LINK_MMCM_NOT_LOCKED = 0x6c,
    LORA_LINK_HARD_ERRORS = 0x70,
    LORA_LINK_SOFT_ERRORS = 0x74,
    LORA_LINK_CHANNEL_DOWN = 0x78,
    LORA_LINK_FRAMES_RECEIVED = 0x7c,
    LORA_LINK_FRAMES_WITH_ERRORS = 0x80
};
#define LORA_LINK_HEALTHY 0x11ff
#define LORA_LINK_TKEEP 0x1
#define LORA_LINK_FRAMING 0x2

#define LORA_FRAME_MAGIC 0x41524f4c /* "LORA" */
#define LORA_FRAME_PAYLOAD 4096
enum lora_frame_kind {
    LORA_FRAME_DATA = 1,
    LORA_FRAME_POISON = 2, /* ends this step and every later one of its epoch */
    LORA_FRAME_TEST = 3
};
struct lora_frame { /* 32 bytes, then `length` payload bytes, then CRC-32 of both with hop as 0:
                       end to end, since hop alone changes on the way */
    uint32_t magic;
    uint32_t epoch;
    uint32_t step;
    uint16_t collective;
    uint16_t row_group;
    uint8_t source;  /* rank among the boards of the gather */
    uint8_t segment; /* first segment in the payload */
    uint8_t hop;     /* hops still to go, this one included */
    uint8_t kind;
    uint16_t segments; /* how many consecutive segments the block has */
    uint16_t part;     /* of a block cut into several frames */
    uint32_t offset;   /* of this part in the block, bytes */
    uint32_t length;   /* payload bytes */
};
/* A block is, for one source and row group, the rows of the group one after another, each the bytes
 * of `segments` consecutive segments of the source's share. Consecutive segments travel as one
 * block while it fits one frame, deterministically: greedy from the first segment. On a ring of N,
 * blocks of even number go ceil((N-1)/2) hops to next and floor((N-1)/2) to previous, odd ones the
 * other way round (Figure 9: two blocks in N-1 full-duplex cycles). On a path, as a stage's boards
 * are, a block goes to both ends. Blocks of a source are numbered through one collective, row group
 * by row group; segments in which the source has no columns make no block. */

struct lora_link_test_port {         /* 32 bytes */
    uint32_t enabled;                /* in */
    uint32_t sent, received, bad;    /* out: frames */
    uint32_t peer_serial, peer_port; /* out: as the far board named itself, ~0 nothing received */
    uint32_t first_bad;
    uint32_t reserved;
};
struct lora_link_test { /* in the control bank at BLOCK_OFFSET */
    uint32_t size;
    uint32_t frames;  /* in: how many each way */
    uint32_t payload; /* in: bytes each */
    uint32_t seed;
    struct lora_link_test_port ports[LORA_PORTS];
};

#endif
