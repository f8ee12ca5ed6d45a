/* Element-wise calls of one shape that run together. The elements are taken in short stretches; over each stretch all calls
 * run one after the other, so that what only they need lives in a few KiB of the first cache and never reaches memory.
 * Every value is rounded to its type as it would be in memory: the bits are those of the calls run alone.
 *
 * A call alone is the smallest case: that is how element-wise kernels run at all. */
#ifndef HT_KERNEL_FUSED_H
#define HT_KERNEL_FUSED_H

enum {
    HT_FUSED_STEPS = 32,
    HT_FUSED_OPERANDS = 48, /* inputs, results and values between */
    HT_STEP_OPERANDS = 12   /* inputs and results of one call */
};

/* How the elements of an operand come before the calls. */
typedef enum ht_way {
    HT_WAY_FLAT,     /* a row-major array: where they lie */
    HT_WAY_LINE,     /* rows that lie together, one at a time: where they lie */
    HT_WAY_WHOLE,    /* a single number, or what else is not of the shape */
    HT_WAY_REPEATED, /* the same for every stretch: copied together once */
    HT_WAY_GATHERED, /* copied together for each stretch */
    HT_WAY_STREAMED, /* a large result: written past the caches after each stretch */
    HT_WAY_BETWEEN   /* a value that only the calls see */
} ht_way;

typedef struct ht_fused_operand {
    const ht_type *type;
    ht_way way;
    int32_t scratch;             /* bytes from the start of the scratch, where the way needs some */
    int64_t stride[HT_MAX_RANK]; /* over the merged axes */
} ht_fused_operand;

typedef struct ht_fused_step {
    const ht_call *call;
    void (*begin)(const ht_stretch *whole, void *constants);
    void (*stretch)(const ht_stretch *stretch);
    uint8_t operand[HT_STEP_OPERANDS]; /* its inputs, then its results: places among the operands */
} ht_fused_step;

/* Operands: n_in inputs, n_out results (as in the launch), then what lies between. */
typedef struct ht_fused {
    int n_in, n_out, n_between, step_count;
    ht_fused_operand *operands; /* types filled in by the maker, all else by ht_fused_settle */
    const ht_fused_step *steps;
    /* Axes, merged where the strides of all inputs allow. */
    int rank;
    int64_t dim[HT_MAX_RANK];
    bool by_rows; /* a stretch stays inside a row of the last axis */
    int64_t elems, stretch, grain;
} ht_fused;

void ht_fused_settle(ht_fused *fused);
void ht_fused_run(const ht_fused *fused, const ht_launch *launch);

/* The `run` of an element-wise row. */
void ht_stretch_launch(const ht_launch *launch, void (*begin)(const ht_stretch *whole, void *constants),
                       void (*stretch)(const ht_stretch *stretch));

#endif
