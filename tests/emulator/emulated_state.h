/* What the text of a kernel and the emulated driver share. It becomes part of the text (emulation.hpp), so it includes
 * nothing. One thread of one block runs at a time; the state says which. */
#ifndef HT_TESTS_EMULATED_STATE_H
#define HT_TESTS_EMULATED_STATE_H

typedef struct emulated_place {
    unsigned x, y, z;
} emulated_place;

/* Where threads wait for each other, and what each gets from it. */
typedef enum emulated_meeting {
    EMULATED_BLOCK,   /* all threads of the block: the sum of their values */
    EMULATED_WARP,    /* the lanes of a mask: nothing */
    EMULATED_SHUFFLE, /* the lanes of a mask: the value of the lane that the thread names */
    EMULATED_BALLOT,  /* the lanes of a mask: bit i is the value of lane i */
    EMULATED_OTHERS   /* other blocks, which run in the meantime: nothing */
} emulated_meeting;

typedef struct emulated_state {
    emulated_place thread, block, block_size, grid_size;
    char *shared_bytes; /* dynamic shared memory */
    unsigned long long (*meet)(emulated_meeting kind, unsigned mask, unsigned long long value, int lane);
} emulated_state;

#endif
