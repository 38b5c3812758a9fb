/* The HAL on the card: every function is a few accesses to the blocks of hal_card.h. */
#include "hal_card.h"

#include "hal.h"

static volatile uint32_t *word(uint32_t address) { return (volatile uint32_t *)(uintptr_t)address; }

static uint32_t local(const void *pointer) { return (uint32_t)(uintptr_t)pointer; }

static uint32_t unit_register(uint32_t unit, uint32_t offset) {
    return CARD_UNITS + unit * CARD_UNIT_STRIDE + offset;
}

uint32_t hal_register(uint32_t offset) { return *word(CARD_REGISTERS + offset); }

void hal_set_register(uint32_t offset, uint32_t value) { *word(CARD_REGISTERS + offset) = value; }

/* Selects the page of `offset`; returns where the byte lies in the core's address space, and how
 * many follow it in the page. */
static uint32_t select_page(uint32_t bank, uint64_t offset, uint32_t *left) {
    uint32_t at_window = (uint32_t)offset % CARD_WINDOW_BYTES;
    *word(CARD_WINDOW_SELECT + CARD_WINDOW_BANK) = bank;
    *word(CARD_WINDOW_SELECT + CARD_WINDOW_PAGE) = (uint32_t)(offset / CARD_WINDOW_BYTES);
    *left = CARD_WINDOW_BYTES - at_window;
    return CARD_WINDOW + at_window;
}

/* Words where both sides are aligned: a byte costs the memory system as much as a word. */
static void copy_in(uint8_t *to, uint32_t from, uint32_t bytes) {
    uint32_t i = 0;
    if ((local(to) | from) % 4 == 0)
        for (; i + 4 <= bytes; i += 4) *(uint32_t *)(void *)(to + i) = *word(from + i);
    if ((local(to) | from) % 2 == 0)
        for (; i + 2 <= bytes; i += 2)
            *(uint16_t *)(void *)(to + i) = *(volatile uint16_t *)(uintptr_t)(from + i);
    for (; i < bytes; i++) to[i] = *(volatile uint8_t *)(uintptr_t)(from + i);
}

static void copy_out(uint32_t to, const uint8_t *from, uint32_t bytes) {
    if ((to | local(from) | bytes) % 4 == 0)
        for (uint32_t i = 0; i < bytes; i += 4)
            *word(to + i) = *(const uint32_t *)(const void *)(from + i);
    else
        for (uint32_t i = 0; i < bytes; i++) *(volatile uint8_t *)(uintptr_t)(to + i) = from[i];
}

void hal_read(uint32_t bank, uint64_t offset, void *data, uint32_t bytes) {
    uint8_t *to = data;
    while (bytes > 0) {
        uint32_t left;
        uint32_t from = select_page(bank, offset, &left);
        uint32_t count = bytes < left ? bytes : left;
        copy_in(to, from, count);
        to += count;
        offset += count;
        bytes -= count;
    }
}

void hal_write(uint32_t bank, uint64_t offset, const void *data, uint32_t bytes) {
    const uint8_t *from = data;
    while (bytes > 0) {
        uint32_t left;
        uint32_t to = select_page(bank, offset, &left);
        uint32_t count = bytes < left ? bytes : left;
        copy_out(to, from, count);
        from += count;
        offset += count;
        bytes -= count;
    }
}

/* A read does not overtake the writes before it on the window's way to memory: its answer says that
 * they are there. The instruction keeps the core from going on before it has the answer. */
void hal_fence(uint32_t bank, uint64_t offset) {
    uint32_t left;
    (void)*word(select_page(bank, offset, &left));
    __asm__ volatile("fence" ::: "memory");
}

uint32_t hal_features(void) { return *word(CARD_BOARD + CARD_FEATURES); }

uint32_t hal_run_register(uint32_t offset) { return *word(CARD_RUN + offset); }

void hal_set_run_register(uint32_t offset, uint32_t value) { *word(CARD_RUN + offset) = value; }

/* The window has found the page's place once a word of it is read. */
void hal_run_list(uint32_t bank, uint64_t offset, const struct lora_list *list,
                  const struct lora_step_state *state) {
    uint32_t left;
    uint32_t at = select_page(bank, offset, &left);
    (void)*word(at);
    *word(CARD_RUN + HAL_RUN_LIST) = at - CARD_WINDOW;
    *word(CARD_RUN + CARD_RUN_LIST_HEADER) = *word(CARD_LINKS + CARD_LINK_LIST) = local(list);
    *word(CARD_RUN + CARD_RUN_STATE) = *word(CARD_LINKS + CARD_LINK_STATE) = local(state);
}

uint32_t hal_onchip_bytes(void) { return *word(CARD_BOARD + CARD_ONCHIP_BYTES); }

void hal_unit_start(uint32_t unit, const struct lora_command *command, const struct lora_list *list,
                    const struct lora_step_state *state) {
    *word(unit_register(unit, CARD_UNIT_LIST)) = local(list);
    *word(unit_register(unit, CARD_UNIT_STATE)) = local(state);
    copy_out(unit_register(unit, CARD_UNIT_COMMAND), (const uint8_t *)command, sizeof *command);
    *word(unit_register(unit, CARD_UNIT_CONTROL)) = CARD_START;
}

static uint32_t state_of(uint32_t control) {
    if (control & CARD_FAILED) return LORA_UNIT_FAILED;
    if (control & CARD_DONE) return LORA_UNIT_DONE;
    return control & CARD_BUSY ? LORA_UNIT_BUSY : LORA_UNIT_IDLE;
}

uint32_t hal_unit_poll(uint32_t unit, struct hal_unit_result *result) {
    uint32_t state = state_of(*word(unit_register(unit, CARD_UNIT_CONTROL)));
    if (state != LORA_UNIT_DONE && state != LORA_UNIT_FAILED) return state;
    result->status = *word(unit_register(unit, CARD_UNIT_STATUS));
    result->nonfinite_count = *word(unit_register(unit, CARD_UNIT_NONFINITE_COUNT));
    result->nonfinite_row = *word(unit_register(unit, CARD_UNIT_NONFINITE_ROW));
    result->value = *word(unit_register(unit, CARD_UNIT_VALUE));
    result->port = *word(unit_register(unit, CARD_UNIT_PORT));
    result->frames_sent = *word(unit_register(unit, CARD_UNIT_FRAMES_SENT));
    result->frames_received = *word(unit_register(unit, CARD_UNIT_FRAMES_RECEIVED));
    result->frames_dropped = *word(unit_register(unit, CARD_UNIT_FRAMES_DROPPED));
    *word(unit_register(unit, CARD_UNIT_CONTROL)) = CARD_ACKNOWLEDGE;
    return state;
}

void hal_unit_segments(uint32_t unit, uint32_t groups[LORA_SEGMENTS]) {
    for (uint32_t s = 0; s < LORA_SEGMENTS; s++)
        groups[s] = *word(unit_register(unit, CARD_UNIT_SEGMENTS + 4 * s));
}

void hal_router_progress(struct lora_router_record *record) {
    record->waits = *word(unit_register(LORA_UNIT_ROUTER, CARD_UNIT_WAITS));
    for (uint32_t port = 0; port < LORA_PORTS; port++) {
        record->sent[port] = *word(unit_register(LORA_UNIT_ROUTER, CARD_UNIT_SENT + 4 * port));
        record->received[port] = *word(
            unit_register(LORA_UNIT_ROUTER, CARD_UNIT_RECEIVED + 4 * port));
    }
}

void hal_unit_abort(uint32_t unit) { *word(unit_register(unit, CARD_UNIT_CONTROL)) = CARD_ABORT; }

void hal_links_epoch(uint32_t epoch) { *word(CARD_LINKS + CARD_LINK_EPOCH) = epoch; }

void hal_links_poison(const struct lora_list *list, const struct lora_step_state *state) {
    *word(CARD_LINKS + CARD_LINK_LIST) = local(list);
    *word(CARD_LINKS + CARD_LINK_STATE) = local(state);
    *word(CARD_LINKS + CARD_LINK_POISON) = 1;
}

uint32_t hal_link_test(struct lora_link_test *test) {
    uint32_t state = state_of(*word(CARD_LINKS + CARD_LINK_TEST_CONTROL));
    if (state == LORA_UNIT_IDLE) {
        *word(CARD_LINKS + CARD_LINK_TEST) = local(test);
        *word(CARD_LINKS + CARD_LINK_TEST_CONTROL) = CARD_START;
        return LORA_UNIT_BUSY;
    }
    if (state != LORA_UNIT_BUSY) *word(CARD_LINKS + CARD_LINK_TEST_CONTROL) = CARD_ACKNOWLEDGE;
    return state;
}

/* The high word may turn over between the two reads. */
uint64_t hal_cycles(void) {
    uint32_t high, low, again;
    do {
        high = *word(CARD_BOARD + CARD_CYCLES_HI);
        low = *word(CARD_BOARD + CARD_CYCLES_LO);
        again = *word(CARD_BOARD + CARD_CYCLES_HI);
    } while (again != high);
    return (uint64_t)high << 32 | low;
}

uint32_t hal_cycles_per_ms(void) { return *word(CARD_BOARD + CARD_CYCLES_PER_MS); }

void hal_trace(uint32_t index, const struct lora_command *command, uint32_t rows, uint32_t end) {
    (void)command; /* the trace port finds it by its index */
    *word(CARD_BOARD + CARD_TRACE_INDEX) = index;
    *word(CARD_BOARD + CARD_TRACE_ROWS) = rows;
    *word(CARD_BOARD + CARD_TRACE_END) = end;
}
