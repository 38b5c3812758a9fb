/* One process a board: a lock file whose lock the kernel drops with the process, so it never goes
 * stale. The file holds the holder's process number. */
#ifndef LORA_BOARD_LOCK_H
#define LORA_BOARD_LOCK_H

#include "lora/transport.h"

/* Takes the lock of a board named by scheme and address. *holder is the descriptor to give to
 * lora_board_unlock. LORA_ERR_TRANSPORT names the holder's process. The folder is LORA_LOCK_DIR,
 * else /run/lock, else /tmp. */
int lora_board_lock(const char *scheme, const char *address, int *holder,
                    struct lora_failure *failure);
void lora_board_unlock(int holder);

#endif
