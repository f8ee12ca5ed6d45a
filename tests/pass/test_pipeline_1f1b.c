/* The calls of stages in a step: in flight are as many micro-batches as there are slots, and messages, which all block,
 * always meet. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "pass/pass.h"

enum { MOST_STAGES = 8, MOST_MICROS = 12, MOST_CALLS = HT_PIPELINE_PARTS * MOST_MICROS };

/* A message to the neighbour behind, or to the one before. */
typedef struct message {
    bool gradient, sends;
    int64_t micro;
} message;

typedef struct stage {
    ht_pipeline_call calls[MOST_CALLS];
    message messages[MOST_CALLS];
    size_t call_count, count, at;
} stage;

static message message_of(ht_pipeline_part part, int64_t micro)
{
    bool gradient = part == HT_PIPELINE_RECEIVE || part == HT_PIPELINE_BACKWARD;
    return (message){gradient, part == HT_PIPELINE_SEND || part == HT_PIPELINE_BACKWARD, micro};
}

/* A forward begins with a message from the stage before; a backward ends with one to it. */
static void list(stage *s, int64_t stages, int64_t index, int64_t micros)
{
    s->call_count = ht_pipeline_calls(stages, index, micros, s->calls);
    s->count = s->at = 0;
    for (size_t i = 0; i < s->call_count; i++) {
        ht_pipeline_part part = s->calls[i].part;
        bool up = part == HT_PIPELINE_FORWARD || part == HT_PIPELINE_BACKWARD;
        if (up ? index > 0 : index < stages - 1) s->messages[s->count++] = message_of(part, s->calls[i].micro);
    }
}

static bool leads_down(const message *m)
{
    return m->gradient != m->sends;
}

/* Both sides of a message are at it. */
static bool meet(stage *above, stage *below)
{
    const message *a = &above->messages[above->at], *b = &below->messages[below->at];
    if (above->at == above->count || below->at == below->count) return false;
    if (!leads_down(a) || leads_down(b)) return false;
    return a->gradient == b->gradient && a->micro == b->micro && a->sends != b->sends;
}

static void one_forward_one_backward__never_waits_in_a_circle(void **state)
{
    static stage stages[MOST_STAGES];
    (void)state;
    for (int64_t count = 2; count <= MOST_STAGES; count++) {
        for (int64_t micros = 1; micros <= MOST_MICROS; micros++) {
            for (int64_t s = 0; s < count; s++) list(&stages[s], count, s, micros);
            for (bool moved = true; moved;) {
                moved = false;
                for (int64_t s = 0; s + 1 < count; s++) {
                    if (!meet(&stages[s], &stages[s + 1])) continue;
                    stages[s].at++;
                    stages[s + 1].at++;
                    moved = true;
                }
            }
            for (int64_t s = 0; s < count; s++)
                if (stages[s].at != stages[s].count)
                    fail_msg("%d stages, %d micro-batches: stage %d waits at message %zu of %zu", (int)count,
                             (int)micros, (int)s, stages[s].at, stages[s].count);
        }
    }
}

static void one_forward_one_backward__has_few_in_flight(void **state)
{
    static stage s;
    (void)state;
    for (int64_t count = 1; count <= MOST_STAGES; count++)
        for (int64_t index = 0; index < count; index++)
            for (int64_t micros = 1; micros <= MOST_MICROS; micros++) {
                int64_t slots = ht_pipeline_slots(count, index, micros), holds[MOST_STAGES], forwards = 0,
                        backwards = 0;
                assert_true(slots == (count - index < micros ? count - index : micros));
                for (int i = 0; i < MOST_STAGES; i++) holds[i] = -1;
                list(&s, count, index, micros);
                for (size_t i = 0; i < s.call_count; i++) {
                    const ht_pipeline_call *call = &s.calls[i];
                    assert_in_range(call->slot, 0, slots - 1);
                    if (call->part == HT_PIPELINE_FORWARD) {
                        assert_true(holds[call->slot] == -1 && call->micro == forwards++);
                        holds[call->slot] = call->micro;
                    }
                    assert_true(holds[call->slot] == call->micro);
                    if (call->part == HT_PIPELINE_BACKWARD) {
                        assert_true(call->micro == backwards++);
                        holds[call->slot] = -1;
                    }
                }
                assert_true(forwards == micros && backwards == micros);
            }
}

/* Stage 1 of 3 with 4 micro-batches, as docs/parallel.md draws it. */
static void one_forward_one_backward__is_as_drawn(void **state)
{
    static const char drawn[] =
        "fwd0 send0 fwd1 recv0 send1 bwd0 fwd2 recv1 send2 bwd1 fwd3 recv2 send3 bwd2 recv3 bwd3 ";
    char text[256] = "";
    stage s;
    (void)state;
    list(&s, 3, 1, 4);
    for (size_t i = 0; i < s.call_count; i++)
        sprintf(text + strlen(text), "%s%d ", ht_pipeline_part_names[s.calls[i].part], (int)s.calls[i].micro);
    assert_string_equal(text, drawn);
    assert_true(ht_pipeline_bubble(3, 4) == 2.0 / 6.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_forward_one_backward__never_waits_in_a_circle),
        cmocka_unit_test(one_forward_one_backward__has_few_in_flight),
        cmocka_unit_test(one_forward_one_backward__is_as_drawn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
