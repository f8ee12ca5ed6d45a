/* Files that the smallest models learn from in a few steps. */
#ifndef HT_TEST_TINY_DATA_H
#define HT_TEST_TINY_DATA_H

#include "data_case.h"

/* "text.txt": sums in words. */
void tiny_text(data_case *c);
/* sums.txt: at most so many bytes of lines like "3 times 4 makes 12." */
void tiny_sums(data_case *c, size_t bytes);
/* "pairs.tsv": sentences of one to five words and their translation. */
void tiny_pairs(data_case *c);
/* "train-images-idx3-ubyte" with its labels: 16 x 16, two classes. */
void tiny_images(data_case *c);

#endif
