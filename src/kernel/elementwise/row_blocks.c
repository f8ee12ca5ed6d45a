#include "kernel/kernel.h"

/* Elements of a block, about. At most: a few such arrays fit in the second cache. At least: a block costs each part a
 * start. Between them, a few blocks for each of a few threads. */
enum { BLOCK_ELEMS_MOST = 16384, BLOCK_ELEMS_LEAST = 4096, BLOCKS = 16 };

typedef struct row_blocks {
    const ht_row_block *block;
    const ht_launch *launches;
    int64_t grain;
} row_blocks;

static int64_t elems_of(const ht_launch *launch)
{
    return launch->fused ? launch->fused->elems : ht_type_elems(launch->call->in[0]);
}

static void run_block(void *arg, int64_t tile)
{
    const row_blocks *b = arg;
    int64_t rows = b->block->rows, from = tile * b->grain, to = from + b->grain < rows ? from + b->grain : rows;
    for (size_t i = 0; i < b->block->count; i++) {
        const ht_launch *launch = &b->launches[i];
        if (b->block->tell) b->block->tell(b->block->tell_arg, i, true, from, to);
        if (b->block->kernels[i]->elementwise)
            ht_fused_rows(launch->fused, launch, from, to, rows);
        else
            b->block->kernels[i]->reduce_rows->run_rows(launch, from, to);
        if (b->block->tell) b->block->tell(b->block->tell_arg, i, false, from, to);
    }
}

ht_status ht_row_block_run(const ht_launch *launches)
{
    const ht_row_block *block = launches->block;
    int64_t rows = block->rows, elems = rows;
    for (size_t i = 0; i < block->count; i++)
        if (elems_of(&launches[i]) > elems) elems = elems_of(&launches[i]);
    int64_t most = elems / BLOCKS < BLOCK_ELEMS_LEAST  ? BLOCK_ELEMS_LEAST
                   : elems / BLOCKS < BLOCK_ELEMS_MOST ? elems / BLOCKS
                                                       : BLOCK_ELEMS_MOST;
    row_blocks b = {block, launches, most / (elems / rows)};
    if (b.grain < 1) b.grain = 1;
    ht_parallel(launches[0].pool, (rows + b.grain - 1) / b.grain, run_block, &b);
    return HT_OK;
}
