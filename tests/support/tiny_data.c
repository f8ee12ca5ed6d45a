#include "tiny_data.h"

#include <stdio.h>

void tiny_text(data_case *c)
{
    static char text[6000];
    size_t length = 0;
    for (int i = 0; length < sizeof text - 40; i++)
        length += (size_t)sprintf(text + length, "%d plus %d is %d.\n", i, i * 7 % 23, i + i * 7 % 23);
    data_case_text(c, "text.txt", text);
}

void tiny_pairs(data_case *c)
{
    static const char *const words[][2] = {{"one", "un"}, {"two", "deux"}, {"cat", "chat"}, {"dog", "chien"}};
    static char pairs[20000];
    size_t length = 0;
    for (int i = 0; i < 200; i++)
        for (int side = 0; side < 2; side++) {
            for (int k = 0; k <= i % 5; k++)
                length += (size_t)sprintf(pairs + length, "%s%s", k ? " " : "", words[(i / 5 + k * 3) % 4][side]);
            length += (size_t)sprintf(pairs + length, "%c", side ? '\n' : '\t');
        }
    data_case_text(c, "pairs.tsv", pairs);
}

void tiny_images(data_case *c)
{
    enum { COUNT = 120, SIDE = 16 };
    static unsigned char images[16 + COUNT * SIDE * SIDE] = {0, 0, 8, 3, 0, 0, 0, COUNT, 0, 0, 0, SIDE, 0, 0, 0, SIDE};
    static unsigned char labels[8 + COUNT] = {0, 0, 8, 1, 0, 0, 0, COUNT};
    for (int i = 0; i < COUNT; i++) {
        labels[8 + i] = (unsigned char)(i % 2);
        for (int p = 0; p < SIDE * SIDE; p++)
            images[16 + i * SIDE * SIDE + p] = (unsigned char)(((p + i) % SIDE < 8 ? 180 : 20) + (i * 7 + p * 13) % 60);
    }
    data_case_file(c, "train-images-idx3-ubyte", images, sizeof images);
    data_case_file(c, "train-labels-idx1-ubyte", labels, sizeof labels);
}

void tiny_sums(data_case *c, size_t bytes)
{
    static char text[16384];
    size_t length = 0;
    if (bytes > sizeof text) bytes = sizeof text;
    for (int i = 0; length + 64 < bytes; i++)
        length += (size_t)snprintf(text + length, 64, "%d times %d makes %d.\n", i % 13, i % 7, (i % 13) * (i % 7));
    data_case_text(c, "sums.txt", text);
}
