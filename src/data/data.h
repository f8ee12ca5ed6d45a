/* data: data sets and the loader. Text, documents, token shards, mixtures, sentence pairs, images, tables and arrays,
 * each a format with its own keys of the job's "data" block. Knows nothing of graphs: a batch is a set of named arrays.
 *
 * A batch is a pure function of the data, the seed, the part and its index, so a position is one number, seeking is
 * exact, and prefetching on a thread changes nothing. With `slices` a training batch is one of several slices of the
 * batch of a step: the rows of a step, their order and their bucket depend on batch × slices alone.
 *
 * Arrays by task (a target or label of -1 is ignored):
 *      LM          tokens, targets i32[B,T]; with "document_ids" also positions, documents i32[B,T]
 *      CLASS       x f32[B,..], label i32[B]; of sentences tokens i32[B,T], length i32[B], label
 *      REGRESSION  x f32[B,..], y f32[B,O] (NaN is ignored)
 *      PAIRS       source i32[B,S], source_length i32[B], target_in, targets i32[B,T]
 *      MASKED_LM   tokens, targets i32[B,T], length i32[B] */
#ifndef HT_DATA_H
#define HT_DATA_H

#include "base/base.h"

typedef enum ht_data_part { HT_DATA_TRAIN, HT_DATA_VALIDATION, HT_DATA_PARTS } ht_data_part;

typedef struct ht_data ht_data;
typedef struct ht_loader ht_loader;
typedef struct ht_vocabulary ht_vocabulary;
typedef struct ht_data_request ht_data_request;
typedef struct ht_inputs ht_inputs;
struct ht_content;

/* ---- formats: what "data": {"format": ...} may say ---- */

typedef struct ht_data_format {
    const char *name, *help;
    const ht_key *keys; /* of the "data" block, beside "format" */
    unsigned tasks;     /* bits 1 << ht_task; the lowest is the standard */
    ht_status (*open)(ht_data *data, ht_context *ctx);
    /* Adds the items of a file to those to predict on; NULL: there is nothing to predict. */
    ht_status (*inputs)(ht_inputs *inputs, const char *file, const struct ht_content *content);
} ht_data_format;

/* In the order of the documentation; ends with NULL. */
extern const ht_data_format *const ht_data_formats[];
const ht_data_format *ht_data_format_find(const char *name);
/* The format that a file's name suggests; NULL when it suggests none. */
const ht_data_format *ht_data_format_guess(const char *path);
/* Resolves a "data" block: *format from its "format", *fields by that format's keys. */
ht_status ht_data_read_block(const ht_data_format **format, ht_fields **fields, ht_context *ctx, const ht_json *object);
/* The default task of a format. */
ht_task ht_data_standard_task(const ht_data_format *format);

/* ---- opening ---- */

struct ht_data_request {
    const ht_data_format *format;
    const ht_fields *fields; /* of format->keys; need live only while opening */
    ht_task task;
    int64_t batch;      /* rows of a batch */
    int64_t slices;     /* training batches that make up the batch of a step: micro-batches; 0: 1 */
    int64_t length;     /* tokens of a row; 0: as the block's "length" says */
    uint64_t seed;      /* of shuffling, windows and masks */
    const char *folder; /* relative paths begin here; NULL: where the process is */
    const char *
        memory; /* text, jsonl, pairs, sentences, table: the content of "train", instead of its files; need live only while
                           opening, but with text by bytes as long as the data */
    size_t memory_length;
    const ht_vocabulary *vocabulary, *source_vocabulary; /* NULL: made from the data; else as before, borrowed */
    /* What ht_data_print_facts said of the data set that was trained on; NULL: nothing. With it, files to validate on are
     * read alone, and the training part stays empty. Need live only while opening. */
    const ht_json *facts;
    /* No file is read, both parts stay empty, and there are no batches: for predictions. `fields` live as long as the data. */
    bool facts_only;
};

enum { HT_DATA_MOST_BUCKETS = 16 };

typedef struct ht_data_bucket {
    int64_t length, source_length; /* T and S */
} ht_data_bucket;

typedef struct ht_data_part_info {
    int64_t items;    /* windows, pairs or rows */
    int64_t batches;  /* in an epoch, for training a multiple of the slices; 0: the part is empty */
    int64_t tokens;   /* of texts and pairs (target side) */
    double padding;   /* the share of cells that are padding */
    int64_t unknown;  /* of PAIRS and sentences: tokens (of targets) that the vocabulary does not hold */
    int64_t left_out; /* of PAIRS: empty, or too long */
} ht_data_part_info;

typedef struct ht_data_info {
    int64_t vocabulary, source_vocabulary;
    int64_t classes; /* of REGRESSION the numbers in a y */
    int feature_rank;
    int64_t feature[HT_MAX_RANK - 1];
    bool documents;                               /* batches carry positions and documents */
    int bucket_count;                             /* shapes that a batch may have; 1 for all but pairs */
    ht_data_bucket buckets[HT_DATA_MOST_BUCKETS]; /* from small to large */
    ht_data_part_info parts[HT_DATA_PARTS];
    int64_t dropped; /* records left out: too long or empty */
} ht_data_info;

ht_status ht_data_open(ht_data **out, ht_context *ctx, const ht_data_request *request);
void ht_data_free(ht_data *data);
const ht_data_info *ht_data_info_of(const ht_data *data);
/* What tells a data set from a changed one: names, sizes and samples of the content of the files that each part names. */
typedef struct ht_data_fingerprint {
    uint64_t hashes[HT_DATA_PARTS];
    int64_t files[HT_DATA_PARTS]; /* of validation 0: a share of the others is held out */
} ht_data_fingerprint;
const ht_data_fingerprint *ht_data_fingerprint_of(const ht_data *data);
/* Of the tokens (PAIRS: of the target side) and of the source side; NULL where there is none. */
const ht_vocabulary *ht_data_vocabulary(const ht_data *data);
const ht_vocabulary *ht_data_source_vocabulary(const ht_data *data);
/* What it learned from its training part beside vocabularies, as a JSON object: sizes, names of classes, buckets, means. */
void ht_data_print_facts(const ht_data *data, ht_text *text);
/* Of PAIRS: the target of an item of the validation part, in the order of its batches, as its file has it. NULL elsewhere.
 */
const char *ht_data_target_text(const ht_data *data, int64_t item);
/* The name of a class, NULL when it is only a number. */
const char *ht_data_class_name(const ht_data *data, int64_t label);

/* ---- batches ---- */

enum { HT_BATCH_MOST_ARRAYS = 6 };

typedef struct ht_batch_array {
    const char *name;
    ht_dtype dtype;
    int rank;
    int64_t shape[HT_MAX_RANK];
    size_t bytes;
    void *data; /* the caller's memory, `bytes` large */
} ht_batch_array;

typedef struct ht_batch {
    int array_count;
    ht_batch_array arrays[HT_BATCH_MOST_ARRAYS];
    int bucket;
    int64_t rows;    /* that hold data; the rest is padding */
    int64_t counted; /* tokens or rows that count in the loss */
    uint64_t epoch;
    bool last; /* of its epoch */
} ht_batch;

/* Names, types and shapes of a bucket's arrays; the data pointers are for the caller to set. */
void ht_data_layout(const ht_data *data, int bucket, ht_batch *batch);
/* The array of that name, NULL when there is none. */
ht_batch_array *ht_batch_find(ht_batch *batch, const char *name);

/* The loader: an endless sequence of batches, epoch after epoch of one part. Data and context outlive it. With
 * `prefetch` a thread makes the next batches; the batches are the same. Refused for an empty part. */
ht_status ht_loader_open(ht_loader **out, ht_data *data, ht_data_part part, bool prefetch);
/* The same for one of `shares` loaders that take turns: each gives every so manieth batch, the first one number `share`.
 * Their positions are those of one loader that gives all, at the beginning of a round. */
ht_status ht_loader_open_share(ht_loader **out, ht_data *data, ht_data_part part, bool prefetch, int64_t share,
                               int64_t shares);
void ht_loader_free(ht_loader *loader);
/* The bucket of the next batch: prepare the batch for it with ht_data_layout. */
int ht_loader_bucket(const ht_loader *loader);
/* Tokens or rows that count in the next `batches` batches of every share together. */
int64_t ht_loader_counted(const ht_loader *loader, int64_t batches);
ht_status ht_loader_next(ht_loader *loader, ht_batch *batch);

/* The loader's position, for snapshots: the number of batches delivered so far, by all shares. */
uint64_t ht_loader_position(const ht_loader *loader);
void ht_loader_seek(ht_loader *loader, uint64_t position);

/* ---- inputs: what a trained model is asked about ---- */

/* Of a data set of facts only, which outlives them. HT_ENOTSUP where the task is to model language. */
ht_status ht_inputs_create(ht_inputs **out, ht_data *data, ht_context *ctx);
void ht_inputs_free(ht_inputs *inputs);
/* Adds the items of a file, "-" is standard input: lines of text, rows of CSV or of arrays, an image. They are
 * preprocessed as what was trained on. */
ht_status ht_inputs_read(ht_inputs *inputs, const char *path);
int64_t ht_inputs_count(const ht_inputs *inputs);
/* Tokens of the longest; 0 where items are numbers. */
int64_t ht_inputs_longest(const ht_inputs *inputs);
/* The sentence itself, the file of an image, file:line or file[index]. */
const char *ht_inputs_name(const ht_inputs *inputs, int64_t item);
/* False for an empty line, which has no answer. */
bool ht_inputs_asks(const ht_inputs *inputs, int64_t item);
/* Items from `first` on as `rows` rows: x, or tokens [rows, length] and their lengths. Rows behind the last item are
 * padding. */
void ht_inputs_fill_numbers(const ht_inputs *inputs, int64_t first, int64_t rows, float *x);
void ht_inputs_fill_tokens(const ht_inputs *inputs, int64_t first, int64_t rows, int64_t length, int32_t *tokens,
                           int32_t *lengths);

/* One row as readable text, for previews. */
void ht_data_show_row(const ht_data *data, const ht_batch *batch, int64_t row, ht_text *text);

/* ---- vocabularies ---- */

typedef enum ht_vocabulary_kind { HT_VOCABULARY_BYTE, HT_VOCABULARY_CHAR, HT_VOCABULARY_WORD } ht_vocabulary_kind;

/* Ids of the special tokens of sentence pairs; unk replaces tokens outside the vocabulary. */
enum { HT_TOKEN_PAD, HT_TOKEN_BOS, HT_TOKEN_EOS, HT_TOKEN_UNK, HT_TOKEN_SPECIALS };

/* The tokens of texts, special ones included. */
int64_t ht_vocabulary_size(const ht_vocabulary *vocabulary);
/* The id of a token by its text; -1 when there is none. */
int64_t ht_vocabulary_find(const ht_vocabulary *vocabulary, const char *text, size_t length);
/* Ids of a text, in heap memory: unknown tokens become unk where there is one, and are an error where there is not. */
ht_status ht_vocabulary_encode(const ht_vocabulary *vocabulary, ht_context *ctx, const char *name, const char *text,
                               size_t length, int32_t **ids, int64_t *count);
/* Detokenizes ids: appends their text, with words joined as in prose. Specials and ids out of range are left out. */
void ht_vocabulary_decode(const ht_vocabulary *vocabulary, const int32_t *ids, int64_t count, ht_text *text);
/* As JSON, and back from a file, whose other members are ignored. */
void ht_vocabulary_print(const ht_vocabulary *vocabulary, ht_text *text);
ht_status ht_vocabulary_read(ht_vocabulary **out, ht_context *ctx, const char *path);
void ht_vocabulary_free(ht_vocabulary *vocabulary);

#endif
