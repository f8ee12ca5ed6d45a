/* The format `pairs`, with bucketing: a source, a tab, a target per line; anything after a second tab is ignored.
 *
 * A pair belongs to the smallest bucket that holds both sides. In an epoch the pairs of each bucket are shuffled, the
 * buckets are concatenated and cut into batches, so that the remainder of a bucket moves up into the next one; then the
 * batches are shuffled. Only the order changes from epoch to epoch; the number of batches per bucket is constant. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/inputs.h"
#include "data/order.h"
#include "data/vocabulary.h"

enum { MOST_LENGTH = 4096 };

typedef struct pair {
    int64_t source, target; /* where their ids begin */
    int32_t source_length, target_length;
    const char *text; /* the target as its line has it; NULL of pairs to train on */
} pair;

typedef struct pair_set {
    ht_ids source_ids, target_ids;
    pair *pairs[HT_DATA_PARTS]; /* by bucket */
    size_t counts[HT_DATA_PARTS], capacities[HT_DATA_PARTS];
    int64_t first[HT_DATA_PARTS][HT_DATA_MOST_BUCKETS + 1]; /* pair of each bucket */
} pair_set;

static const ht_key pair_keys[] = {
    HT_DATA_PATH_KEYS("false"),
    {"tokenizer", HT_KEY_CHOICE, "\"word\"", 0, 0, "word|char", "tokens are words and punctuation, or characters"},
    {"lowercase", HT_KEY_BOOL, "false", 0, 0, NULL, "fold the letters A to Z"},
    {"minimum_count", HT_KEY_INT, "2", 1, 1 << 30, NULL, "rarer tokens are unknown"},
    {"vocabulary_size", HT_KEY_INT, "null", 5, 1 << 24, NULL, "at most so many tokens for each side"},
    {"max_length", HT_KEY_INT, "32", 1, MOST_LENGTH, NULL, "pairs with a longer side are left out"},
    {"buckets", HT_KEY_INT, "4", 1, HT_DATA_MOST_BUCKETS, NULL, "shapes of batches, chosen so that little is padded"},
    {"reverse", HT_KEY_BOOL, "false", 0, 0, NULL, "the second column is the source"},
    {"validation_share", HT_KEY_NUMBER, "0.05", 0, 0.9, NULL,
     "source sentences that are held out, with all their targets"},
    {.name = NULL},
};

/* ---- reading ---- */

typedef struct pair_file {
    const char *path;
    ht_content content;
    ht_data_part part;
} pair_file;

typedef struct pair_reading {
    ht_data *data;
    ht_context *ctx;
    pair_set *set;
    const char *name;
    int64_t max_length;
    bool reverse;
    double share; /* held out of this file */
    ht_data_part part;
    bool counting; /* first time: the vocabularies */
    pair_file *files;
    size_t file_count, file_capacity;
} pair_reading;

static ht_status add_pair(const pair_reading *r, ht_data_part part, pair p)
{
    pair_set *set = r->set;
    if (!ht_grow((void **)&set->pairs[part], &set->capacities[part], set->counts[part] + 1, sizeof **set->pairs))
        return ht_data_no_memory(r->ctx, "pairs");
    set->pairs[part][set->counts[part]++] = p;
    return HT_OK;
}

static int64_t count_unknown(const ht_ids *ids, size_t first)
{
    int64_t count = 0;
    for (size_t i = first; i < ids->count; i++) count += ids->list[i] == HT_TOKEN_UNK;
    return count;
}

static ht_status encode_pair(const pair_reading *r, ht_data_part part, const char *place, const char *source,
                             size_t source_bytes, const char *target, size_t target_bytes)
{
    pair_set *set = r->set;
    size_t source_start = set->source_ids.count, target_start = set->target_ids.count;
    HT_TRY(ht_vocabulary_append(ht_data_source_vocabulary(r->data), r->ctx, place, source, source_bytes,
                                &set->source_ids));
    HT_TRY(ht_vocabulary_append(ht_data_vocabulary(r->data), r->ctx, place, target, target_bytes, &set->target_ids));
    int64_t source_length = (int64_t)(set->source_ids.count - source_start);
    int64_t target_length = (int64_t)(set->target_ids.count - target_start);
    if (source_length < 1 || target_length < 1 || source_length > r->max_length || target_length >= r->max_length) {
        set->source_ids.count = source_start;
        set->target_ids.count = target_start;
        r->data->info.dropped++;
        r->data->info.parts[part].left_out++;
        return HT_OK;
    }
    pair p = {(int64_t)source_start, (int64_t)target_start, (int32_t)source_length, (int32_t)target_length, NULL};
    if (part == HT_DATA_VALIDATION) p.text = ht_arena_text(r->data->arena, target, target_bytes);
    if (part == HT_DATA_VALIDATION && !p.text) return ht_data_no_memory(r->ctx, "references");
    r->data->info.parts[part].unknown += count_unknown(&set->target_ids, target_start);
    return add_pair(r, part, p);
}

static ht_status read_line(const pair_reading *r, const char *line, size_t length, int64_t number)
{
    const char *end = line + length, *tab = memchr(line, '\t', length);
    if (!tab) HT_FAIL(r->ctx, HT_EPARSE, "%s:%" PRId64 ": no tab between source and target", r->name, number);
    const char *second = tab + 1, *second_end = memchr(second, '\t', (size_t)(end - second));
    if (!second_end) second_end = end;
    const char *sides[2] = {line, second};
    size_t bytes[2] = {(size_t)(tab - line), (size_t)(second_end - second)};
    int source = r->reverse, target = !r->reverse;
    ht_data_part part = r->part;
    if (ht_order_share(sides[source], bytes[source]) < r->share) part = HT_DATA_VALIDATION;
    char name[4200];
    snprintf(name, sizeof name, "%s:%" PRId64, r->name, number);
    if (!r->counting) return encode_pair(r, part, name, sides[source], bytes[source], sides[target], bytes[target]);
    if (part == HT_DATA_VALIDATION) return HT_OK; /* held-out pairs do not contribute to the vocabulary */
    if (r->data->source_vocabulary)
        HT_TRY(ht_vocabulary_count(r->data->source_vocabulary, r->ctx, name, sides[source], bytes[source]));
    if (r->data->vocabulary)
        HT_TRY(ht_vocabulary_count(r->data->vocabulary, r->ctx, name, sides[target], bytes[target]));
    return HT_OK;
}

static ht_status read_lines(pair_reading *r, const pair_file *file)
{
    const char *text = (const char *)file->content.data;
    ht_lines lines = {.at = text, .end = text + file->content.length};
    const char *line;
    size_t length;
    r->name = file->path;
    while (ht_line_next(&lines, &line, &length))
        if (length > 0) HT_TRY(read_line(r, line, length, lines.number));
    return HT_OK;
}

/* Once to count tokens, once more to number them. */
static ht_status read_all(pair_reading *r)
{
    const ht_fields *fields = r->data->request.fields;
    double share = ht_field_null(fields, "validation") ? ht_field_number(fields, "validation_share") : 0;
    for (size_t i = 0; i < r->file_count; i++) {
        r->part = r->files[i].part;
        r->share = r->part == HT_DATA_TRAIN ? share : 0;
        HT_TRY(read_lines(r, &r->files[i]));
    }
    return HT_OK;
}

static ht_status open_file(pair_reading *r, ht_data_part part, const char *path)
{
    if (!ht_grow((void **)&r->files, &r->file_capacity, r->file_count + 1, sizeof *r->files))
        return ht_data_no_memory(r->ctx, "files");
    pair_file *file = &r->files[r->file_count];
    *file = (pair_file){.path = ht_arena_text(r->data->arena, path, strlen(path)), .part = part};
    if (!file->path) return ht_data_no_memory(r->ctx, "files");
    HT_TRY(ht_data_content(&file->content, r->data, r->ctx, path));
    r->file_count++;
    return HT_OK;
}

static ht_status open_files(pair_reading *r)
{
    static const char *const keys[HT_DATA_PARTS] = {"train", "validation"};
    for (int part = 0; part < HT_DATA_PARTS; part++) {
        ht_paths paths;
        HT_TRY(ht_paths_find(&paths, r->data, r->ctx, r->data->request.fields, keys[part]));
        ht_status status = HT_OK;
        for (size_t i = 0; i < paths.count && status == HT_OK; i++)
            status = open_file(r, (ht_data_part)part, paths.list[i]);
        ht_paths_free(&paths);
        HT_TRY(status);
    }
    return HT_OK;
}

static void close_files(pair_reading *r)
{
    for (size_t i = 0; i < r->file_count; i++) ht_content_close(&r->files[i].content);
    free(r->files);
}

static ht_status make_vocabularies(pair_reading *r)
{
    ht_data *data = r->data;
    const ht_fields *fields = data->request.fields;
    bool word = strcmp(ht_field_text(fields, "tokenizer"), "word") == 0;
    ht_vocabulary_kind kind = word ? HT_VOCABULARY_WORD : HT_VOCABULARY_CHAR;
    int64_t least = ht_field_int(fields, "minimum_count");
    int64_t most = ht_field_null(fields, "vocabulary_size") ? 0 : ht_field_int(fields, "vocabulary_size");
    if (!data->request.vocabulary) HT_TRY(ht_vocabulary_create(&data->vocabulary, r->ctx, kind, true));
    if (!data->request.source_vocabulary) HT_TRY(ht_vocabulary_create(&data->source_vocabulary, r->ctx, kind, true));
    if (data->vocabulary) ht_vocabulary_fold(data->vocabulary, ht_field_bool(fields, "lowercase"));
    if (data->source_vocabulary) ht_vocabulary_fold(data->source_vocabulary, ht_field_bool(fields, "lowercase"));
    r->counting = true;
    HT_TRY(read_all(r));
    r->counting = false;
    if (data->vocabulary) HT_TRY(ht_vocabulary_finish(data->vocabulary, r->ctx, least, most));
    if (data->source_vocabulary) HT_TRY(ht_vocabulary_finish(data->source_vocabulary, r->ctx, least, most));
    data->info.vocabulary = ht_vocabulary_size(ht_data_vocabulary(data));
    data->info.source_vocabulary = ht_vocabulary_size(ht_data_source_vocabulary(data));
    return HT_OK;
}

/* ---- buckets ---- */

static int32_t longer_side(const pair *p)
{
    return p->source_length > p->target_length + 1 ? p->source_length : p->target_length + 1;
}

/* Chooses bucket lengths by dynamic programming: at most `buckets` ranges of lengths with the least total padded
 * length. cost[k][l] is the optimum for lengths up to l with k ranges. */
static ht_status choose_ends(ht_context *ctx, const int64_t *histogram, int64_t longest, int *buckets, int64_t *ends)
{
    size_t width = (size_t)longest + 1;
    int64_t *below = calloc(width, sizeof *below), *cost = calloc(width * (size_t)(*buckets + 1), sizeof *cost);
    int64_t *from = calloc(width * (size_t)(*buckets + 1), sizeof *from);
    if (!below || !cost || !from) {
        free(below);
        free(cost);
        free(from);
        return ht_data_no_memory(ctx, "buckets");
    }
    for (int64_t l = 1; l <= longest; l++) below[l] = below[l - 1] + histogram[l];
    for (int64_t l = 1; l <= longest; l++) cost[l] = INT64_MAX / 4;
    for (int k = 1; k <= *buckets; k++)
        for (int64_t l = 1; l <= longest; l++) {
            int64_t *best = &cost[(size_t)k * width + (size_t)l];
            *best = INT64_MAX / 2;
            for (int64_t m = 0; m < l; m++) {
                int64_t sum = cost[(size_t)(k - 1) * width + (size_t)m] + (below[l] - below[m]) * l;
                if (sum < *best) *best = sum, from[(size_t)k * width + (size_t)l] = m;
            }
        }
    int count = 0;
    int64_t reversed[HT_DATA_MOST_BUCKETS];
    for (int64_t l = longest, k = *buckets; l > 0 && k > 0; l = from[(size_t)k * width + (size_t)l], k--)
        if (below[l] > below[from[(size_t)k * width + (size_t)l]]) reversed[count++] = l;
    for (int i = 0; i < count; i++) ends[i] = reversed[count - 1 - i];
    *buckets = count;
    free(below);
    free(cost);
    free(from);
    return HT_OK;
}

/* The length that it was made for: one of its pairs has it. */
static int64_t bucket_end(const ht_data_bucket *bucket)
{
    return bucket->length > bucket->source_length ? bucket->length : bucket->source_length;
}

static int bucket_of_length(const int64_t *ends, int count, int64_t length)
{
    int bucket = 0;
    while (bucket < count - 1 && ends[bucket] < length) bucket++;
    return bucket;
}

/* Stable: within a bucket pairs stay in the order of the file. */
static ht_status sort_part(pair_set *set, ht_context *ctx, ht_data_part part, const int64_t *ends, int buckets)
{
    size_t count = set->counts[part];
    pair *sorted = malloc((count + 1) * sizeof *sorted);
    if (!sorted) return ht_data_no_memory(ctx, "pairs");
    int64_t *first = set->first[part], next[HT_DATA_MOST_BUCKETS];
    for (size_t i = 0; i < count; i++) first[bucket_of_length(ends, buckets, longer_side(&set->pairs[part][i])) + 1]++;
    for (int b = 0; b < buckets; b++) first[b + 1] += first[b], next[b] = first[b];
    for (size_t i = 0; i < count; i++)
        sorted[next[bucket_of_length(ends, buckets, longer_side(&set->pairs[part][i]))]++] = set->pairs[part][i];
    free(set->pairs[part]);
    set->pairs[part] = sorted;
    return HT_OK;
}

static ht_status make_buckets(pair_set *set, ht_data *data, ht_context *ctx)
{
    int64_t histogram[MOST_LENGTH + 1] = {0}, ends[HT_DATA_MOST_BUCKETS], longest = 0;
    for (int part = 0; part < HT_DATA_PARTS; part++)
        for (size_t i = 0; i < set->counts[part]; i++) {
            int32_t length = longer_side(&set->pairs[part][i]);
            histogram[length]++;
            if (length > longest) longest = length;
        }
    int buckets = data->known_buckets ? data->known_buckets : (int)ht_field_int(data->request.fields, "buckets");
    if (data->known_buckets)
        for (int b = 0; b < buckets; b++) ends[b] = bucket_end(&data->info.buckets[b]);
    else
        HT_TRY(choose_ends(ctx, histogram, longest, &buckets, ends));
    data->info.bucket_count = buckets;
    for (int part = 0; part < HT_DATA_PARTS; part++) {
        HT_TRY(sort_part(set, ctx, (ht_data_part)part, ends, buckets));
        for (int b = 0; b < buckets; b++)
            for (int64_t i = set->first[part][b]; i < set->first[part][b + 1]; i++) {
                const pair *p = &set->pairs[part][i];
                ht_data_bucket *bucket = &data->info.buckets[b];
                if (p->target_length + 1 > bucket->length) bucket->length = p->target_length + 1;
                if (p->source_length > bucket->source_length) bucket->source_length = p->source_length;
            }
    }
    /* Pairs that move up have to fit as well. */
    for (int b = 1; b < buckets; b++) {
        ht_data_bucket *bucket = &data->info.buckets[b], *before = bucket - 1;
        if (before->length > bucket->length) bucket->length = before->length;
        if (before->source_length > bucket->source_length) bucket->source_length = before->source_length;
    }
    return HT_OK;
}

static void describe_part(const pair_set *set, ht_data *data, ht_data_part part)
{
    ht_data_part_info *info = &data->info.parts[part];
    int64_t cells = 0, tokens = 0;
    info->items = (int64_t)set->counts[part];
    info->batches = ht_data_batches(data, part, info->items);
    for (int b = 0; b < data->info.bucket_count; b++) {
        const ht_data_bucket *bucket = &data->info.buckets[b];
        cells += (set->first[part][b + 1] - set->first[part][b]) * (bucket->length + bucket->source_length);
    }
    for (size_t i = 0; i < set->counts[part]; i++) {
        info->tokens += set->pairs[part][i].target_length + 1;
        tokens += set->pairs[part][i].source_length;
    }
    tokens += info->tokens;
    if (cells) info->padding = 1 - (double)tokens / (double)cells;
}

/* ---- batches ---- */

static int bucket_of_place(const pair_set *set, const ht_data *data, ht_data_part part, int64_t place)
{
    int bucket = 0;
    while (bucket < data->info.bucket_count - 1 && place >= set->first[part][bucket + 1]) bucket++;
    return bucket;
}

/* A run of pairs as they lie in this epoch. */
typedef struct batch_place {
    uint64_t epoch;
    int64_t first;
    int64_t rows;
} batch_place;

/* The batch of the step that batch `index` is a slice of: they come in another order in each epoch. */
static batch_place place_of_step(const ht_data *data, ht_data_part part, uint64_t index)
{
    const ht_data_part_info *info = &data->info.parts[part];
    int64_t slices = ht_data_slices(data, part), rows = data->request.batch * slices;
    uint64_t batches = (uint64_t)info->batches, step = index % batches / (uint64_t)slices;
    batch_place place = {.epoch = index / batches};
    if (part == HT_DATA_TRAIN)
        step = ht_order_at(data->request.seed, place.epoch, "batches", batches / (uint64_t)slices, step);
    place.first = (int64_t)step * rows;
    place.rows = info->items - place.first;
    if (place.rows > rows) place.rows = rows;
    return place;
}

static batch_place place_of(const ht_data *data, ht_data_part part, uint64_t index)
{
    batch_place place = place_of_step(data, part, index);
    int64_t before = (int64_t)(index % (uint64_t)ht_data_slices(data, part)) * data->request.batch;
    place.first += before;
    place.rows = place.rows > before ? place.rows - before : 0;
    if (place.rows > data->request.batch) place.rows = data->request.batch;
    return place;
}

/* All slices of a step have the bucket of its longest pair. */
static int bucket_at(const ht_data *data, ht_data_part part, uint64_t index)
{
    batch_place place = place_of_step(data, part, index);
    return bucket_of_place(data->own, data, part, place.first + place.rows - 1);
}

/* The remainder of a training epoch differs from epoch to epoch, since the order does. */
static const pair *pair_at(const ht_data *data, ht_data_part part, uint64_t epoch, int64_t place)
{
    const pair_set *set = data->own;
    int bucket = bucket_of_place(set, data, part, place);
    int64_t first = set->first[part][bucket], count = set->first[part][bucket + 1] - first;
    if (part == HT_DATA_VALIDATION) return &set->pairs[part][place];
    char site[32];
    snprintf(site, sizeof site, "pairs %d", bucket);
    return &set->pairs[part][first + (int64_t)ht_order_at(data->request.seed, epoch, site, (uint64_t)count,
                                                          (uint64_t)(place - first))];
}

static void layout(const ht_data *data, int bucket, ht_batch *batch)
{
    int64_t source[2] = {data->request.batch, data->info.buckets[bucket].source_length};
    int64_t target[2] = {data->request.batch, data->info.buckets[bucket].length};
    ht_batch_add(batch, "source", HT_I32, 2, source);
    ht_batch_add(batch, "source_length", HT_I32, 1, source);
    ht_batch_add(batch, "target_in", HT_I32, 2, target);
    ht_batch_add(batch, "targets", HT_I32, 2, target);
}

/* A padding row has a source of one token, to avoid a division by a length of zero. */
static void fill_row(const pair_set *set, const pair *p, int64_t row, ht_batch *batch)
{
    int64_t source_length = batch->arrays[0].shape[1], length = batch->arrays[2].shape[1];
    int32_t *source = (int32_t *)batch->arrays[0].data + row * source_length;
    int32_t *target_in = (int32_t *)batch->arrays[2].data + row * length;
    int32_t *targets = (int32_t *)batch->arrays[3].data + row * length;
    ((int32_t *)batch->arrays[1].data)[row] = p ? p->source_length : 1;
    for (int64_t i = 0; i < source_length; i++)
        source[i] = p && i < p->source_length ? set->source_ids.list[p->source + i] : HT_TOKEN_PAD;
    for (int64_t i = 0; i < length; i++) {
        bool inside = p && i <= p->target_length;
        target_in[i] = !inside ? HT_TOKEN_PAD : i == 0 ? HT_TOKEN_BOS : set->target_ids.list[p->target + i - 1];
        targets[i] = !inside ? -1 : i == p->target_length ? HT_TOKEN_EOS : set->target_ids.list[p->target + i];
    }
}

static ht_status fill(const ht_data *data, ht_context *ctx, ht_data_part part, uint64_t index, ht_batch *batch)
{
    (void)ctx;
    batch_place place = place_of(data, part, index);
    batch->rows = place.rows;
    for (int64_t row = 0; row < data->request.batch; row++) {
        const pair *p = row < place.rows ? pair_at(data, part, place.epoch, place.first + row) : NULL;
        fill_row(data->own, p, row, batch);
        if (p) batch->counted += p->target_length + 1;
    }
    return HT_OK;
}

static int64_t counted(const ht_data *data, ht_data_part part, uint64_t index)
{
    batch_place place = place_of(data, part, index);
    int64_t sum = 0;
    for (int64_t row = 0; row < place.rows; row++)
        sum += pair_at(data, part, place.epoch, place.first + row)->target_length + 1;
    return sum;
}

static void show_row(const ht_data *data, const ht_batch *batch, int64_t row, ht_text *text)
{
    int64_t source_length = batch->arrays[0].shape[1], length = batch->arrays[2].shape[1];
    ht_vocabulary_decode(ht_data_source_vocabulary(data), (const int32_t *)batch->arrays[0].data + row * source_length,
                         source_length, text);
    ht_text_add(text, " -> ");
    ht_vocabulary_decode(ht_data_vocabulary(data), (const int32_t *)batch->arrays[2].data + row * length, length, text);
}

static void close_set(ht_data *data)
{
    pair_set *set = data->own;
    free(set->source_ids.list);
    free(set->target_ids.list);
    for (int part = 0; part < HT_DATA_PARTS; part++) free(set->pairs[part]);
    free(set);
}

static const char *target_text(const ht_data *data, int64_t item)
{
    const pair_set *set = data->own;
    return item >= 0 && (size_t)item < set->counts[HT_DATA_VALIDATION] ? set->pairs[HT_DATA_VALIDATION][item].text
                                                                       : NULL;
}

static const ht_data_kind pair_kind = {layout, fill, counted, bucket_at, show_row, close_set, target_text};

static ht_status open_pairs(ht_data *data, ht_context *ctx)
{
    const ht_fields *fields = data->request.fields;
    pair_set *set = calloc(1, sizeof *set);
    if (!set) return ht_data_no_memory(ctx, "pairs");
    data->own = set;
    data->kind = &pair_kind;
    pair_reading r = {.data = data, .ctx = ctx, .set = set, .max_length = ht_field_int(fields, "max_length")};
    if (data->request.length > 0 && data->request.length < r.max_length) r.max_length = data->request.length;
    r.reverse = ht_field_bool(fields, "reverse");
    ht_status status = open_files(&r);
    if (status == HT_OK) status = make_vocabularies(&r);
    if (status == HT_OK) status = read_all(&r);
    close_files(&r);
    HT_TRY(status);
    if (set->counts[HT_DATA_TRAIN] == 0 && !data->known_buckets)
        HT_FAIL(ctx, HT_EINVAL, "data: no pairs to train on (%" PRId64 " left out, empty or longer than %" PRId64 ")",
                data->info.dropped, r.max_length);
    HT_TRY(make_buckets(set, data, ctx));
    for (int part = 0; part < HT_DATA_PARTS; part++) describe_part(set, data, (ht_data_part)part);
    return HT_OK;
}

/* Sources, with or without their targets. */
static ht_status read_inputs(ht_inputs *inputs, const char *file, const ht_content *content)
{
    const ht_fields *fields = inputs->data->request.fields;
    ht_line_rule rule = {.vocabulary = ht_data_source_vocabulary(inputs->data), .columns = true};
    if (!rule.vocabulary) HT_FAIL(inputs->ctx, HT_EINVAL, "the run has no vocabulary of its sources");
    rule.second = ht_field_bool(fields, "reverse");
    rule.most = ht_field_int(fields, "max_length");
    return ht_inputs_add_lines(inputs, file, content, &rule);
}

const ht_data_format ht_data_format_pairs = {"pairs",    "sentence pairs, source and target with a tab between",
                                             pair_keys,  1u << HT_TASK_PAIRS,
                                             open_pairs, read_inputs};
