/* One call of an op outside any plan, written as a sample line, on arrays that the test fills: by the op's reference or
 * by the kernel that this machine would choose. */
#ifndef HT_TESTS_OP_CALL_H
#define HT_TESTS_OP_CALL_H

#include "op_tests.h"

typedef struct op_call {
    op_case c;
    op_arrays a; /* inputs hold the sample's values until the test changes them */
} op_call;

typedef void (*op_runner)(op_call *call);

/* A line that the op does not take fails the test. */
void op_call_open(op_call *call, const char *op, const char *line, ...) __attribute__((format(printf, 3, 4)));
void op_call_close(op_call *call);

/* Fill a.out. */
void op_call_reference(op_call *call);
void op_call_kernel(op_call *call);
/* The same kernel where input `strided` lies in memory with its axes in another order: `order` lists them from the
 * slowest to the fastest. */
void op_call_kernel_permuted(op_call *call, size_t strided, const int *order);
/* Workspace of the kernel that would be chosen. */
int64_t op_call_workspace(op_call *call);

int64_t op_call_elems_in(const op_call *call, size_t input);
int64_t op_call_elems_out(const op_call *call, size_t result);

/* |a - b| <= tolerance (1 + |b|) for n numbers; infinities must be equal. */
void op_call_near(const char *what, const double *a, const double *b, int64_t n, double tolerance);
void op_call_all(const char *what, const double *a, int64_t n, double value);

/* The line is refused with a message that has `words` in it. */
void op_call_refused(const char *op, const char *line, const char *words);

#endif
