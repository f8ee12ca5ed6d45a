/* Products of codes, row by row: random codes, and every row that this machine can run against the op's integer reference, bit for
 * bit, with w packed in the run and before it. */
#ifndef HT_TESTS_CODE_ROWS_H
#define HT_TESTS_CODE_ROWS_H

#include "op_call.h"

/* A stream of choices. */
typedef struct draws {
    ht_stream stream;
    uint64_t next;
} draws;
int64_t draw(draws *d, int64_t low, int64_t high);
/* Codes of input `input` between low and high: any, either end, or one end by far. */
void draw_codes(draws *d, op_call *c, size_t input, double low, double high);

/* The rows that have run, on which machine. */
typedef struct code_rows {
    ht_target machine; /* asking for it takes long in a virtual one */
    ht_pool *pool;
    const ht_kernel *rows[16];
    size_t count;
} code_rows;
code_rows code_rows_open(void);
/* The call by every row; threads: in a pool, too. Where operands have four axes they lie row-major, or channels-last. */
void code_rows_check(code_rows *rows, op_call *c, bool threads, bool channels_last);
/* Prints which rows have run; none is a failure. */
void code_rows_close(code_rows *rows);

#endif
