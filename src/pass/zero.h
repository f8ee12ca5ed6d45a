/* What the files of the pass zero share. */
#ifndef HT_PASS_ZERO_H
#define HT_PASS_ZERO_H

#include "pass/pass.h"

/* How the model reads a tensor of a group. The layout has them in this order. */
typedef enum ht_zero_class {
    HT_ZERO_HALF_GATHERED,  /* as its half copy, of which every rank has a piece: stage 3 */
    HT_ZERO_HALF,           /* as its half copy, which is whole; its master is in pieces */
    HT_ZERO_PARAM_GATHERED, /* as it is, and every rank has a piece: stage 3 */
    HT_ZERO_PARAM,          /* as it is, whole */
    HT_ZERO_CLASSES
} ht_zero_class;

/* A bucket: elements of a flat group that are exchanged at once, of which each rank owns a piece, one behind the other. */
typedef struct ht_zero_bucket {
    int64_t first, count; /* in the group's layout; multiples of ranks × 16 */
    ht_zero_class class;
} ht_zero_bucket;

/* A tensor of a group. */
typedef struct ht_zero_member {
    ht_val param, copy; /* copy: its half copy, or none */
    ht_zero_class class;
    int64_t was;   /* where it was in the flat state */
    int64_t first; /* where it is in the group's layout */
    int64_t elems;
    size_t bucket;
} ht_zero_member;

enum {
    HT_ZERO_MOMENTS = 4,
    HT_ZERO_ALIGN = 16,            /* elements between starts: as in flat groups */
    HT_ZERO_LATE_BUCKET = 1 << 24, /* elements, with an offload: what is exchanged is in memory beside the state */
    HT_ZERO_BUCKETS = 16,          /* that a model has at least, */
    HT_ZERO_LEAST_BUCKET = 1 << 16 /* if they are of so many elements */
};

/* A flat group. Its states as the optimizer made them, and those beside them that hold some of its buckets now. */
typedef struct ht_zero_group {
    ht_val param, grad, half; /* half: of copies, or none */
    ht_val moments[HT_ZERO_MOMENTS];
    size_t moment_count;
    ht_val whole; /* parameters that are whole; none: they are all, or there are none, and `param` has the others */
    ht_val half_parts;            /* copies in pieces; none: there are none */
    bool copies_params;           /* the model reads both copies and parameters of some tensors */
    bool by_tensor;               /* its rule looks at whole tensors: each is a bucket of its own */
    int64_t end[HT_ZERO_CLASSES]; /* of the layout, by class; the last is that of all */
    ht_zero_member *members;      /* in the order of the layout */
    ht_zero_bucket *buckets;
    size_t member_count, bucket_count;
} ht_zero_group;

/* A view of a group's state, which the optimizer or autocast made. */
typedef struct ht_zero_place {
    ht_val state; /* of the group, as it was made; none: this is no such view */
    size_t bucket;
} ht_zero_place;

/* A sum over ranks that was begun, of what is in a state and maybe in another type there, or the mean; the state receives
 * it. */
typedef struct ht_zero_sum {
    ht_val start, from, state;
    bool mean;
} ht_zero_sum;

typedef struct ht_zero {
    ht_graph *g;
    const ht_zero_options *options;
    ht_group ranks; /* that share a batch */
    ht_zero_group *groups;
    size_t group_count;
    uint64_t *hashes;      /* by value id: of the model, before anything was changed */
    size_t known;          /* values that were there before */
    ht_zero_place *places; /* by value id: where a tensor, its gradient, its moments and its copy are */
    int64_t
        most; /* elements of a bucket, but for a larger tensor: a model has several, each exchanged while the next is made */
    bool alone;        /* every tensor is a bucket: copies in f8 are made of whole ones */
    bool late;         /* what the update made is gathered behind it, by the segment "gather" */
    ht_val finite;     /* a state: are this rank's own gradients finite, before they are summed? none: nobody asks */
    ht_zero_sum *sums; /* that "exchange" has begun and not ended */
    size_t sum_count, sum_capacity;
} ht_zero;

/* "micro_first", "micro", and those of further shapes, "micro:2". */
bool ht_is_micro(const ht_segment *s);
bool ht_is_micro_first(const ht_segment *s);
/* Neither "update" nor what gives state its values: the model's own. */
bool ht_is_of_model(const ht_segment *s);

/* Outputs of a segment: the losses and counts of a step's micro-batches, summed over them and over ranks. */
void ht_sum_losses(ht_graph *g, uint32_t exchange, ht_group ranks);
/* Programs call the segment before the update, or behind it. */
void ht_call_beside_update(ht_graph *g, uint32_t segment, bool behind);

/* A view of elements of a flat state, made once: "flat.grad.f32.bucket3". It is never saved. */
ht_val ht_zero_view(ht_graph *g, ht_val flat, const char *what, int64_t index, int64_t first, int64_t count);

/* zero_layout.c: the flat groups; then what a rank holds of them. */
ht_status ht_zero_find_groups(ht_zero *z);
ht_status ht_zero_lay_out(ht_zero *z);
void ht_zero_free(ht_zero *z);
/* Elements of a bucket that are this rank's. */
int64_t ht_zero_piece(const ht_zero *z, const ht_zero_bucket *bucket);
/* Of a state of the group as the optimizer made it: does a rank hold pieces of this bucket only? */
bool ht_zero_in_pieces(const ht_zero *z, const ht_zero_group *group, ht_val state, size_t bucket);
/* Its piece of the bucket; and the bucket where it is whole. */
ht_val ht_zero_piece_of(const ht_zero *z, const ht_zero_group *group, ht_val state, size_t bucket);
ht_val ht_zero_bucket_of(const ht_zero *z, const ht_zero_group *group, ht_val state, size_t bucket);

/* zero_update.c: the segments "update", "init" and "derive" on pieces. */
ht_status ht_zero_cut_update(ht_zero *z);
ht_status ht_zero_cut_init(ht_zero *z);
ht_status ht_zero_cut_derive(ht_zero *z);
/* Where z->late: the segment "gather". */
ht_status ht_zero_gather_late(ht_zero *z);
/* zero_exchange.c: begins the sums of gradients that are whole, in stages 0 and 1; with a loss scale: are those of this rank
 * finite? And that of a state, which becomes the mean. */
ht_val ht_zero_begin_gradients(ht_zero *z);
void ht_zero_begin_mean(ht_zero *z, ht_val state);
/* Waits for them, and stores. */
void ht_zero_end_sums(ht_zero *z);
/* In which type gradients of this one cross. */
ht_dtype ht_zero_exchange_dtype(const ht_zero *z, ht_dtype accumulated);
/* zero_gradients.c: from stage 2 on, the sums of gradients as they are made, each rank its piece. */
ht_status ht_zero_scatter_in_backward(ht_zero *z);
/* zero_gather.c: what the model reads of tensors in pieces is gathered before it is read. */
ht_status ht_zero_gather_params(ht_zero *z);

#endif
