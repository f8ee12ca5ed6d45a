/* Element-wise calls of one shape that run together; results all lie alike, and elements are counted as they lie. Every value
 * is rounded as it would be in memory: the bits are those of the calls run alone. What only they see never reaches memory:
 *     - in registers (a chain), block after block, where all of them can: kernel/elementwise/chain.h;
 *     - else in a few KiB of the first cache: the elements are taken in short spans, and over each all calls run one
 *       after the other. So do the elements behind a chain's last whole block.
 * A product may come before them (its result is handed over block by block), a reduction behind them (it takes what it
 * folds piece by piece).
 *
 * A call alone is the smallest case: that is how element-wise kernels run at all. */
#ifndef HT_KERNEL_FUSED_H
#define HT_KERNEL_FUSED_H

enum {
    HT_FUSED_STEPS = 32,
    HT_FUSED_OPERANDS = 48, /* inputs, results and values between */
    HT_STEP_OPERANDS = 12,  /* inputs and results of one call */
    HT_FOLD_MOST = 1024,    /* elements that a reduction takes at a time */
    HT_FUSED_SCRATCH = 64 << 10,
    HT_LONG_ROW = 128 /* elements of a row that is taken by itself, where it lies; also of an epilogue */
};
/* The longest chain of so many calls: each may stage, load and store; and the end. */
#define HT_CHAIN_OPS(steps) (4 * (steps) + 1)

/* How the elements of an operand come before the calls. */
typedef enum ht_operand_access {
    HT_ACCESS_FLAT,     /* a row-major array: where they lie */
    HT_ACCESS_LINE,     /* rows that lie together, one at a time: where they lie */
    HT_ACCESS_WHOLE,    /* a single number, or what else is not of the shape: as it is */
    HT_ACCESS_STREAMED, /* a large result: written past the caches */
    HT_ACCESS_CONSTANT, /* one number for all elements: copied once */
    HT_ACCESS_ROW,      /* one number for all elements of a row: copied for each row */
    HT_ACCESS_REPEATED, /* the same for every span: copied together once */
    HT_ACCESS_GATHERED, /* copied together for each span */
    HT_ACCESS_BETWEEN,  /* a value that only the calls see */
    HT_ACCESS_BLOCK,    /* the product before the calls: in the block that it hands over */
    HT_ACCESS_FOLDED    /* a value that only the reduction behind the calls reads: a piece of it */
} ht_operand_access;

typedef struct ht_fused_operand {
    const ht_type *type;
    ht_operand_access access;
    int32_t bytes;               /* of an element */
    int32_t scratch;             /* bytes from the start of the scratch, where the access needs some */
    int64_t stride[HT_MAX_RANK]; /* over the merged axes */
} ht_fused_operand;

typedef struct ht_fused_step {
    const ht_call *call;
    const ht_elementwise *elementwise;
    uint8_t operand[HT_STEP_OPERANDS]; /* its inputs, then its results: places among the operands */
} ht_fused_step;

/* ---- chains ---- */

/* A step of a chain; its true type is ht_chain_fn of its build. */
typedef void (*ht_chain_step)(void);

enum { HT_CHAIN_NOTHING = -1, HT_CHAIN_STAGE = -2 }; /* instead of an operand: none, the block for conversions */

typedef struct ht_chain_op {
    ht_chain_step run;
    char *memory[2];  /* of its operands, for the elements at hand */
    int64_t bytes[2]; /* from element to element; 0: a block of its own */
    double bound[2];
    int16_t operand[2];
} ht_chain_op;

/* What one build of chain.cpu.c offers. */
typedef struct ht_chain_build {
    ht_dtype native;
    int64_t block;
    struct {
        ht_chain_step load, stage, store, stream;
    } moves[HT_DTYPE_COUNT]; /* NULL: it does not know the type */
    ht_chain_step end;
    void (*run)(const ht_chain_op *ops, int64_t n); /* the whole blocks of n elements */
} ht_chain_build;

typedef struct ht_chain_row {
    const ht_chain_build *build;
    ht_chain_step forward, reverse; /* the registers hold the first operand, the second; forward NULL: nothing to do */
    void (*bounds)(const ht_call *call, double *bound); /* NULL: none */
} ht_chain_row;

/* ---- together ---- */

/* Operands: n_in inputs, n_out results (as in the launch), then what lies between. */
typedef struct ht_fused {
    int n_in, n_out, n_between, step_count;
    ht_fused_operand *operands; /* types filled in by the producer, all else by ht_fused_compile */
    const ht_fused_step *steps;
    const ht_chain_op *chain; /* NULL: by spans alone */
    int chain_count;
    /* Axes, merged where the strides of all inputs allow. */
    int rank;
    int64_t dim[HT_MAX_RANK];
    bool by_rows; /* a span stays inside a row of the last axis */
    int64_t elems, span, grain;
    /* A product whose epilogue these calls are: its inputs come behind the n_in of the launch, its result is the operand
     * `product`, the first of those between. NULL: none. */
    const ht_call *gemm;
    int product;
    /* A reduction of operand `folded`, a result or one between: what else it reads comes behind the n_in of the launch, its
     * own results behind the n_out, and its kernel runs the calls. NULL: none. */
    const ht_call *fold;
    int folded;
} ht_fused;

/* `chain` gives space for HT_CHAIN_OPS(step_count) and must live as long as *fused; NULL: by spans alone. */
void ht_fused_compile(ht_fused *fused, ht_chain_op *chain);
void ht_fused_run(const ht_fused *fused, const ht_launch *launch);
/* After ht_fused_compile: the next instruction reads this result at once, so it is not stored past the caches. */
void ht_fused_keep_cached(ht_fused *fused, int result);
/* Rows [from, to), where all elements are so many rows; the caller has threads of its own. */
void ht_fused_rows(const ht_fused *fused, const ht_launch *launch, int64_t from, int64_t to, int64_t rows);
/* A call alone, compiled; the arrays have space for its operands and HT_CHAIN_OPS(1), and live as long as *fused. */
void ht_fused_alone(ht_fused *fused, ht_fused_operand *operands, ht_fused_step *step, ht_chain_op *chain,
                    const ht_call *call, const ht_elementwise *elementwise);

/* For a product: a launch under way, and a block of its result, `rows` lines of n elements that lie `pitch` bytes apart.
 * Line i holds the elements from first + i · step on. Blocks may come from any thread. */
typedef struct ht_epilogue {
    const ht_fused *f;
    const ht_launch *launch;
    ht_operand_access access[HT_FUSED_OPERANDS]; /* of this launch: a result that lies over an input is not streamed */
    _Alignas(64) char constants[HT_FUSED_STEPS][HT_SPAN_CONSTANTS];
} ht_epilogue;
/* The `takes` of products that hand over f32 by ht_epilogue_block: any calls, if their rows are long enough. */
const char *ht_epilogue_takes(const ht_call *call, const ht_fusion *fusion, const ht_target *target);
void ht_epilogue_begin(ht_epilogue *epilogue, const ht_fused *fused, const ht_launch *launch);
void ht_epilogue_block(const ht_epilogue *epilogue, int64_t first, int64_t step, int64_t rows, int64_t n, char *block,
                       int64_t pitch);

/* For a reduction, after ht_epilogue_begin: what one thread needs for a tile, and elements [first, first + n) of what is
 * folded, as an array of its type that lasts until the next call; n is at most HT_FOLD_MOST. The results of the calls are
 * made along the way, so each element must be asked for once. */
typedef struct ht_fused_tile {
    _Alignas(64) char scratch[HT_FUSED_SCRATCH];
    ht_chain_op ops[HT_CHAIN_OPS(HT_FUSED_STEPS)];
    void *at[HT_FUSED_OPERANDS];
} ht_fused_tile;
void ht_fused_open(const ht_epilogue *epilogue, ht_fused_tile *tile);
const void *ht_fused_piece(const ht_epilogue *epilogue, ht_fused_tile *tile, int64_t first, int64_t n);

/* The steps of a chain into `ops`, which may be NULL; how many there are, 0 where a chain cannot be. */
int ht_chain_make(const ht_fused *fused, ht_chain_op *ops);

/* The `run` of an element-wise row. */
void ht_elementwise_launch(const ht_launch *launch, const ht_elementwise *elementwise);

#endif
