/* What the lab tools ask vrtd, the V80's daemon, without opening a cluster. Every call uses a
 * connection of its own and disturbs nobody. */
#ifndef LORA_SLASH_H
#define LORA_SLASH_H

#include <stdint.h>

struct lora_slash_device {
    char bdf[32];
    char name[128];
};

struct lora_slash_sensor {
    char name[64];
    uint32_t type; /* 1 temperature in C, 2 current in A, 4 voltage in V, 8 power in W */
    double value;
};

/* Path of the daemon's socket: LORA_VRTD_SOCKET, or /run/vrtd.sock. */
const char *lora_slash_socket(void);
/* The boards that vrtd serves; *count is how many there are, at most `capacity` are written. */
int lora_slash_devices(struct lora_slash_device *devices, uint32_t capacity, uint32_t *count,
                       struct lora_failure *failure);
int lora_slash_sensors(const char *bdf, struct lora_slash_sensor *sensors, uint32_t capacity,
                       uint32_t *count, struct lora_failure *failure);
/* vrtd's reset of a board, and the wait until it is there again. Nothing may hold the board. */
int lora_slash_reset(const char *bdf, struct lora_failure *failure);
/* Words of the board's registers from an AXI address on, without a program or a lock. Not the
 * control word: reading it clears its done bit. */
int lora_slash_peek(const char *bdf, uint64_t address, uint32_t *words, uint32_t count,
                    struct lora_failure *failure);
/* Rate of the user clock in Hz. */
int lora_slash_clock(const char *bdf, uint32_t *hz, struct lora_failure *failure);

extern const struct lora_transport lora_transport_slash;

#endif
