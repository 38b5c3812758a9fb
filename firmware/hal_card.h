/* What the card's soft core (RISC-V, rv32imc; MicroBlaze-V) sees: its local memory at 0 and these
 * blocks of memory-mapped I/O. The overlay's block design puts them at these addresses of the core;
 * none of them is an address of the host or of board memory. */
#ifndef LORA_HAL_CARD_H
#define LORA_HAL_CARD_H

/* lora_ctrl's register file from its inner side: enum lora_control_register, all writable, and
 * reading AP_CTRL does not clear its done bit. */
#define CARD_REGISTERS 0x10000000u

/* Mailboxes of the units, CARD_UNIT_STRIDE apart, by enum lora_unit. */
#define CARD_UNITS 0x11000000u
#define CARD_UNIT_STRIDE 0x1000u
enum card_unit_register {
    CARD_UNIT_CONTROL = 0x00, /* written: START, ACKNOWLEDGE, ABORT; read: BUSY, DONE, FAILED */
    CARD_UNIT_STATUS = 0x04, /* enum lora_status; from here on read-only, valid with DONE, FAILED */
    CARD_UNIT_NONFINITE_COUNT = 0x08,
    CARD_UNIT_NONFINITE_ROW = 0x0c,
    CARD_UNIT_VALUE = 0x10, /* struct hal_unit_result.value */
    CARD_UNIT_PORT = 0x14,
    CARD_UNIT_FRAMES_SENT = 0x18,
    CARD_UNIT_FRAMES_RECEIVED = 0x1c,
    CARD_UNIT_FRAMES_DROPPED = 0x20,
    CARD_UNIT_LIST = 0x28, /* local addresses; units read local memory by its second port */
    CARD_UNIT_STATE = 0x2c,
    CARD_UNIT_COMMAND = 0x40,  /* 16 words */
    CARD_UNIT_SEGMENTS = 0x80, /* Router: 8 words, row groups complete, read-only */
    CARD_UNIT_WAITS = 0xa0,    /* Router: lora_router_record.waits; from here on until START */
    CARD_UNIT_SENT = 0xa4,     /* a word a port, frames of this command */
    CARD_UNIT_RECEIVED = 0xac
};
#define CARD_START 0x1
#define CARD_DONE 0x2
#define CARD_ACKNOWLEDGE 0x2
#define CARD_BUSY 0x4
#define CARD_FAILED 0x8
#define CARD_ABORT 0x10

/* The link kernels, both ports together. */
#define CARD_LINKS 0x12000000u
enum card_link_register {
    CARD_LINK_EPOCH = 0x00,
    CARD_LINK_LIST = 0x04, /* local addresses, read when POISON is written */
    CARD_LINK_STATE = 0x08,
    CARD_LINK_POISON = 0x0c,
    CARD_LINK_TEST_CONTROL = 0x10, /* as CARD_UNIT_CONTROL */
    CARD_LINK_TEST = 0x14          /* local address of struct lora_link_test */
};

/* Board memory, one page at a time. The window adds the base of the arena that covers (bank, page);
 * a page that no arena covers reads as zeros and takes no writes. */
#define CARD_WINDOW_SELECT 0x13000000u
enum card_window_register {
    CARD_WINDOW_BANK = 0x00,
    CARD_WINDOW_PAGE = 0x04 /* number of the page in its bank */
};
#define CARD_WINDOW 0x20000000u
#define CARD_WINDOW_BYTES 0x1000u

/* Constants of the overlay, the clock, and the trace port (written in the order of the words). */
#define CARD_BOARD 0x14000000u
enum card_board_register {
    CARD_ONCHIP_BYTES = 0x00,
    CARD_CYCLES_PER_MS = 0x04,
    CARD_CYCLES_LO = 0x08,
    CARD_CYCLES_HI = 0x0c,
    CARD_TRACE_INDEX = 0x10,
    CARD_TRACE_ROWS = 0x14,
    CARD_TRACE_END = 0x18, /* this write ends the record */
    CARD_FEATURES = 0x1c   /* HAL_FEATURE_* */
};

/* The sequencer: enum hal_run_register, and local addresses for units that it starts. */
#define CARD_RUN 0x15000000u
enum card_run_register { CARD_RUN_LIST_HEADER = 0x80, CARD_RUN_STATE = 0x84 };

#endif
