/* Internal: a data set as the formats fill it in. */
#ifndef HT_DATA_DATASET_H
#define HT_DATA_DATASET_H

#include "data/data.h"
#include "format/format.h"

/* The operations of an open data set. It is read only: several threads may call these. */
typedef struct ht_data_kind {
    void (*layout)(const ht_data *data, int bucket, ht_batch *batch);
    /* Arrays, rows and counted of batch `index` of the part's endless row of batches; messages go to `ctx`. */
    ht_status (*fill)(const ht_data *data, ht_context *ctx, ht_data_part part, uint64_t index, ht_batch *batch);
    int64_t (*counted)(const ht_data *data, ht_data_part part, uint64_t index);
    int (*bucket)(const ht_data *data, ht_data_part part, uint64_t index); /* NULL: there is one */
    void (*show_row)(const ht_data *data, const ht_batch *batch, int64_t row, ht_text *text);
    void (*close)(ht_data *data);
    const char *(*target_text)(const ht_data *data, int64_t item); /* as ht_data_target_text; NULL: there are none */
} ht_data_kind;

struct ht_data {
    ht_context *ctx;
    ht_data_request request; /* its fields are NULL once open */
    ht_data_info info;
    const ht_data_kind *kind; /* set by the format, with `own` */
    void *own;
    ht_arena *arena;                               /* lives as long as the data */
    ht_vocabulary *vocabulary, *source_vocabulary; /* NULL when there is none, or when it is the caller's */
    const char *const *class_names;
    ht_data_fingerprint *fingerprint; /* in the arena */
    double *means, *deviations;       /* of the columns of a table that is normalized; NULL: none */
    size_t mean_count;
    double range;          /* of the values of images; 0: not known yet */
    int known_buckets;     /* those of info.buckets that facts gave */
    int64_t named_classes; /* of these; info.classes may be more */
};

/* ---- helpers for formats ---- */

/* The keys that every format has. Prefetching is off by default for data in memory, whose batches are made faster than
 * another thread can hand them over, and on where windows are read from disk. */
#define HT_DATA_PREFETCH_KEY(standard)                                                                                 \
    {                                                                                                                  \
        "prefetch", HT_KEY_BOOL, standard, 0, 0, NULL,                                                                 \
            "make batches ahead on a thread; pays for files larger than memory"                                        \
    }
#define HT_DATA_PATH_KEYS(prefetch)                                                                                    \
    {"train", HT_KEY_TEXTS, NULL, 0, 0, NULL, "file, pattern or list of them to train on"},                            \
        {"validation", HT_KEY_TEXTS, "null", 0, 0, NULL, "files to validate on; without them a share is held out"},    \
        HT_DATA_PREFETCH_KEY(prefetch)

/* Of formats with classes. */
#define HT_DATA_CLASSES_KEY                                                                                            \
    {                                                                                                                  \
        "classes", HT_KEY_INT, "null", 1, 1 << 24, NULL,                                                               \
            "number of classes, which may be more than occur; null: those of the data"                                 \
    }
/* Of formats with numbers. */
#define HT_DATA_NAN_KEY                                                                                                \
    {                                                                                                                  \
        "allow_nan", HT_KEY_BOOL, "false", 0, 0, NULL,                                                                 \
            "take NaN and inf as they are; a NaN among values to predict does not count"                               \
    }

/* Names the classes of the data; their number is that of the names, or what data.classes says. */
ht_status ht_data_name_classes(ht_data *data, ht_context *ctx, const char *const *names, int64_t count);

/* Slices of the batch of a step, of this part: 1 of validation. */
int64_t ht_data_slices(const ht_data *data, ht_data_part part);
/* Batches in an epoch of `items` items. Training leaves out a rest that fills no step, unless there is nothing else;
 * validation has all of them. */
int64_t ht_data_batches(const ht_data *data, ht_data_part part, int64_t items);

ht_status ht_data_no_memory(ht_context *ctx, const char *what);

typedef struct ht_paths {
    char **list;
    size_t count, capacity;
} ht_paths;

/* The path of a name, or a pattern, that a key gives. Relative ones begin in the request's folder; where it has no such
 * file, and for those of the command line, they begin where the process is. */
ht_status ht_data_path(const ht_data *data, ht_context *ctx, const ht_fields *fields, const char *key, const char *name,
                       char *out, size_t capacity);
/* The files that a TEXTS key names: patterns resolved, sorted by bytes, relative to the request's folder. Nothing found
 * is an error; a null key gives no paths. */
ht_status ht_paths_find(ht_paths *out, const ht_data *data, ht_context *ctx, const ht_fields *fields, const char *key);
void ht_paths_free(ht_paths *paths);
/* Adds a file to the fingerprint: ht_paths_find does it for those that it finds. `bytes`: its content, already there. */
void ht_fingerprint_file(const ht_data *data, ht_data_part part, const char *path);
void ht_fingerprint_bytes(const ht_data *data, ht_data_part part, const char *path, const void *bytes, size_t length);
/* Opens one of these paths: a file, or the request's memory. */
ht_status ht_data_content(ht_content *out, const ht_data *data, ht_context *ctx, const char *path);
/* The one file that a key of the block names, "" when it is null. */
ht_status ht_path_find(const ht_data *data, ht_context *ctx, const char *key, char *out, size_t capacity);

/* Facts of the training part are there, and files to validate on: no others are read. `fields`: of the data, or of one
 * source of a mixture. */
bool ht_data_validates_only(const ht_data *data, const ht_fields *fields);
/* Before the format opens its files: fills in what facts say, where they are used. */
ht_status ht_facts_take(ht_data *data, ht_context *ctx);
int64_t ht_facts_vocabulary(const ht_data *data);

/* Adds an array to a layout and sets its bytes. */
void ht_batch_add(ht_batch *batch, const char *name, ht_dtype dtype, int rank, const int64_t *shape);

/* The validation split: an item goes to validation when pick(i) says so; the list of an empty part is NULL. */
typedef struct ht_split {
    int64_t *items[HT_DATA_PARTS]; /* in the data's arena */
    int64_t counts[HT_DATA_PARTS];
} ht_split;

/* The validation split by a share, drawn for each item's number. */
ht_status ht_split_items(ht_split *out, ht_data *data, ht_context *ctx, int64_t count, double share);

#endif
