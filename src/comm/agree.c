/* Agreement before step 0: ranks compare what must be the same, and name what is not. */
#include "comm/comm_own.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A fact as it is sent. */
typedef struct record {
    uint64_t hash;
    char name[48], text[64];
} record;

static void write_record(record *r, const ht_comm_fact *fact)
{
    *r = (record){.hash = fact->hash};
    snprintf(r->name, sizeof r->name, "%s", fact->name);
    snprintf(r->text, sizeof r->text, "%s", fact->text ? fact->text : "");
}

static bool same(const record *a, const record *b)
{
    return a->hash == b->hash && strcmp(a->name, b->name) == 0;
}

/* The rank whose record most ranks have; the first of several. */
static int most_common(const record *all, int ranks)
{
    int best = 0, most = 0;
    for (int i = 0; i < ranks; i++) {
        int count = 0;
        for (int k = 0; k < ranks; k++) count += same(&all[i], &all[k]);
        if (count > most) {
            most = count;
            best = i;
        }
    }
    return best;
}

static void add_value(ht_text *t, const record *r, const char *name)
{
    if (strcmp(r->name, name) != 0)
        ht_text_add(t, "%s in its place", r->name);
    else if (r->text[0])
        ht_text_add(t, "%s", r->text);
    else
        ht_text_add(t, "%016llx", (unsigned long long)r->hash);
}

/* "config: rank 2 has fp16, where rank 0 has bf16" */
static void add_difference(ht_text *t, const record *all, int ranks)
{
    const record *common = &all[most_common(all, ranks)];
    int told = 0, others = 0;
    ht_text_add(t, "%s%s: ", t->length ? "; " : "", common->name);
    for (int i = 0; i < ranks; i++) {
        if (same(&all[i], common)) continue;
        if (++told > 4) {
            others++;
            continue;
        }
        ht_text_add(t, "%srank %d has ", told > 1 ? ", " : "", i);
        add_value(t, &all[i], common->name);
    }
    if (others) ht_text_add(t, ", and %d more ranks differ", others);
    ht_text_add(t, ", where rank %d has ", (int)(common - all));
    add_value(t, common, common->name);
}

static bool all_same(const record *all, int ranks)
{
    for (int i = 1; i < ranks; i++)
        if (!same(&all[0], &all[i])) return false;
    return true;
}

/* Ranks with more facts than others must not wait for them: the number is compared first. */
static ht_status compare_counts(ht_comm *comm, ht_context *ctx, size_t count, int64_t *counts)
{
    int64_t own = (int64_t)count;
    HT_TRY(ht_comm_run(comm, ctx, &(ht_comm_call){HT_COMM_ALL_GATHER, HT_I64, .in = &own, .out = counts, .elems = 1}));
    for (int i = 1; i < ht_comm_size(comm); i++)
        if (counts[i] != counts[0])
            HT_FAIL(ctx, HT_ERANK, "ranks differ: rank %d compares %lld facts, rank 0 %lld: are they of one version?",
                    i, (long long)counts[i], (long long)counts[0]);
    return HT_OK;
}

static ht_status compare(ht_comm *comm, ht_context *ctx, const ht_comm_fact *facts, size_t count, record *all,
                         ht_text *t)
{
    int ranks = ht_comm_size(comm);
    for (size_t i = 0; i < count; i++) {
        record own;
        write_record(&own, &facts[i]);
        HT_TRY(ht_comm_run(comm, ctx,
                           &(ht_comm_call){HT_COMM_ALL_GATHER, HT_U8, .in = &own, .out = all, .elems = sizeof own}));
        if (!all_same(all, ranks)) add_difference(t, all, ranks);
    }
    if (t->length) HT_FAIL(ctx, HT_ERANK, "ranks differ in %s", t->data);
    return HT_OK;
}

ht_status ht_comm_agree(ht_comm *comm, ht_context *ctx, const ht_comm_fact *facts, size_t count)
{
    size_t ranks = (size_t)ht_comm_size(comm);
    record *all = calloc(ranks, sizeof *all);
    int64_t *counts = calloc(ranks, sizeof *counts);
    ht_text text = {0};
    ht_status status = all && counts ? HT_OK : ht_fail(ctx, HT_ENOMEM, "out of memory to compare ranks");
    if (status == HT_OK) status = compare_counts(comm, ctx, count, counts);
    if (status == HT_OK) status = compare(comm, ctx, facts, count, all, &text);
    ht_text_free(&text);
    free(counts);
    free(all);
    return status;
}
