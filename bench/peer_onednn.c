/* oneDNN (version 2, as Debian 12 has it) as a peer: sgemm, the matmul primitive, and convolution in its three
 * directions. Convolutions read and write plain layouts; the library chooses its own inside, and reordering to and from
 * them is part of the call. */
#include <oneapi/dnnl/dnnl.h>
#include <stdlib.h>

#include "peer_serve.h"

enum { MOST_STEPS = 8, MOST_MEMORIES = 16 };

/* A call is a list of primitives; each has at most three operands. */
typedef struct step {
    dnnl_primitive_t primitive;
    dnnl_exec_arg_t args[3];
    int arg_count;
} step;

static dnnl_engine_t engine;
static dnnl_stream_t stream;

static struct {
    bool sgemm;
    char ta, tb;
    dnnl_dim_t m, n, k;
    float *a, *b, *c;
    step steps[MOST_STEPS];
    int step_count;
    dnnl_memory_t memories[MOST_MEMORIES];
    int memory_count;
    const char *failed; /* the first thing that went wrong while preparing */
} job;

static bool ok(dnnl_status_t status, const char *what)
{
    if (status != dnnl_success && !job.failed) job.failed = what;
    return status == dnnl_success;
}

static void forget(void)
{
    for (int i = 0; i < job.step_count; i++) dnnl_primitive_destroy(job.steps[i].primitive);
    for (int i = 0; i < job.memory_count; i++) dnnl_memory_destroy(job.memories[i]);
    free(job.a);
    free(job.b);
    free(job.c);
    memset(&job, 0, sizeof job);
}

static dnnl_memory_t make_memory(const dnnl_memory_desc_t *desc)
{
    dnnl_memory_t memory = NULL;
    void *data;
    if (!ok(dnnl_memory_create(&memory, desc, engine, DNNL_MEMORY_ALLOCATE), "memory")) return NULL;
    job.memories[job.memory_count++] = memory;
    size_t bytes = dnnl_memory_desc_get_size(desc);
    if (!ok(dnnl_memory_get_data_handle(memory, &data), "memory")) return NULL;
    if (desc->data_type == dnnl_f32)
        serve_fill(data, bytes / sizeof(float));
    else if (desc->data_type == dnnl_u8 || desc->data_type == dnnl_s8)
        for (size_t i = 0; i < bytes; i++) ((uint8_t *)data)[i] = (uint8_t)(i * 2654435761u >> 16);
    else /* bf16: 1.0 to 1.99 */
        for (size_t i = 0; i < bytes / 2; i++) ((uint16_t *)data)[i] = (uint16_t)(0x3f80 + i * 37 % 128);
    return memory;
}

static dnnl_memory_desc_t describe(int rank, const dnnl_dim_t *dims, dnnl_data_type_t type, dnnl_format_tag_t tag)
{
    dnnl_memory_desc_t desc;
    memset(&desc, 0, sizeof desc);
    ok(dnnl_memory_desc_init_by_tag(&desc, rank, dims, type, tag), "a layout is not known");
    return desc;
}

static void add_step(dnnl_primitive_desc_t desc, int count, const dnnl_exec_arg_t *args)
{
    step *s = &job.steps[job.step_count];
    if (!ok(dnnl_primitive_create(&s->primitive, desc), "no such primitive")) return;
    memcpy(s->args, args, (size_t)count * sizeof *args);
    s->arg_count = count;
    job.step_count++;
}

/* ---- products ---- */

static void prepare_matmul(const serve_request *r)
{
    dnnl_data_type_t type = strcmp(r->dtype, "bf16") == 0 ? dnnl_bf16 : dnnl_f32;
    dnnl_dims_t a = {r->size[0], r->size[2]}, b = {r->size[2], r->size[1]}, c = {r->size[0], r->size[1]};
    dnnl_memory_desc_t da = describe(2, a, type, r->layout[0] == 'T' ? dnnl_ba : dnnl_ab);
    dnnl_memory_desc_t db = describe(2, b, type, r->layout[1] == 'T' ? dnnl_ba : dnnl_ab);
    dnnl_memory_desc_t dc = describe(2, c, type, dnnl_ab);
    dnnl_matmul_desc_t op;
    dnnl_primitive_desc_t desc;
    if (job.failed || !ok(dnnl_matmul_desc_init(&op, &da, &db, NULL, &dc), "matmul")) return;
    if (!ok(dnnl_primitive_desc_create(&desc, &op, NULL, engine, NULL), "this matmul is not implemented")) return;
    dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, make_memory(&da)}, {DNNL_ARG_WEIGHTS, make_memory(&db)}, {DNNL_ARG_DST, make_memory(&dc)}};
    if (!job.failed) add_step(desc, 3, args);
    dnnl_primitive_desc_destroy(desc);
}

/* Products of codes, as quantised layers have them: the weights lie as the library wants them, the results are codes again. */
static void prepare_codes(const serve_request *r)
{
    dnnl_dims_t a = {r->size[0], r->size[2]}, b = {r->size[2], r->size[1]}, c = {r->size[0], r->size[1]};
    dnnl_memory_desc_t da = describe(2, a, dnnl_u8, dnnl_ab), dc = describe(2, c, dnnl_u8, dnnl_ab);
    dnnl_memory_desc_t db = describe(2, b, dnnl_s8, dnnl_format_tag_any);
    dnnl_matmul_desc_t op;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_attr_t attr;
    float *scales = serve_alloc((size_t)r->size[1] * sizeof *scales);
    for (long i = 0; scales && i < r->size[1]; i++) scales[i] = 0.0001f;
    if (job.failed || !scales || !ok(dnnl_primitive_attr_create(&attr), "attributes")) return;
    ok(dnnl_primitive_attr_set_output_scales(attr, r->size[1], 1 << 1, scales), "scales");
    if (ok(dnnl_matmul_desc_init(&op, &da, &db, NULL, &dc), "matmul") &&
        ok(dnnl_primitive_desc_create(&desc, &op, attr, engine, NULL), "this matmul is not implemented")) {
        const dnnl_memory_desc_t *own = dnnl_primitive_desc_query_md(desc, dnnl_query_weights_md, 0);
        dnnl_exec_arg_t args[] = {
            {DNNL_ARG_SRC, make_memory(&da)}, {DNNL_ARG_WEIGHTS, make_memory(own)}, {DNNL_ARG_DST, make_memory(&dc)}};
        if (!job.failed) add_step(desc, 3, args);
        dnnl_primitive_desc_destroy(desc);
    }
    dnnl_primitive_attr_destroy(attr);
    free(scales);
}

static void prepare_sgemm(const serve_request *r)
{
    job.ta = r->layout[0];
    job.tb = r->layout[1];
    job.m = r->size[0];
    job.n = r->size[1];
    job.k = r->size[2];
    size_t m = (size_t)job.m, n = (size_t)job.n, k = (size_t)job.k;
    job.a = serve_alloc(m * k * sizeof(float));
    job.b = serve_alloc(k * n * sizeof(float));
    job.c = serve_alloc(m * n * sizeof(float));
    job.sgemm = job.a && job.b && job.c;
    if (!job.sgemm) {
        job.failed = "out of memory";
        return;
    }
    serve_fill(job.a, m * k);
    serve_fill(job.b, k * n);
}

/* ---- convolutions ---- */

static void add_reorder(dnnl_memory_t from, const dnnl_memory_desc_t *from_desc, dnnl_memory_t to,
                        const dnnl_memory_desc_t *to_desc)
{
    dnnl_primitive_desc_t desc;
    if (!ok(dnnl_reorder_primitive_desc_create(&desc, from_desc, engine, to_desc, engine, NULL), "reorder")) return;
    dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}};
    add_step(desc, 2, args);
    dnnl_primitive_desc_destroy(desc);
}

/* The plain operand in the layout that the primitive wants, after a reorder where they differ. */
static dnnl_memory_t bring_in(const dnnl_memory_desc_t *plain, const dnnl_memory_desc_t *wanted)
{
    dnnl_memory_t memory = make_memory(plain);
    if (!memory || dnnl_memory_desc_equal(plain, wanted)) return memory;
    dnnl_memory_t own = make_memory(wanted);
    if (own) add_reorder(memory, plain, own, wanted);
    return own;
}

typedef struct convolution {
    dnnl_memory_desc_t src, weights, dst; /* plain */
    dnnl_dims_t strides, padding;
} convolution;

static convolution describe_convolution(const serve_request *r, bool plain)
{
    const long *s = r->size;
    dnnl_dims_t src = {s[0], s[1], s[2], s[3]}, weights = {s[4], s[1], s[5], s[5]}, dst = {s[0], s[4], s[2], s[3]};
    return (convolution){
        .src = describe(4, src, dnnl_f32, plain ? dnnl_nchw : dnnl_format_tag_any),
        .weights = describe(4, weights, dnnl_f32, plain ? dnnl_oihw : dnnl_format_tag_any),
        .dst = describe(4, dst, dnnl_f32, plain ? dnnl_nchw : dnnl_format_tag_any),
        .strides = {1, 1},
        .padding = {s[5] / 2, s[5] / 2},
    };
}

static bool create_convolution(const char *direction, const convolution *any, dnnl_primitive_desc_t *desc)
{
    dnnl_convolution_desc_t op;
    dnnl_primitive_desc_t forward;
    if (!ok(dnnl_convolution_forward_desc_init(&op, dnnl_forward_training, dnnl_convolution_direct, &any->src,
                                               &any->weights, NULL, &any->dst, any->strides, any->padding,
                                               any->padding),
            "convolution") ||
        !ok(dnnl_primitive_desc_create(&forward, &op, NULL, engine, NULL), "this convolution is not implemented"))
        return false;
    if (strcmp(direction, "conv_forward") == 0) {
        *desc = forward;
        return true;
    }
    dnnl_status_t status =
        strcmp(direction, "conv_data") == 0
            ? dnnl_convolution_backward_data_desc_init(&op, dnnl_convolution_direct, &any->src, &any->weights,
                                                       &any->dst, any->strides, any->padding, any->padding)
            : dnnl_convolution_backward_weights_desc_init(&op, dnnl_convolution_direct, &any->src, &any->weights, NULL,
                                                          &any->dst, any->strides, any->padding, any->padding);
    bool made = ok(status, "convolution") &&
                ok(dnnl_primitive_desc_create(desc, &op, NULL, engine, forward), "this gradient is not implemented");
    dnnl_primitive_desc_destroy(forward);
    return made;
}

/* The operands of each direction: two that are read, one that is written. */
static void prepare_convolution(const serve_request *r)
{
    convolution plain = describe_convolution(r, true), any = describe_convolution(r, false);
    dnnl_primitive_desc_t desc;
    if (job.failed || !create_convolution(r->op, &any, &desc)) return;
    struct {
        const dnnl_memory_desc_t *plain;
        dnnl_query_t query;
        int arg;
    } o[3] = {{&plain.src, dnnl_query_src_md, DNNL_ARG_SRC},
              {&plain.weights, dnnl_query_weights_md, DNNL_ARG_WEIGHTS},
              {&plain.dst, dnnl_query_dst_md, DNNL_ARG_DST}};
    int written = 2;
    if (strcmp(r->op, "conv_forward") != 0) {
        o[2].query = dnnl_query_diff_dst_md;
        o[2].arg = DNNL_ARG_DIFF_DST;
        written = strcmp(r->op, "conv_data") == 0 ? 0 : 1;
        o[written].query = written == 0 ? dnnl_query_diff_src_md : dnnl_query_diff_weights_md;
        o[written].arg = written == 0 ? DNNL_ARG_DIFF_SRC : DNNL_ARG_DIFF_WEIGHTS;
    }
    dnnl_exec_arg_t args[3];
    const dnnl_memory_desc_t *inside = NULL;
    for (int i = 0; i < 3; i++) {
        const dnnl_memory_desc_t *wanted = dnnl_primitive_desc_query_md(desc, o[i].query, 0);
        args[i].arg = o[i].arg;
        args[i].memory = i == written ? make_memory(wanted) : bring_in(o[i].plain, wanted);
        if (i == written) inside = wanted;
    }
    if (!job.failed) add_step(desc, 3, args);
    if (!job.failed && !dnnl_memory_desc_equal(o[written].plain, inside)) {
        dnnl_memory_t result = make_memory(o[written].plain);
        if (result) add_reorder(args[written].memory, inside, result, o[written].plain);
    }
    dnnl_primitive_desc_destroy(desc);
}

static const char *prepare(const serve_request *r)
{
    forget();
    bool f32 = strcmp(r->dtype, "f32") == 0;
    if (strcmp(r->op, "sgemm") == 0 && f32 && r->size_count == 3)
        prepare_sgemm(r);
    else if (strcmp(r->op, "matmul") == 0 && strcmp(r->dtype, "u8s8u8") == 0 && r->size_count == 3)
        prepare_codes(r);
    else if (strcmp(r->op, "matmul") == 0 && r->size_count == 3)
        prepare_matmul(r);
    else if (strncmp(r->op, "conv_", 5) == 0 && f32 && r->size_count == 6)
        prepare_convolution(r);
    else
        return "knows sgemm, matmul and conv_* only";
    return job.failed;
}

static void call(void)
{
    if (job.sgemm)
        dnnl_sgemm(job.ta, job.tb, job.m, job.n, job.k, 1, job.a, job.ta == 'T' ? job.m : job.k, job.b,
                   job.tb == 'T' ? job.k : job.n, 0, job.c, job.n);
    for (int i = 0; i < job.step_count; i++)
        dnnl_primitive_execute(job.steps[i].primitive, stream, job.steps[i].arg_count, job.steps[i].args);
    dnnl_stream_wait(stream);
}

int main(void)
{
    /* Debian's 2.6.3 ends in an illegal instruction where it uses AMX; the environment may say otherwise. */
    setenv("DNNL_MAX_CPU_ISA", "AVX512_CORE_BF16", 0);
    const dnnl_version_t *version = dnnl_version();
    if (version->major != 2) {
        serve_refuse("this peer is written for version 2 of the library");
        return 1;
    }
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&stream, engine, dnnl_stream_default_flags) != dnnl_success) {
        serve_refuse("no CPU engine");
        return 1;
    }
    printf("ready: oneDNN %d.%d.%d, effective ISA %#x\n", version->major, version->minor, version->patch,
           (unsigned)dnnl_get_effective_cpu_isa());
    fflush(stdout);
    return serve(&(serve_peer){prepare, call});
}
