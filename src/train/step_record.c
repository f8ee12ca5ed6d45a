#include "train/step_record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RING = HT_STEPS_UNREAD + 2, CELL_BYTES = 8 }; /* the step before the oldest unread one is still there */

/* Times of a step: its micro-batches and its update lie between them. */
enum { BEGIN, MICRO, END, MARKS };

/* What is fetched once per step, and the field that it becomes. */
typedef struct field {
    const char *name;
    size_t offset;
    bool before_update;
} field;
static const field fields[] = {
    {"loss_scale", offsetof(ht_step_record, loss_scale), true},
    {"loss_scale", offsetof(ht_step_record, next_loss_scale), false},
    {"lr", offsetof(ht_step_record, lr), false},
    {"grad_norm", offsetof(ht_step_record, grad_norm), false},
    {"applied_now", offsetof(ht_step_record, applied_now), false},
    {"applied", offsetof(ht_step_record, applied), false},
    {"skips_in_a_row", offsetof(ht_step_record, skips_in_a_row), false},
    {"fatal", offsetof(ht_step_record, fatal), false},
};
/* Of several ranks, instead of what each micro-batch of this one tells: what all of them told. */
static const field rank_fields[] = {
    {"step_loss_sum", offsetof(ht_step_record, loss_sum), false},
    {"step_count", offsetof(ht_step_record, count), false},
    {"step_bad_rank", offsetof(ht_step_record, bad_rank), false},
};
enum { FIELDS = sizeof fields / sizeof fields[0], RANK_FIELDS = sizeof rank_fields / sizeof rank_fields[0] };

/* And once per micro-batch. */
static const char *const micro_names[] = {"loss_sum", "count"};
enum { MICRO_FIELDS = sizeof micro_names / sizeof micro_names[0], FIRST_MICRO = FIELDS + RANK_FIELDS };

typedef struct entry {
    ht_step_start start;
    double seconds[MARKS];  /* of a device without a clock: written in its order of commands */
    ht_event *marks[MARKS]; /* of one that has a clock: the host must not be asked in the middle of a step */
    char *cells;            /* fields, those of all ranks, then those of each micro-batch */
    ht_event *done;
} entry;

struct ht_step_records {
    ht_session *session;
    int64_t micros;
    const ht_slot *slots[FIELDS], *micro_slots[MICRO_FIELDS];
    const ht_slot *rank_slots[RANK_FIELDS]; /* NULL: there are no other ranks */
    entry ring[RING];
    uint64_t ended, taken;
    bool has_clock;
    double clock; /* of a device that has one: when the last step that was taken ended */
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static ht_status find_slot(ht_session *session, const char *name, const ht_slot **out)
{
    *out = ht_plan_slot(session->plan, name);
    if (!*out || ht_type_elems(&(*out)->type) != 1 || ht_type_bytes(&(*out)->type) > CELL_BYTES)
        HT_FAIL(session->plan->ctx, HT_EINVAL, "the training step has no single number '%s'", name);
    return HT_OK;
}

static size_t cell_bytes(int64_t micros)
{
    return (size_t)(FIRST_MICRO + MICRO_FIELDS * micros) * CELL_BYTES;
}

int64_t ht_step_records_bytes(int64_t micros)
{
    return RING * (int64_t)cell_bytes(micros);
}

static ht_status set_up(ht_step_records *r)
{
    for (int i = 0; i < FIELDS; i++) HT_TRY(find_slot(r->session, fields[i].name, &r->slots[i]));
    for (int i = 0; i < MICRO_FIELDS; i++) HT_TRY(find_slot(r->session, micro_names[i], &r->micro_slots[i]));
    for (int i = 0; i < RANK_FIELDS; i++)
        if (ht_plan_slot(r->session->plan, rank_fields[i].name))
            HT_TRY(find_slot(r->session, rank_fields[i].name, &r->rank_slots[i]));
    for (int i = 0; i < RING; i++) {
        void *cells;
        HT_TRY(ht_device_host_alloc(ht_executor_device(r->session->executor), cell_bytes(r->micros), &cells));
        r->ring[i].cells = cells;
        HT_TRY(ht_executor_event(r->session->executor, &r->ring[i].done));
        for (int k = 0; k < MARKS && r->has_clock; k++)
            HT_TRY(ht_executor_event(r->session->executor, &r->ring[i].marks[k]));
    }
    return HT_OK;
}

ht_status ht_step_records_open(ht_step_records **out, ht_session *session, int64_t micros)
{
    ht_step_records *r = *out = calloc(1, sizeof *r);
    if (!r) HT_FAIL(session->plan->ctx, HT_ENOMEM, "out of memory for step records");
    r->session = session;
    r->micros = micros;
    r->has_clock = ht_executor_device(session->executor)->class->event_seconds != NULL;
    r->clock = seconds();
    ht_status status = set_up(r);
    if (status == HT_OK) return HT_OK;
    ht_step_records_free(r);
    *out = NULL;
    return status;
}

void ht_step_records_free(ht_step_records *r)
{
    if (!r) return;
    /* Commands that are under way write here; a failure of the device was told before or does not matter any more. */
    (void)ht_executor_sync(r->session->executor);
    for (int i = 0; i < RING; i++) {
        ht_event_free(r->ring[i].done);
        for (int k = 0; k < MARKS; k++) ht_event_free(r->ring[i].marks[k]);
        ht_device_host_free(ht_executor_device(r->session->executor), r->ring[i].cells);
    }
    free(r);
}

static entry *current(ht_step_records *r)
{
    return &r->ring[r->ended % RING];
}

static ht_status fetch(ht_step_records *r, const ht_slot *slot, size_t cell)
{
    return ht_executor_fetch(r->session->executor, slot->place, current(r)->cells + cell * CELL_BYTES,
                             (size_t)ht_type_bytes(&slot->type));
}

static void stamp(void *arg)
{
    *(double *)arg = seconds();
}

/* On the CPU a step begins when the host begins it; elsewhere when the device comes to it. */
static ht_status mark(ht_step_records *r, int which)
{
    entry *e = current(r);
    return r->has_clock ? ht_executor_record(r->session->executor, e->marks[which])
                        : ht_executor_call(r->session->executor, stamp, &e->seconds[which]);
}

ht_status ht_step_records_begin(ht_step_records *r)
{
    return mark(r, BEGIN);
}

ht_status ht_step_records_micro(ht_step_records *r, int64_t index)
{
    for (size_t i = 0; i < MICRO_FIELDS; i++)
        HT_TRY(fetch(r, r->micro_slots[i], FIRST_MICRO + (size_t)index * MICRO_FIELDS + i));
    return HT_OK;
}

static ht_status fetch_fields(ht_step_records *r, bool before_update)
{
    for (size_t i = 0; i < FIELDS; i++)
        if (fields[i].before_update == before_update) HT_TRY(fetch(r, r->slots[i], i));
    return HT_OK;
}

ht_status ht_step_records_update(ht_step_records *r)
{
    HT_TRY(fetch_fields(r, true));
    return mark(r, MICRO);
}

ht_status ht_step_records_end(ht_step_records *r, const ht_step_start *start)
{
    entry *e = current(r);
    e->start = *start;
    HT_TRY(fetch_fields(r, false));
    for (size_t i = 0; i < RANK_FIELDS; i++)
        if (r->rank_slots[i]) HT_TRY(fetch(r, r->rank_slots[i], FIELDS + i));
    HT_TRY(mark(r, END));
    HT_TRY(ht_executor_record(r->session->executor, e->done));
    r->ended++;
    return HT_OK;
}

void ht_step_records_syncs(ht_step_records *r, int64_t syncs)
{
    r->ring[(r->ended - 1) % RING].start.syncs = syncs;
}

/* After a failure the executor is asked, too: it knows what ran. */
ht_status ht_step_records_wait(ht_step_records *r, int64_t most)
{
    ht_status waited = HT_OK;
    if ((int64_t)(r->ended - r->taken) > most) {
        ht_event *done = r->ring[(r->ended - (uint64_t)most - 1) % RING].done;
        if (!ht_event_done(done)) waited = ht_event_sync(done);
    }
    HT_TRY(ht_executor_status(r->session->executor));
    return waited;
}

static double number(const entry *e, const ht_slot *slot, size_t cell)
{
    return ht_load_f64(e->cells + cell * CELL_BYTES, slot->type.dtype, 0);
}

static void put(ht_step_record *out, const field *f, double value)
{
    memcpy((char *)out + f->offset, &value, sizeof value);
}

/* From a device's clock: the times between marks, one after the other. */
static ht_status read_clock(ht_step_records *r, entry *e)
{
    const ht_device_class *class = ht_executor_device(r->session->executor)->class;
    ht_event *last = r->taken ? r->ring[(r->taken - 1) % RING].marks[END] : e->marks[BEGIN];
    for (int i = 0; i < MARKS; i++) {
        double passed;
        HT_TRY(class->event_seconds(last, e->marks[i], &passed));
        e->seconds[i] = r->clock += passed;
        last = e->marks[i];
    }
    return HT_OK;
}

ht_status ht_step_records_take(ht_step_records *r, ht_step_record *out, bool *taken)
{
    entry *e = &r->ring[r->taken % RING];
    *taken = r->ended != r->taken && ht_event_done(e->done);
    if (!*taken) return HT_OK;
    /* Events come to pass in a queue that has failed, too: then the cells hold what an older step left. */
    HT_TRY(ht_executor_status(r->session->executor));
    if (r->has_clock) HT_TRY(read_clock(r, e));
    *out = (ht_step_record){.start = e->start,
                            .bad_rank = NAN,
                            .begin_seconds = e->seconds[BEGIN],
                            .micro_seconds = e->seconds[MICRO],
                            .end_seconds = e->seconds[END]};
    for (size_t i = 0; i < FIELDS; i++) put(out, &fields[i], number(e, r->slots[i], i));
    for (int64_t k = 0; k < r->micros; k++) {
        size_t cell = FIRST_MICRO + (size_t)k * MICRO_FIELDS;
        out->loss_sum += number(e, r->micro_slots[0], cell);
        out->count += number(e, r->micro_slots[1], cell + 1);
    }
    for (size_t i = 0; i < RANK_FIELDS; i++)
        if (r->rank_slots[i]) put(out, &rank_fields[i], number(e, r->rank_slots[i], FIELDS + i));
    r->taken++;
    return HT_OK;
}
