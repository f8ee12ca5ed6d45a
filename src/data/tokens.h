/* Sets of tokens, which language models read in windows. A part is a list of pieces, each a contiguous sequence of
 * tokens that windows do not cross; a set has one group, or several with weights (a mixture). */
#ifndef HT_DATA_TOKENS_H
#define HT_DATA_TOKENS_H

#include "data/dataset.h"

typedef struct ht_piece {
    const uint8_t *tokens;
    int width; /* 1, 2 or 4 bytes each, as the machine orders them */
    int64_t count;
    const char *path; /* of a file of tokens, for messages; NULL: they were made here */
    int64_t offset;   /* bytes before the first of them, in that file */
} ht_piece;

typedef struct ht_piece_list {
    ht_piece *list; /* heap memory */
    size_t count, capacity;
    int64_t *first_window; /* of each piece, and their sum behind the last; made by ht_tokens_finish */
    int64_t *first_start;
} ht_piece_list;

typedef enum ht_token_order {
    HT_TOKENS_RANDOM,
    HT_TOKENS_SHUFFLED,
    HT_TOKENS_SEQUENTIAL,
    HT_TOKENS_STREAM
} ht_token_order;

typedef struct ht_token_group {
    double weight;
    ht_piece_list parts[HT_DATA_PARTS];
} ht_token_group;

typedef struct ht_token_set {
    ht_token_group *groups;
    size_t group_count;
    ht_token_order order;
    int64_t length;
    int32_t separator; /* begins each document; -1: there are none */
    int32_t mask;      /* of MASKED_LM */
    double mask_share;
    /* What the pieces point into. */
    ht_content *contents;
    size_t content_count, content_capacity;
    void **blocks;
    size_t block_count, block_capacity;
} ht_token_set;

#define HT_TOKEN_KEYS                                                                                                  \
    {"length", HT_KEY_INT, "256", 1, 1 << 24, NULL, "tokens of a row"},                                                \
        {"order",                                                                                                      \
         HT_KEY_CHOICE,                                                                                                \
         "\"random\"",                                                                                                 \
         0,                                                                                                            \
         0,                                                                                                            \
         "random|shuffled|sequential|stream",                                                                          \
         "rows: windows anywhere, an epoch's windows shuffled or in order, or one stream per row of the batch"},       \
        {"validation_share", HT_KEY_NUMBER, "0.1", 0, 0.9, NULL, "the end of the data that is held out"},              \
        {"document_ids", HT_KEY_BOOL, "false", 0, 0, NULL, "tell the model which document each token belongs to"},     \
    {                                                                                                                  \
        "mask_share", HT_KEY_NUMBER, "0.15", 0.001, 0.9, NULL, "tokens that a masked model has to find"                \
    }

/* Makes the set (data->own, data->kind) with its groups empty and the keys above read. */
ht_status ht_tokens_create(ht_token_set **out, ht_data *data, ht_context *ctx, size_t groups);
ht_status ht_tokens_add(ht_token_set *set, ht_context *ctx, size_t group, ht_data_part part, ht_piece piece);
/* The set closes the content, frees the block. On failure they are closed and freed at once. */
ht_status ht_tokens_keep_content(ht_token_set *set, ht_context *ctx, ht_content content);
ht_status ht_tokens_keep_block(ht_token_set *set, ht_context *ctx, void *block);
/* Once all pieces are there and data->info.vocabulary counts all tokens but the mask. */
ht_status ht_tokens_finish(ht_token_set *set, ht_data *data, ht_context *ctx);

#endif
