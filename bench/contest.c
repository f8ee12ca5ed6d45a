#include "contest.h"

static const double turn_seconds = 0.02; /* shorter calls are repeated within a turn, so that caches are their own */
enum { FEWEST_ROUNDS = 5, MOST_CALLS = 1000 };

int contest_add(contest *c, const char *name, contest_turn turn, void *arg, double work)
{
    c->side[c->count] = (contest_side){.name = name, .turn = turn, .arg = arg, .work = work};
    return c->count++;
}

/* The first turn warms up and tells how many calls make a turn. */
static int calls_per_turn(contest_side *side)
{
    double once = side->turn(side->arg, 1);
    side->missing = once < 0;
    if (side->missing) return 0;
    if (once * 2 < turn_seconds) once = side->turn(side->arg, 3);
    double calls = turn_seconds / (once > 0 ? once : 1e-9) + 0.5;
    return calls < 1 ? 1 : calls > MOST_CALLS ? MOST_CALLS : (int)calls;
}

static double in_unit(const contest *c, const contest_side *side, double seconds)
{
    return bench_is_rate(c->unit) ? side->work / seconds / 1e9 : seconds * 1e3;
}

double contest_value(const contest *c, int side)
{
    const contest_side *s = &c->side[side];
    return s->missing ? 0 : in_unit(c, s, s->median);
}

/* Seconds so far in which some thread of this machine wanted a core and had none, as Linux counts them. Each side uses
 * as many threads as it may, and only one runs at a time: what waits comes from outside, and spoils the row. */
static double waited_for_cores(void)
{
    unsigned long long micros;
    FILE *file = fopen("/proc/pressure/cpu", "r");
    if (!file) return -1;
    bool found = fscanf(file, "some avg10=%*f avg60=%*f avg300=%*f total=%llu", &micros) == 1;
    fclose(file);
    return found ? 1e-6 * (double)micros : -1;
}

static void print_sides(const contest *c)
{
    printf("  %s, %s, median (quartiles) of %d rounds:", c->name, c->unit, c->rounds);
    for (int i = 0; i < c->count; i++) {
        const contest_side *s = &c->side[i];
        bool rate = bench_is_rate(c->unit);
        if (s->missing)
            printf("  %s none", s->name);
        else
            printf("  %s %.4g (%.4g-%.4g)", s->name, in_unit(c, s, s->median), in_unit(c, s, rate ? s->high : s->low),
                   in_unit(c, s, rate ? s->low : s->high));
    }
    printf("\n");
    if (c->crowded > 0.05)
        printf("  NOT ALONE: threads waited for a core in %.0f %% of that time; do not trust these rows\n",
               100 * c->crowded);
    fflush(stdout);
}

void contest_run(contest *c)
{
    static double seconds[CONTEST_SIDES][CONTEST_ROUNDS];
    int calls[CONTEST_SIDES];
    for (int i = 0; i < c->count; i++) calls[i] = calls_per_turn(&c->side[i]);
    double start = bench_now(), end = start + c->seconds, waited = waited_for_cores();
    for (c->rounds = 0; c->rounds < CONTEST_ROUNDS && (c->rounds < FEWEST_ROUNDS || bench_now() < end); c->rounds++) {
        for (int k = 0; k < c->count; k++) {
            int i = (k + c->rounds) % c->count; /* nobody always comes after the same neighbour */
            contest_side *s = &c->side[i];
            if (s->missing) continue;
            seconds[i][c->rounds] = s->turn(s->arg, calls[i]);
            s->missing = seconds[i][c->rounds] < 0;
        }
    }
    c->crowded = waited < 0 ? -1 : (waited_for_cores() - waited) / (bench_now() - start);
    for (int i = 0; i < c->count; i++) {
        contest_side *s = &c->side[i];
        if (s->missing) continue;
        s->median = bench_median(seconds[i], c->rounds);
        s->low = seconds[i][c->rounds / 4];
        s->high = seconds[i][c->rounds - 1 - c->rounds / 4];
    }
    print_sides(c);
}

int contest_better(const contest *c, int a, int b)
{
    double x = contest_value(c, a), y = contest_value(c, b);
    if (x == 0 || y == 0) return x == 0 ? b : a;
    return (bench_is_rate(c->unit) ? x >= y : x <= y) ? a : b;
}

void contest_row(const contest *c, const char *name, int mine, int theirs, const char *peer)
{
    if (c->side[mine].missing) return;
    bench_line(name ? name : c->name, contest_value(c, mine), contest_value(c, theirs),
               peer ? peer : c->side[theirs].name, c->unit);
}
