/* Contestants that take turns at the same work. Machines drift by tens of percent within minutes, so the sides of a row
 * are measured call by call beside each other, and only their medians are compared. */
#ifndef BENCH_CONTEST_H
#define BENCH_CONTEST_H

#include <stdbool.h>

#include "bench_common.h"

enum { CONTEST_SIDES = 12, CONTEST_ROUNDS = 41 };

/* Does the work `calls` times; seconds per call, or a negative number: it cannot. */
typedef double (*contest_turn)(void *arg, int calls);

typedef struct contest_side {
    const char *name;
    contest_turn turn;
    void *arg;
    double work; /* FLOP or bytes of one call, in a contest of rates */
    /* Filled by contest_run: seconds per call. */
    bool missing;
    double median, low, high; /* low and high are quartiles */
} contest_side;

typedef struct contest {
    const char *name; /* the rows are called like this unless told otherwise */
    const char *unit; /* "ms", or a rate in giga */
    double seconds;   /* about how long it may take; a few rounds are made in any case */
    contest_side side[CONTEST_SIDES];
    int count, rounds;
    double crowded; /* share of the time in which somebody waited for a core; negative: unknown */
} contest;

/* Returns the side's number. */
int contest_add(contest *c, const char *name, contest_turn turn, void *arg, double work);
/* Runs all sides in turns and prints a line for people: medians, quartiles. */
void contest_run(contest *c);
/* In the contest's unit; 0 when missing. */
double contest_value(const contest *c, int side);
/* The better of two by value; a missing one loses. */
int contest_better(const contest *c, int a, int b);
/* The BENCH line. name NULL: the contest's; peer NULL: the side's own name. Prints nothing when our side is missing. */
void contest_row(const contest *c, const char *name, int mine, int theirs, const char *peer);

#endif
