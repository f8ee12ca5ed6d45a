// fill, constant, iota: results that come from attributes alone.

template <class WORD, int64_t COUNT> DEVICE void fill_words(uint64_t bits, void *to)
{
    const int64_t i = thread_number();
    if (i < COUNT) ((WORD *)to)[i] = word_of<WORD>(bits);
}

template <class WORD, int64_t COUNT, class TABLE> DEVICE void copy_table(const TABLE &table, void *to)
{
    const int64_t i = thread_number();
    if (i < COUNT) ((WORD *)to)[i] = (WORD)table[i];
}

DEVICE void put_count(float *to, int64_t x) { put_double(to, (double)x); }
DEVICE void put_count(double *to, int64_t x) { put_double(to, (double)x); }
DEVICE void put_count(f16 *to, int64_t x) { put_double(to, (double)x); }
DEVICE void put_count(bf16 *to, int64_t x) { put_double(to, (double)x); }
DEVICE void put_count(boolean *to, int64_t x) { put_int(to, x); }
template <class T> DEVICE void put_count(T *to, int64_t x) { put_int(to, saturated<T>(x)); }

template <int64_t COUNT, int64_t SIZE, int64_t INNER, class Y> DEVICE void count_along(Y *y)
{
    const int64_t i = thread_number();
    if (i < COUNT) put_count(&y[i], i / INNER % SIZE);
}
