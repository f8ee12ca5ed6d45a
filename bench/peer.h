/* Other libraries to measure against. Each runs in a process of its own, where its threads, its allocator and its
 * environment do not meet ours, and sleeps in a read between its turns.
 *
 * The parent writes "CALLS REQUEST\n", the child answers "seconds=S" (per call) or "refused: reason"; before the first
 * request it says "ready: version" or "refused: reason". A child keeps the tensors of the last request, and warms up
 * when a request differs from the one before it. Requests (sizes are decimal numbers):
 *
 *     gemm f32|bf16 NN|NT|TN M N K            openblas (f32), torch
 *     sgemm f32 NN|NT|TN M N K                onednn
 *     matmul f32|bf16 NN|NT|TN M N K          onednn
 *     matmul u8s8u8 NN M N K                  onednn: codes, weights in its own layout, a scale for each column
 *     conv_forward|conv_data|conv_weights f32 N C H W O KERNEL     onednn, torch (stride 1, same padding, no bias)
 *     attention f32 B H T D CAUSAL            torch, forward and backward
 *     lstm f32 I H B T                        torch, forward and backward
 *     layernorm f32 R C                       torch, forward and backward
 *     adamw f32 N                             torch, one fused step
 *     train_gpt2 f32 LAYERS HEADS WIDTH LENGTH VOCABULARY BATCH    torch, a whole training step with AdamW
 *     train_seq2seq f32 LAYERS HIDDEN BATCH LENGTH VOCABULARY      torch, with Adam
 *     train_resnet18 f32 BATCH                torch, 32x32 images, SGD with momentum
 *     compiled_train_...                      the same through torch.compile
 *     resnet18|mobilenet_v2 f32|i8 BATCH      onnxruntime: logits of 224x224 images; i8: between QDQ nodes
 *     gpt2 f32|i8 LAYERS HEADS WIDTH LENGTH VOCABULARY             onnxruntime: logits; i8: quantised dynamically */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

typedef struct peer peer;

/* "openblas", "onednn", "torch" or "onnxruntime". Always returns: where it cannot run, peer_refusal says why and what to install. */
peer *peer_start(const char *name);
const char *peer_name(const peer *p);
/* Why there is no such peer at all; NULL when there is. */
const char *peer_refusal(const peer *p);
/* Seconds per call, or -1 after saying on stderr why this request was refused. */
double peer_time(peer *p, const char *request, int calls);
void peer_stop(peer *p);

/* The peer as a new process that does the request `calls` times and ends. Its wall time, or -1; kilobytes: the peak of
 * its memory beyond what it took to load the library. */
double peer_process(const char *name, const char *request, int calls, double *kilobytes);

/* For contests. */
typedef struct peer_request {
    peer *peer;
    char text[96];
} peer_request;
double peer_turn(void *arg, int calls);

#endif
