/* What the files of the pass zero share. */
#ifndef HT_PASS_ZERO_H
#define HT_PASS_ZERO_H

#include "op/collective.h"
#include "pass/pass.h"

/* A bucket: elements of a flat group that are exchanged at once, of which each rank owns a piece, one behind the other. */
typedef struct ht_zero_bucket {
    int64_t first, count; /* in the group's layout; multiples of ranks × 16 */
    bool half;            /* the model reads half copies of it alone; false: it reads the parameters themselves */
} ht_zero_bucket;

/* A tensor of a group. */
typedef struct ht_zero_member {
    ht_val param;
    ht_val half;   /* its half copy, if the model reads nothing else of it */
    int64_t was;   /* where it was in the flat state */
    int64_t first; /* where it is in the group's layout */
    int64_t elems;
    size_t bucket;
} ht_zero_member;

enum { HT_ZERO_MOMENTS = 4 };

/* A flat group, whose members are laid out by buckets: those of half copies, `half_elems` of them, and then the others. */
typedef struct ht_zero_group {
    ht_val param;                    /* masters of half buckets, in pieces; with none of them all parameters, whole */
    ht_val whole;                    /* parameters of the other buckets, whole; none: there are none of them */
    ht_val half;                     /* copies of half buckets, whole; none: there are none of them */
    bool copies_all;                 /* others have copies, too: then `half` has all buckets */
    ht_val grad;                     /* whole in stage 1, in pieces from stage 2 on */
    ht_val moments[HT_ZERO_MOMENTS]; /* in pieces */
    size_t moment_count;
    int64_t elems, half_elems, old_elems;
    ht_zero_member *members; /* in the order of the layout */
    ht_zero_bucket *buckets;
    size_t member_count, bucket_count;
} ht_zero_group;

typedef struct ht_zero {
    ht_graph *g;
    const ht_zero_options *options;
    ht_group ranks; /* that share a batch */
    ht_zero_group *groups;
    size_t group_count;
    uint64_t *hashes; /* by value id: of the model, before anything was changed */
    size_t known;     /* values that were there before */
} ht_zero;

/* "micro_first", "micro", and those of further shapes, "micro:2". */
bool ht_is_micro(const ht_segment *s);
bool ht_is_micro_first(const ht_segment *s);

/* A view of elements of a flat state, made once: "flat.grad.f32.bucket3". It is never saved. */
ht_val ht_zero_view(ht_graph *g, ht_val flat, const char *what, int64_t index, int64_t first, int64_t count);

/* zero_layout.c: the flat groups; then what a rank holds of them. */
ht_status ht_zero_find_groups(ht_zero *z);
ht_status ht_zero_lay_out(ht_zero *z);
void ht_zero_free(ht_zero *z);
/* Elements of a bucket that are this rank's; and where they begin in the group's layout. */
int64_t ht_zero_piece(const ht_zero *z, const ht_zero_bucket *bucket);
int64_t ht_zero_own(const ht_zero *z, const ht_zero_bucket *bucket);
/* This rank's piece of a bucket in a state of the group, which holds all or only pieces. */
ht_val ht_zero_piece_of(const ht_zero *z, const ht_zero_group *group, ht_val state, size_t bucket);
/* A bucket of a state that is whole. */
ht_val ht_zero_bucket_of(const ht_zero *z, const ht_zero_group *group, ht_val state, size_t bucket);

/* zero_update.c: the segments "update", "init" and "derive" on pieces. */
ht_status ht_zero_cut_update(ht_zero *z);
ht_status ht_zero_cut_init(ht_zero *z);
ht_status ht_zero_cut_derive(ht_zero *z);
/* zero_gradients.c: the sums of gradients, each rank its piece: where they lie, or as they are made. */
void ht_zero_scatter_gradients(ht_zero *z);
ht_status ht_zero_scatter_in_backward(ht_zero *z);

#endif
