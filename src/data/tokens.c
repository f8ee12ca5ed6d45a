/* Sets of tokens: windows for language models, by random, shuffled, sequential or stream order; masks; padding. */
#include "data/tokens.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/order.h"
#include "data/vocabulary.h"

static uint32_t token_at(const ht_piece *piece, int64_t index)
{
    const uint8_t *at = piece->tokens + index * piece->width;
    uint16_t narrow;
    uint32_t wide;
    switch (piece->width) {
    case 1: return *at;
    case 2: memcpy(&narrow, at, sizeof narrow); return narrow;
    default: memcpy(&wide, at, sizeof wide); return wide;
    }
}

/* ---- where a row lies ---- */

typedef struct window {
    const ht_piece *piece; /* NULL: a padding row */
    int64_t start;
    int64_t length; /* tokens with a target; the rest of the row is padding */
} window;

/* The piece that holds number `index` of what `first` counts. */
static size_t piece_of(const int64_t *first, size_t count, int64_t index)
{
    size_t low = 0, high = count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (first[middle] <= index)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static window window_number(const ht_token_set *set, const ht_piece_list *list, int64_t number)
{
    size_t at = piece_of(list->first_window, list->count, number);
    const ht_piece *piece = &list->list[at];
    int64_t start = (number - list->first_window[at]) * set->length;
    return (window){piece, start, least(set->length, piece->count - 1 - start)};
}

/* The same with a new offset of the windows in each epoch, so that a token is seen in different contexts. The window
 * that no longer fits at the end is replaced by one that begins with the piece. */
static window window_of_epoch(const ht_token_set *set, const ht_piece_list *list, uint64_t seed, uint64_t epoch,
                              int64_t number)
{
    window w = window_number(set, list, number);
    size_t at = (size_t)(w.piece - list->list);
    int64_t last = w.piece->count - 1 - set->length;
    if (last < 0) return w;
    uint64_t draw = epoch * list->count + at;
    w.start += (int64_t)ht_order_draw(seed, "phase", draw, (uint64_t)least(set->length, last + 1));
    if (w.start > last) w.start = 0;
    w.length = set->length;
    return w;
}

/* Sampling with replacement: every start of a whole row is equally likely. */
static window window_anywhere(const ht_token_set *set, const ht_piece_list *list, uint64_t seed, const char *site,
                              uint64_t row)
{
    int64_t starts = list->first_start[list->count];
    int64_t start = (int64_t)ht_order_draw(seed, site, row, (uint64_t)starts);
    size_t at = piece_of(list->first_start, list->count, start);
    const ht_piece *piece = &list->list[at];
    start -= list->first_start[at];
    return (window){piece, start, least(set->length, piece->count - 1 - start)};
}

static const ht_token_group *draw_group(const ht_token_set *set, uint64_t seed, uint64_t row, size_t *number)
{
    double total = 0, sum = 0;
    for (size_t i = 0; i < set->group_count; i++) total += set->groups[i].weight;
    double drawn = (double)ht_order_draw(seed, "mixture", row, UINT64_C(1) << 53) * 0x1p-53 * total;
    for (*number = 0; *number + 1 < set->group_count; ++*number) {
        sum += set->groups[*number].weight;
        if (drawn < sum) break;
    }
    return &set->groups[*number];
}

/* Stream order: row r of the batch of a step continues where it ended in the step before. */
static window window_of_stream(const ht_token_set *set, const ht_data *data, ht_data_part part, int64_t batch,
                               int64_t row)
{
    const ht_piece *piece = set->groups[0].parts[part].list;
    int64_t slices = ht_data_slices(data, part), start = batch / slices * set->length;
    int64_t strip = (piece->count - 1) / (data->request.batch * slices);
    row += batch % slices * data->request.batch;
    return (window){piece, row * strip + start, least(set->length, strip - start)};
}

static window window_of_row(const ht_data *data, ht_data_part part, uint64_t index, int64_t row)
{
    const ht_token_set *set = data->own;
    const ht_data_part_info *info = &data->info.parts[part];
    uint64_t batches = (uint64_t)info->batches, seed = data->request.seed;
    uint64_t epoch = index / batches, batch = index % batches;
    uint64_t number = index * (uint64_t)data->request.batch + (uint64_t)row;
    if (set->order == HT_TOKENS_STREAM) return window_of_stream(set, data, part, (int64_t)batch, row);
    if (part == HT_DATA_TRAIN && set->order == HT_TOKENS_RANDOM) {
        size_t group = 0;
        char site[32];
        if (set->group_count > 1) draw_group(set, seed, number, &group);
        snprintf(site, sizeof site, "window %zu", group);
        return window_anywhere(set, &set->groups[group].parts[part], seed, site, number);
    }
    uint64_t item = batch * (uint64_t)data->request.batch + (uint64_t)row;
    if (part == HT_DATA_TRAIN) item %= (uint64_t)info->items;
    if (item >= (uint64_t)info->items) return (window){0};
    if (part == HT_DATA_TRAIN && set->order == HT_TOKENS_SHUFFLED) {
        item = ht_order_at(seed, epoch, "windows", (uint64_t)info->items, item);
        return window_of_epoch(set, &set->groups[0].parts[part], seed, epoch, (int64_t)item);
    }
    /* The groups of a mixture follow each other in validation. */
    for (size_t i = 0;; i++) {
        const ht_piece_list *list = &set->groups[i].parts[part];
        int64_t windows = list->count ? list->first_window[list->count] : 0;
        if ((int64_t)item < windows) return window_number(set, list, (int64_t)item);
        item -= (uint64_t)windows;
    }
}

/* ---- rows ---- */

static void fill_row(const ht_token_set *set, window w, int32_t *tokens, int32_t *targets)
{
    for (int64_t t = 0; t < w.length; t++) tokens[t] = (int32_t)token_at(w.piece, w.start + t);
    for (int64_t t = 0; t + 1 < w.length; t++) targets[t] = tokens[t + 1];
    if (w.length > 0) targets[w.length - 1] = (int32_t)token_at(w.piece, w.start + w.length);
    for (int64_t t = w.length > 0 ? w.length : 0; t < set->length; t++) {
        tokens[t] = 0;
        targets[t] = -1;
    }
}

/* Documents are numbered within the row; positions begin again with each. */
static void number_documents(const ht_token_set *set, const int32_t *tokens, int32_t *positions, int32_t *documents)
{
    int32_t document = 0, position = 0;
    for (int64_t t = 0; t < set->length; t++, position++) {
        if (t > 0 && tokens[t] == set->separator) {
            document++;
            position = 0;
        }
        positions[t] = position;
        documents[t] = document;
    }
}

/* BERT's masking: of the selected tokens 8 in 10 become the mask, 1 a random token, 1 stays. */
static int64_t mask_row(const ht_data *data, ht_data_part part, uint64_t number, int64_t length, int32_t *tokens,
                        int32_t *targets)
{
    const ht_token_set *set = data->own;
    ht_stream stream = {data->request.seed, number, ht_hash_text(part == HT_DATA_TRAIN ? "mask" : "mask validation")};
    int64_t counted = 0;
    for (int64_t t = 0; t < set->length; t++) {
        targets[t] = -1;
        ht_philox draw = ht_stream_block(&stream, (uint64_t)t);
        if (t >= length || draw.word[0] * 0x1p-32 >= set->mask_share) continue;
        targets[t] = tokens[t];
        counted++;
        if (draw.word[1] < 0xccccccccu)
            tokens[t] = set->mask;
        else if (draw.word[1] < 0xe6666666u)
            tokens[t] = (int32_t)((uint64_t)draw.word[2] * (uint64_t)set->mask >> 32);
    }
    return counted;
}

static ht_status check_row(const ht_data *data, ht_context *ctx, window w, const int32_t *tokens,
                           const int32_t *targets)
{
    int64_t vocabulary = data->info.vocabulary;
    for (int64_t t = 0; t < w.length; t++) {
        bool target = tokens[t] >= 0 && tokens[t] < vocabulary;
        int32_t worst = target ? targets[t] : tokens[t];
        if (worst >= 0 && worst < vocabulary) continue;
        int64_t byte = w.piece->offset + (w.start + t + target) * w.piece->width;
        HT_FAIL(ctx, HT_EINVAL, "%s: byte %" PRId64 ": token %" PRIu32 " does not exist in a vocabulary of %" PRId64,
                w.piece->path ? w.piece->path : "data", byte, (uint32_t)worst, vocabulary);
    }
    return HT_OK;
}

static ht_status fill(const ht_data *data, ht_context *ctx, ht_data_part part, uint64_t index, ht_batch *batch)
{
    const ht_token_set *set = data->own;
    bool masked = data->request.task == HT_TASK_MASKED_LM;
    for (int64_t row = 0; row < data->request.batch; row++) {
        window w = window_of_row(data, part, index, row);
        int32_t *tokens = (int32_t *)batch->arrays[0].data + row * set->length;
        int32_t *targets = (int32_t *)batch->arrays[1].data + row * set->length;
        int64_t length = w.length > 0 ? w.length : 0;
        fill_row(set, w, tokens, targets);
        HT_TRY(check_row(data, ctx, w, tokens, targets));
        batch->rows += length > 0;
        if (masked) {
            ((int32_t *)batch->arrays[2].data)[row] = (int32_t)length;
            batch->counted +=
                mask_row(data, part, index * (uint64_t)data->request.batch + (uint64_t)row, length, tokens, targets);
            continue;
        }
        batch->counted += length;
        if (data->info.documents)
            number_documents(set, tokens, (int32_t *)batch->arrays[2].data + row * set->length,
                             (int32_t *)batch->arrays[3].data + row * set->length);
    }
    return HT_OK;
}

static int64_t counted(const ht_data *data, ht_data_part part, uint64_t index)
{
    const ht_token_set *set = data->own;
    int64_t sum = 0;
    for (int64_t row = 0; row < data->request.batch; row++) {
        int64_t length = window_of_row(data, part, index, row).length;
        if (length < 0) length = 0;
        if (data->request.task != HT_TASK_MASKED_LM) {
            sum += length;
            continue;
        }
        uint64_t number = index * (uint64_t)data->request.batch + (uint64_t)row;
        ht_stream stream = {data->request.seed, number,
                            ht_hash_text(part == HT_DATA_TRAIN ? "mask" : "mask validation")};
        for (int64_t t = 0; t < length; t++)
            sum += ht_stream_block(&stream, (uint64_t)t).word[0] * 0x1p-32 < set->mask_share;
    }
    return sum;
}

static void layout(const ht_data *data, int bucket, ht_batch *batch)
{
    (void)bucket;
    int64_t shape[2] = {data->request.batch, ((const ht_token_set *)data->own)->length};
    ht_batch_add(batch, "tokens", HT_I32, 2, shape);
    ht_batch_add(batch, "targets", HT_I32, 2, shape);
    if (data->request.task == HT_TASK_MASKED_LM) {
        ht_batch_add(batch, "length", HT_I32, 1, shape);
    } else if (data->info.documents) {
        ht_batch_add(batch, "positions", HT_I32, 2, shape);
        ht_batch_add(batch, "documents", HT_I32, 2, shape);
    }
}

static void show_row(const ht_data *data, const ht_batch *batch, int64_t row, ht_text *text)
{
    const ht_token_set *set = data->own;
    const int32_t *tokens = (const int32_t *)batch->arrays[0].data + row * set->length;
    const ht_vocabulary *vocabulary = ht_data_vocabulary(data);
    for (int64_t t = 0; t < set->length; t++) {
        if (tokens[t] == set->separator)
            ht_text_add(text, "<document>");
        else if (data->request.task == HT_TASK_MASKED_LM && tokens[t] == set->mask)
            ht_text_add(text, "<mask>");
        else if (vocabulary)
            ht_vocabulary_decode(vocabulary, tokens + t, 1, text);
        else
            ht_text_add(text, "%s%" PRId32, t ? " " : "", tokens[t]);
    }
}

static void close_set(ht_data *data)
{
    ht_token_set *set = data->own;
    for (size_t i = 0; i < set->group_count; i++)
        for (int part = 0; part < HT_DATA_PARTS; part++) {
            free(set->groups[i].parts[part].list);
            free(set->groups[i].parts[part].first_window);
            free(set->groups[i].parts[part].first_start);
        }
    for (size_t i = 0; i < set->content_count; i++) ht_content_close(&set->contents[i]);
    for (size_t i = 0; i < set->block_count; i++) free(set->blocks[i]);
    free(set->groups);
    free(set->contents);
    free(set->blocks);
    free(set);
}

/* ---- making a set ---- */

static const ht_data_kind token_kind = {layout, fill, counted, NULL, show_row, close_set, NULL};

static ht_token_order order_of(const char *name)
{
    static const char *const names[] = {"random", "shuffled", "sequential", "stream"};
    int order = 0;
    while (order < 3 && strcmp(names[order], name) != 0) order++;
    return (ht_token_order)order;
}

ht_status ht_tokens_create(ht_token_set **out, ht_data *data, ht_context *ctx, size_t groups)
{
    const ht_fields *fields = data->request.fields;
    *out = NULL;
    ht_token_set *set = calloc(1, sizeof *set);
    if (!set || !(set->groups = calloc(groups, sizeof *set->groups))) {
        free(set);
        return ht_data_no_memory(ctx, "a set of tokens");
    }
    set->group_count = groups;
    for (size_t i = 0; i < groups; i++) set->groups[i].weight = 1;
    set->length = data->request.length > 0 ? data->request.length : ht_field_int(fields, "length");
    set->order = order_of(ht_field_text(fields, "order"));
    set->mask_share = ht_field_number(fields, "mask_share");
    set->separator = set->mask = -1;
    data->own = set;
    data->kind = &token_kind;
    data->info.documents = ht_field_bool(fields, "document_ids") && data->request.task == HT_TASK_LM;
    data->info.buckets[0].length = set->length;
    *out = set;
    return HT_OK;
}

ht_status ht_tokens_keep_content(ht_token_set *set, ht_context *ctx, ht_content content)
{
    if (!ht_grow((void **)&set->contents, &set->content_capacity, set->content_count + 1, sizeof *set->contents)) {
        ht_content_close(&content);
        return ht_data_no_memory(ctx, "files");
    }
    set->contents[set->content_count++] = content;
    return HT_OK;
}

ht_status ht_tokens_keep_block(ht_token_set *set, ht_context *ctx, void *block)
{
    if (!ht_grow((void **)&set->blocks, &set->block_capacity, set->block_count + 1, sizeof *set->blocks)) {
        free(block);
        return ht_data_no_memory(ctx, "tokens");
    }
    set->blocks[set->block_count++] = block;
    return HT_OK;
}

ht_status ht_tokens_add(ht_token_set *set, ht_context *ctx, size_t group, ht_data_part part, ht_piece piece)
{
    if (piece.count < 2) return HT_OK; /* no token has a target */
    ht_piece_list *list = &set->groups[group].parts[part];
    if (!ht_grow((void **)&list->list, &list->capacity, list->count + 1, sizeof *list->list))
        return ht_data_no_memory(ctx, "pieces");
    list->list[list->count++] = piece;
    return HT_OK;
}

/* Training takes whole windows where it can, validation all tokens. */
static ht_status count_windows(ht_token_set *set, ht_context *ctx, ht_piece_list *list, ht_data_part part,
                               ht_data_part_info *info)
{
    list->first_window = calloc(list->count + 1, sizeof *list->first_window);
    list->first_start = calloc(list->count + 1, sizeof *list->first_start);
    if (!list->first_window || !list->first_start) return ht_data_no_memory(ctx, "pieces");
    for (size_t i = 0; i < list->count; i++) {
        int64_t targets = list->list[i].count - 1, windows = targets / set->length;
        if (part == HT_DATA_VALIDATION || windows == 0) windows = (targets + set->length - 1) / set->length;
        list->first_window[i + 1] = list->first_window[i] + windows;
        list->first_start[i + 1] = list->first_start[i] + (targets > set->length ? targets - set->length + 1 : 1);
        info->tokens += list->list[i].count;
        info->padding += (double)(windows * set->length > targets ? windows * set->length - targets : 0);
    }
    info->items += list->first_window[list->count];
    return HT_OK;
}

static ht_status finish_stream(ht_token_set *set, ht_data *data, ht_context *ctx, ht_data_part part)
{
    const ht_piece_list *list = &set->groups[0].parts[part];
    ht_data_part_info *info = &data->info.parts[part];
    if (list->count == 0) return HT_OK;
    if (set->group_count > 1 || list->count > 1)
        HT_FAIL(ctx, HT_ENOTSUP, "data.order: \"stream\" needs one text, these are %zu pieces",
                set->group_count > 1 ? set->group_count : list->count);
    int64_t slices = ht_data_slices(data, part), rows = data->request.batch * slices;
    int64_t strip = (list->list[0].count - 1) / rows;
    if (strip < set->length)
        HT_FAIL(ctx, HT_EINVAL,
                "data: %" PRId64 " tokens give %" PRId64 " streams of %" PRId64 ", shorter than one row of %" PRId64,
                list->list[0].count, rows, strip, set->length);
    int64_t steps = part == HT_DATA_TRAIN ? strip / set->length : (strip + set->length - 1) / set->length;
    info->batches = steps * slices;
    info->items = steps * rows;
    info->padding = part == HT_DATA_TRAIN ? 0 : 1 - (double)strip / (double)(steps * set->length);
    return HT_OK;
}

/* Rows longer than all there is would be padding for good. */
static ht_status check_length(const ht_token_set *set, ht_context *ctx, const ht_piece_list *list)
{
    int64_t longest = 0;
    for (size_t i = 0; i < list->count; i++)
        if (list->list[i].count > longest) longest = list->list[i].count;
    if (longest > set->length) return HT_OK;
    HT_FAIL(ctx, HT_EINVAL,
            "data.length: rows of %" PRId64 " tokens, and the target of the last, but the longest text to train on has "
            "%" PRId64,
            set->length, longest);
}

static ht_status finish_part(ht_token_set *set, ht_data *data, ht_context *ctx, ht_data_part part)
{
    ht_data_part_info *info = &data->info.parts[part];
    for (size_t i = 0; i < set->group_count; i++) {
        ht_piece_list *list = &set->groups[i].parts[part];
        HT_TRY(count_windows(set, ctx, list, part, info));
        if (part == HT_DATA_TRAIN && list->count == 0 && !data->request.facts)
            HT_FAIL(ctx, HT_EINVAL, "data: there are fewer than two tokens to train on");
        if (part == HT_DATA_TRAIN && list->count) HT_TRY(check_length(set, ctx, list));
    }
    if (set->order == HT_TOKENS_STREAM) return finish_stream(set, data, ctx, part);
    info->batches = ht_data_batches(data, part, info->items);
    if (info->items) info->padding /= (double)(info->items * set->length);
    return HT_OK;
}

ht_status ht_tokens_finish(ht_token_set *set, ht_data *data, ht_context *ctx)
{
    if (data->info.documents && set->separator < 0)
        HT_FAIL(ctx, HT_EINVAL, "data.document_ids: nothing tells documents apart here");
    if (set->group_count > 1 && set->order != HT_TOKENS_RANDOM)
        HT_FAIL(ctx, HT_ENOTSUP, "data.order: a mixture draws its rows, only \"random\" is possible");
    if (data->request.task == HT_TASK_MASKED_LM) set->mask = (int32_t)data->info.vocabulary++;
    for (int part = 0; part < HT_DATA_PARTS; part++) HT_TRY(finish_part(set, data, ctx, (ht_data_part)part));
    return HT_OK;
}
