/* A window as CUDA text (window.cu). */
#ifndef HT_KERNEL_WINDOW_TEXT_H
#define HT_KERNEL_WINDOW_TEXT_H

#include <stdio.h>

#include "kernel/cuda/cuda.h"
#include "op/op.h"

typedef struct ht_window_text {
    char axis[2][160], text[400];
} ht_window_text;

static inline const char *ht_window_write(const ht_window *window, ht_window_text *to)
{
    for (int i = 0; i < 2; i++)
        snprintf(to->axis[i], sizeof to->axis[i], "window_axis<%lld, %lld, %lld, %lld, %lld, %lld>",
                 (long long)window->plane[i], (long long)window->size[i], (long long)window->stride[i],
                 (long long)window->padding[i], (long long)window->dilation[i], (long long)window->steps[i]);
    snprintf(to->text, sizeof to->text, "window<%s, %s>", to->axis[0], to->axis[1]);
    return to->text;
}

#endif
