/* A model of the caches while a plan runs. Areas are cut into pages; each remembers how many bytes had been touched in all
 * when it was touched last. How many have been touched since, each counted once, is its reuse distance (what is touched
 * again and again counts more, but never more than there is): a cache that is larger still has it.
 * Beyond the last cache some of it is still there: real caches do not drop the oldest line first. */
#include <stdlib.h>

#include "plan/plan.h"

enum { PAGES = 1 << 14, LEAST_PAGE = 4096 };

typedef struct page_area {
    int64_t page_bytes;
    size_t count;
    double *touched; /* by page: the clock then; below 0: never */
} page_area;

struct ht_cache_model {
    page_area areas[HT_AREA_COUNT]; /* of main */
    double size[HT_CACHE_COUNT];    /* bytes of all caches of a level that the threads have */
    double clock;                   /* bytes touched so far */
    double footprint;               /* bytes of pages that were touched at all: no distance is longer */
    double block;                   /* the clock when a row block began; below 0: there is none */
    bool fetches;                   /* a line that is written is fetched before: so do processors */
};

ht_cache_model *ht_cache_model_create(const ht_plan *plan)
{
    ht_cache_model *m = calloc(1, sizeof *m);
    const ht_target *t = &plan->target;
    if (!m) return NULL;
    bool cuda = t->device == HT_DEVICE_CUDA; /* its second level is one for all, and its last */
    m->block = -1;
    m->fetches = !cuda;
    for (int level = 0; level < HT_CACHE_COUNT; level++)
        m->size[level] = t->cache_bytes[level] * (!cuda && level < HT_CACHE_L3 && t->threads > 1 ? t->threads : 1);
    for (int area = 0; area < HT_AREA_COUNT; area++) {
        page_area *a = &m->areas[area];
        int64_t bytes = plan->area_bytes[HT_SPACE_MAIN][area];
        a->page_bytes = bytes / PAGES > LEAST_PAGE ? bytes / PAGES : LEAST_PAGE;
        a->count = (size_t)(bytes / a->page_bytes + 1);
        a->touched = malloc(a->count * sizeof *a->touched);
        for (size_t i = 0; a->touched && i < a->count; i++) a->touched[i] = -1;
        if (a->touched) continue;
        ht_cache_model_free(m);
        return NULL;
    }
    return m;
}

void ht_cache_model_free(ht_cache_model *m)
{
    if (!m) return;
    for (int area = 0; area < HT_AREA_COUNT; area++) free(m->areas[area].touched);
    free(m);
}

void ht_cache_model_block(ht_cache_model *m, bool begin)
{
    m->block = begin ? m->clock : -1;
}

/* Adds bytes whose page was touched at that time. */
static void add_bytes(const ht_cache_model *m, double touched, double bytes, ht_traffic *to)
{
    double distance = m->clock - touched < m->footprint ? m->clock - touched : m->footprint;
    if (touched < 0) {
        to->bytes[HT_CACHE_COUNT] += bytes;
    } else if (distance < m->size[HT_CACHE_L2] || (m->block >= 0 && touched >= m->block)) {
        to->bytes[HT_CACHE_L2] += bytes;
    } else if (distance < m->size[HT_CACHE_L3]) {
        to->bytes[HT_CACHE_L3] += bytes;
    } else {
        ht_cache last = m->size[HT_CACHE_L3] > 0 ? HT_CACHE_L3 : HT_CACHE_L2;
        double left = m->size[last] / distance;
        to->bytes[last] += left * bytes;
        to->bytes[HT_CACHE_COUNT] += (1 - left) * bytes;
    }
}

static double span_of(const ht_type *type)
{
    int64_t last = 0;
    if (ht_type_elems(type) == 0) return 0;
    for (int i = 0; i < type->rank; i++) last += (type->dim[i] - 1) * type->stride[i];
    return (double)(last + 1) * (double)ht_dtype_bytes(type->dtype);
}

/* `bytes` of an operand, spread evenly over its pages. */
static void touch(ht_cache_model *m, const ht_place *place, const ht_type *type, double bytes, ht_traffic *to)
{
    double span = span_of(type);
    if (place->space != HT_SPACE_MAIN || place->area == HT_AREA_NONE || span <= 0) return;
    page_area *a = &m->areas[place->area];
    size_t first = (size_t)(place->offset / a->page_bytes);
    size_t end = (size_t)(((double)place->offset + span - 1) / (double)a->page_bytes) + 1;
    if (end > a->count) end = a->count; /* further slots of inputs */
    if (first >= end) first = 0, end = end > 0 ? 1 : 0;
    double each = end > first ? bytes / (double)(end - first) : 0;
    for (size_t page = first; page < end; page++) {
        if (a->touched[page] < 0) m->footprint += (double)a->page_bytes;
        add_bytes(m, a->touched[page], each, to);
        a->touched[page] = m->clock;
    }
    m->clock += bytes;
}

/* Results come first: a line that is written is fetched before, unless it is an operand as well, which then is there, and
 * goes back to memory later, if it came from there. */
ht_traffic ht_cache_model_run(ht_cache_model *m, const ht_instr *instr)
{
    const ht_call *call = instr->call;
    ht_traffic traffic = {{0}};
    double read = 0, written = 0;
    for (size_t i = 0; i < call->n_out; i++) {
        double bytes = (double)ht_type_distinct_bytes(call->out[i]);
        touch(m, &instr->out[i], call->out[i], bytes, &traffic);
        written += bytes;
    }
    if (m->fetches) traffic.bytes[HT_CACHE_COUNT] *= 2;
    for (size_t i = 0; i < call->n_in; i++)
        if (call->in[i]) read += (double)ht_type_distinct_bytes(call->in[i]);
    /* An operand that is named twice, and rows that are not looked up, count as the cost says. */
    double counted = instr->cost.bytes - written, share = read > counted && counted > 0 ? counted / read : 1;
    for (size_t i = 0; i < call->n_in; i++)
        if (call->in[i])
            touch(m, &instr->in[i], call->in[i], share * (double)ht_type_distinct_bytes(call->in[i]), &traffic);
    return traffic;
}
