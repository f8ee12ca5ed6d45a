/* Text files to token pieces, shared by the formats text, jsonl, shards and mixture. */
#ifndef HT_DATA_CORPUS_H
#define HT_DATA_CORPUS_H

#include "data/tokens.h"

typedef struct ht_text_span {
    const char *text;
    size_t length;
    const char *name; /* of its file, in the data's arena */
} ht_text_span;

/* The texts of one group: spans of mapped files, or of `arena`. */
typedef struct ht_corpus {
    ht_text_span *spans[HT_DATA_PARTS];
    size_t counts[HT_DATA_PARTS], capacities[HT_DATA_PARTS];
    bool documents; /* each span is one */
    bool held_out;  /* validation has files of its own */
    double share;   /* else: the held-out share */
    ht_arena *arena;
} ht_corpus;

/* Reads the files that the fields of a text or jsonl source name. The corpus is to be freed in any case. */
ht_status ht_corpus_read(ht_corpus *out, ht_token_set *set, ht_data *data, ht_context *ctx,
                         const ht_data_format *format, const ht_fields *fields);
void ht_corpus_free(ht_corpus *corpus);
/* Counts its characters. */
ht_status ht_corpus_count(const ht_corpus *corpus, ht_context *ctx, ht_vocabulary *vocabulary);
/* Adds its tokens to a group, with the set's separator before each document. */
ht_status ht_corpus_encode(const ht_corpus *corpus, ht_token_set *set, ht_context *ctx, size_t group,
                           const ht_vocabulary *vocabulary, bool bytes);
/* Adds the shards that the fields name to a group; *largest is raised to the largest token. */
ht_status ht_shards_read(ht_token_set *set, ht_data *data, ht_context *ctx, size_t group, const ht_fields *fields,
                         int64_t *largest);

#endif
