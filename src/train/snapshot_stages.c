/* Where ranks are stages of a pipeline, each knows the tensors of its layers. To write a snapshot all of them agree on one
 * list: the first rank of each stage tells what it has, and a tensor that several have is sent by the first of them. */
#include <stdlib.h>
#include <string.h>

#include "train/snapshot_parts.h"

enum { NAME_BYTES = 256 };

/* A tensor on its way; the same program runs everywhere. */
typedef struct told {
    char name[NAME_BYTES];
    ht_array array;
    ht_type whole;
    ht_cut cut;
    bool divided, optional;
    int file;
    int64_t stage;
} told;

typedef struct joining {
    const ht_ranks *ranks;
    ht_context *ctx;
    ht_snapshot_tensor_list *own;
    told *all;
    int64_t *counts; /* by rank: of tensors */
    size_t count;
} joining;

static ht_status no_memory(ht_context *ctx)
{
    return ht_fail(ctx, HT_ENOMEM, "out of memory for the list of a snapshot's tensors");
}

/* ---- telling ---- */

/* One rank of a stage speaks for it. What lies between tensors has no meaning to others, and holds nothing. */
static bool is_told(const joining *j, const ht_snapshot_tensor *tensor)
{
    return j->ranks->data.rank == 0 && j->ranks->tensor.rank == 0 && !tensor->padding;
}

static ht_status tell(const joining *j, told *out)
{
    for (size_t i = 0; i < j->own->count; i++) {
        const ht_snapshot_tensor *t = &j->own->items[i];
        if (!is_told(j, t)) continue;
        *out = (told){.array = t->array,
                      .whole = t->whole,
                      .cut = t->cut,
                      .divided = t->divided,
                      .optional = t->optional,
                      .file = t->file,
                      .stage = j->ranks->pipeline.rank};
        if (strlen(t->name) >= NAME_BYTES)
            HT_FAIL(j->ctx, HT_ENOTSUP, "snapshot: the name '%s' is too long for ranks that are stages", t->name);
        strcpy((out++)->name, t->name);
    }
    return HT_OK;
}

static ht_status gather(const joining *j, ht_dtype dtype, const void *in, int64_t elems, const int64_t *counts,
                        void *out)
{
    return ht_comm_run(j->ranks->host, j->ctx,
                       &(ht_comm_call){.kind = HT_COMM_ALL_GATHER,
                                       .dtype = dtype,
                                       .in = in,
                                       .out = out,
                                       .elems = elems,
                                       .counts = counts,
                                       .site = "snapshot"});
}

static ht_status exchange(joining *j)
{
    int64_t own = 0, first = 0;
    for (size_t i = 0; i < j->own->count; i++) own += is_told(j, &j->own->items[i]) ? (int64_t)sizeof(told) : 0;
    j->counts = calloc((size_t)j->ranks->size, sizeof *j->counts);
    if (!j->counts) return no_memory(j->ctx);
    HT_TRY(gather(j, HT_I64, &own, 1, NULL, j->counts));
    int64_t bytes = 0;
    for (int64_t i = 0; i < j->ranks->size; i++) {
        if (i == j->ranks->rank) first = bytes;
        bytes += j->counts[i];
    }
    j->count = (size_t)bytes / sizeof(told);
    j->all = calloc(j->count + 1, sizeof *j->all);
    if (!j->all) return no_memory(j->ctx);
    told *mine = (told *)((char *)j->all + first);
    HT_TRY(tell(j, mine));
    return gather(j, HT_U8, mine, own, j->counts, j->all);
}

/* ---- one list ---- */

static ht_snapshot_tensor *find(const ht_snapshot_tensor_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (!list->items[i].padding && strcmp(list->items[i].name, name) == 0) return &list->items[i];
    return NULL;
}

/* As this rank has it, or as others told of it. */
static ht_status take(const joining *j, const told *from, ht_snapshot_tensor *to)
{
    const ht_snapshot_tensor *own = find(j->own, from->name);
    if (own) {
        *to = *own;
    } else {
        const char *name = ht_arena_text(j->own->names, from->name, strlen(from->name));
        if (!name) return no_memory(j->ctx);
        *to = (ht_snapshot_tensor){.name = name,
                                   .array = from->array,
                                   .whole = from->whole,
                                   .cut = from->cut,
                                   .divided = from->divided,
                                   .optional = from->optional,
                                   .file = from->file};
    }
    to->part = true;
    to->elsewhere = from->stage != j->ranks->pipeline.rank;
    return HT_OK;
}

static ht_status join(joining *j)
{
    HT_TRY(exchange(j));
    ht_snapshot_tensor *items = calloc(j->count + 1, sizeof *items);
    size_t count = 0;
    ht_status status = items ? HT_OK : no_memory(j->ctx);
    for (size_t i = 0; i < j->count && status == HT_OK; i++) {
        bool known = false;
        for (size_t k = 0; k < i && !known; k++) known = strcmp(j->all[k].name, j->all[i].name) == 0;
        if (!known) status = take(j, &j->all[i], &items[count++]);
    }
    if (status != HT_OK) {
        free(items);
        return status;
    }
    free(j->own->items);
    j->own->items = items;
    j->own->count = j->own->capacity = count;
    ht_snapshot_tensor_sort(j->own);
    return HT_OK;
}

ht_status ht_snapshot_tensor_join(ht_snapshot_tensor_list *list, const ht_ranks *ranks, ht_context *ctx)
{
    if (!ranks || ranks->pipeline.ranks == 1) return HT_OK;
    joining j = {.ranks = ranks, .ctx = ctx, .own = list};
    ht_status status = join(&j);
    free(j.all);
    free(j.counts);
    return status;
}
