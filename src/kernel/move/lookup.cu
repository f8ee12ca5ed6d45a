// gather: y[.., k, ..] = x[.., index[.., k, ..], ..]. embedding: y[n,:] = table[index[n],:]. one_hot: y[n,d] = 1
// where d = label[n]. embedding_q: y[n,:] = table[index[n],:] scale[index[n]]. An index outside gives zeros. A thread for each word of the result.

template <class WORD, int64_t ROWS, int64_t WORDS, int64_t SIZE, class INDEX>
DEVICE void embed(const void *table, const INDEX *index, void *y)
{
    const int64_t i = thread_number();
    if (i >= ROWS * WORDS) return;
    const int64_t at = get_int(index[i / WORDS]);
    ((WORD *)y)[i] = at >= 0 && at < SIZE ? ((const WORD *)table)[at * WORDS + i % WORDS] : word_of<WORD>(0);
}

// Rows of codes, as numbers.
template <int64_t ROWS, int64_t COLUMNS, int64_t SIZE, bool ONE_SCALE, class INDEX>
DEVICE void embed_codes(const int8_t *table, const float *scale, const INDEX *index, float *y)
{
    const int64_t i = thread_number();
    if (i >= ROWS * COLUMNS) return;
    const int64_t at = get_int(index[i / COLUMNS]);
    y[i] = at >= 0 && at < SIZE ? (float)table[at * COLUMNS + i % COLUMNS] * scale[ONE_SCALE ? 0 : at] : 0.f;
}

// AXES are those of the result, with the strides of x, where that of the gathered axis is 0.
template <class WORD, class NUMBER, int64_t COUNT, int64_t SIZE, int64_t STRIDE, class... AXES, class INDEX>
DEVICE void gather(const void *x, const INDEX *index, void *y)
{
    const int64_t i = thread_number();
    if (i >= COUNT) return;
    const place p = locate<NUMBER, AXES...>((NUMBER)i);
    const int64_t at = get_int(index[i]);
    ((WORD *)y)[i] = at >= 0 && at < SIZE ? ((const WORD *)x)[p.from + at * STRIDE] : word_of<WORD>(0);
}

template <class WORD, int64_t ROWS, int64_t DEPTH, class LABEL>
DEVICE void one_hot(const LABEL *label, uint64_t one, void *y)
{
    const int64_t i = thread_number();
    if (i < ROWS * DEPTH)
        ((WORD *)y)[i] = get_int(label[i / DEPTH]) == i % DEPTH ? word_of<WORD>(one) : word_of<WORD>(0);
}
