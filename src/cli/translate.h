/* Held-out sentences through a trained translator, and the BLEU of translations. */
#ifndef HT_CLI_TRANSLATE_H
#define HT_CLI_TRANSLATE_H

#include "infer/infer.h"
#include "train/train.h"

typedef struct cli_translation {
    char *source, *translation; /* as people write; unknown words are <unk> in the source, nothing in a translation */
    char *reference;            /* as the data has it */
} cli_translation;

typedef struct cli_translations {
    cli_translation *list;
    size_t count, capacity;
    int64_t tokens; /* of the references, their ends included */
} cli_translations;

/* Translates the first `most` sentences (0: all) of the validation part, in its order. The run was opened with this
 * beam. Call cli_translations_free after a failure, too. */
ht_status cli_translate(cli_translations *out, ht_context *ctx, ht_run *run, int64_t beam, size_t most);
void cli_translations_free(cli_translations *list);

/* How all commands search. */
ht_search_opts cli_search_opts(int64_t batch, int64_t beam, int64_t length);
/* A translation never says "unknown": the number of ids that stay. */
int64_t cli_drop_unknown(int32_t *ids, int64_t count);

/* The BLEU of all of them. */
ht_status cli_translations_bleu(const cli_translations *list, ht_context *ctx, const char *tokenizer, double *score);
/* Of the whole validation part, which a run translates that was opened with this beam. */
ht_status cli_run_bleu(ht_context *ctx, ht_run *run, const char *tokenizer, int64_t beam, double *score);
/* "13a", "none"; ends with NULL. */
extern const char *const cli_bleu_tokenizers[];
/* Adds two files of sentences, one on each line; they may be compressed. *count: how many there are. */
ht_status cli_files_bleu(ht_bleu *bleu, ht_context *ctx, const char *hypotheses, const char *references,
                         int64_t *count);

#endif
