/* Compiler-specific spellings of vector shuffles and vectorisation hints. */
#ifndef HT_BASE_SHUFFLE_H
#define HT_BASE_SHUFFLE_H

/* Vectorisation hint before a loop whose iterations are independent; a result may alias an input exactly. */
#if defined(__clang__)
#define HT_ELEMENTWISE_ALONE _Pragma("clang loop vectorize(assume_safety)")
#else
#define HT_ELEMENTWISE_ALONE _Pragma("GCC ivdep")
#endif

/* Shuffle: elements of two vectors by a vector of indices. One instruction where the compiler has the builtin, a loop
 * for compilers that are only used for checks and fuzzing. */
#if defined(__clang__)
#define HT_SHUFFLE(a, b, mask)                                                                                         \
    __extension__({                                                                                                    \
        __typeof__(a) picked_;                                                                                         \
        int lanes_ = (int)(sizeof picked_ / sizeof picked_[0]);                                                        \
        for (int lane_ = 0; lane_ < lanes_; lane_++)                                                                   \
            picked_[lane_] = (mask)[lane_] < lanes_ ? (a)[(mask)[lane_]] : (b)[(mask)[lane_] - lanes_];                \
        picked_;                                                                                                       \
    })
#else
#define HT_SHUFFLE(a, b, mask) __builtin_shuffle((a), (b), (mask))
#endif

#endif
