/* A port's cable that leads out of this process: its far end here, which only holds frames. */
#ifndef EMU_FAR_H
#define EMU_FAR_H

#include "board.h"

struct emu_far {
    struct emu_board board;        /* the far one, as far as a port looks at it */
    void (*notify)(void *context); /* frames lie ready; under the cluster's lock */
    void *context;
};

static inline struct emu_port *emu_far_end(struct emu_far *far) { return &far->board.ports[0]; }

/* far.c: NULL: no memory. */
struct emu_far *emu_far_new(struct emu_port *near);
void emu_far_free(struct emu_far *far);
/* Tells those whose frames wait to be taken. */
void emu_far_notify(struct emu_cluster *cluster);

#endif
