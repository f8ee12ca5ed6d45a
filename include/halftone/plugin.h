/* halftone/plugin.h: the interface of a user's model in C, compiled into a shared object that a job file names:
 *      "model": {"type": "plugin", "file": "./mymodel.so", "options": {"width": 64}}
 * The object has one entry point, halftone_plugin, and calls the functions of graph.h and ops.h; the loading program
 * provides them, so the object is linked without libraries. */
#ifndef HALFTONE_PLUGIN_H
#define HALFTONE_PLUGIN_H

#include <halftone/graph.h>
#include <halftone/ops.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised with every incompatible change. */
#define HT_PLUGIN_ABI 1

/* The shape of the data. A plugin declares its inputs under these names and types, in each segment that reads them:
 *      "lm"          tokens, targets i32[batch, length]; if `documents`, also positions and documents
 *      "class"       x f32[batch, feature ..], label i32[batch]; or tokens, length i32[batch], label
 *      "regression"  x f32[batch, feature ..], y f32[batch, classes]
 *      "pairs"       source i32[batch, source_length], source_length i32[batch], target_in, targets i32[batch, length]
 *      "masked_lm"   tokens, targets i32[batch, length], length i32[batch] */
typedef struct ht_plugin_request {
    size_t size;
    const char *task;
    int64_t batch, length, source_length, vocabulary, source_vocabulary, classes;
    int feature_rank;
    const int64_t *feature;
    bool documents;
    const char *options; /* the job file's "options" as JSON; "{}" when it has none */
} ht_plugin_request;

typedef struct ht_plugin {
    size_t size;
    uint32_t abi; /* HT_PLUGIN_ABI */
    const char *name;
    /* Builds the segment "forward" with the output "loss", and "eval" if it differs. A loss that is a sum comes with
     * the output "count", i64[]. To predict with it, "eval" has the output "logits", a row for each item. A status other than HT_OK ends the run, and so does an error of ht_graph_status. */
    ht_status (*build)(ht_graph *graph, const ht_plugin_request *request);
} ht_plugin;

/* The entry point that a plugin defines. */
HT_API const ht_plugin *halftone_plugin(void);

#ifdef __cplusplus
}
#endif

#endif
