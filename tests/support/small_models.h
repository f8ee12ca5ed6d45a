/* Every architecture, small: what tests of models walk. */
#ifndef TESTS_SMALL_MODELS_H
#define TESTS_SMALL_MODELS_H

#include "model/model.h"

#define LM         HT_TASK_LM
#define CLASS      HT_TASK_CLASS
#define REGRESSION HT_TASK_REGRESSION

#define SEQUENCES .batch = 3, .length = 8, .vocabulary = 13
#define IMAGES    .batch = 4, .classes = 5, .feature_rank = 3, .feature = {3, 32, 32}
#define DIGITS    .batch = 6, .classes = 10, .feature_rank = 2, .feature = {28, 28}
#define PAIRS                                                                                                          \
    .task = HT_TASK_PAIRS, .batch = 3, .length = 6, .source_length = 7, .vocabulary = 11, .source_vocabulary = 9

typedef struct small_model {
    const char *type, *json;
    ht_model_request request;
    double lr;
} small_model;

static const small_model small[] = {
    {"mlp", "{\"hidden\": [16, 12]}", {.task = CLASS, DIGITS}, 1e-2},
    {"mlp", "{\"hidden\": [], \"activation\": \"tanh\"}", {.task = CLASS, DIGITS}, 1e-2},
    {"mlp", "{\"hidden\": 8}", {.task = REGRESSION, .batch = 5, .classes = 2, .feature_rank = 1, .feature = {4}}, 1e-2},
    {"lenet", "{}", {.task = CLASS, DIGITS}, 1e-2},
    {"lenet", "{\"activation\": \"tanh\", \"pool\": \"average\"}", {.task = CLASS, IMAGES}, 1e-2},
    {"resnet", "{\"width\": 8, \"stem\": \"cifar\"}", {.task = CLASS, IMAGES}, 1e-3},
    {"resnet", "{\"width\": 4, \"depth\": 50}", {.task = CLASS, IMAGES}, 1e-3},
    {"mobilenet_v2", "{\"width_mult\": 0.25, \"stem\": \"cifar\", \"dropout\": 0}", {.task = CLASS, IMAGES}, 1e-3},
    {"lstm_lm", "{\"hidden\": 12, \"layers\": 2, \"embedding\": 6}", {.task = LM, SEQUENCES}, 1e-2},
    {"lstm_lm",
     "{\"hidden\": 12, \"layers\": 1, \"tie_word_embeddings\": true, \"carry\": false}",
     {.task = LM, SEQUENCES},
     1e-2},
    {"seq2seq", "{\"hidden\": 12, \"layers\": 2}", {PAIRS}, 1e-2},
    {"seq2seq", "{\"hidden\": 12, \"layers\": 3, \"attention\": \"dot\", \"embedding\": 5}", {PAIRS}, 1e-2},
    {"gpt2", "{\"n_layer\": 2, \"n_head\": 2, \"n_embd\": 16}", {.task = LM, SEQUENCES}, 1e-2},
    {"gpt2",
     "{\"n_layer\": 2, \"n_head\": 2, \"n_embd\": 16, \"bias\": false, \"activation\": \"gelu\", \"n_positions\": 20}",
     {.task = LM, SEQUENCES, .documents = true},
     1e-2},
    {"llama",
     "{\"hidden_size\": 16, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2}",
     {.task = LM, SEQUENCES},
     1e-2},
    {"llama",
     "{\"hidden_size\": 16, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"tie_word_embeddings\": true}",
     {.task = LM, SEQUENCES, .documents = true},
     1e-2},
    {"bert",
     "{\"hidden_size\": 16, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"hidden_dropout_prob\": 0}",
     {.task = HT_TASK_MASKED_LM, SEQUENCES},
     1e-2},
    {"bert",
     "{\"hidden_size\": 16, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"hidden_dropout_prob\": 0}",
     {.task = CLASS, SEQUENCES, .classes = 3},
     1e-2},
};
enum { SMALL = sizeof small / sizeof small[0] };

#endif
