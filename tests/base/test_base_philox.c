#include "base/philox.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

typedef struct vector {
    uint32_t counter[4], key[2], word[4];
} vector;

static void philox__known_answers(void **state)
{
    (void)state;
    static const vector vectors[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8}},
        {{0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF},
         {0xFFFFFFFF, 0xFFFFFFFF},
         {0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD}},
        {{0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344},
         {0xA4093822, 0x299F31D0},
         {0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1}},
        {{1, 0, 0, 0}, {0, 0}, {0xF8E4CCA4, 0x5CB200DB, 0xB1A574EB, 0x097EFF67}},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        ht_philox got = ht_philox4x32(vectors[i].counter, vectors[i].key);
        assert_memory_equal(got.word, vectors[i].word, sizeof got.word);
    }
}

static void stream__a_word_does_not_depend_on_the_order_of_asking(void **state)
{
    (void)state;
    ht_stream stream = {.seed = 7, .step = 3, .site = ht_hash_text("h.0.drop")};
    uint32_t forward[64];
    double normal[64];
    for (int i = 0; i < 64; i++) forward[i] = ht_stream_word(&stream, (uint64_t)i);
    for (int i = 0; i < 64; i++) normal[i] = ht_stream_normal(&stream, (uint64_t)i);
    for (int i = 63; i >= 0; i--) {
        assert_int_equal(ht_stream_word(&stream, (uint64_t)i), forward[i]);
        assert_int_equal(ht_stream_block(&stream, (uint64_t)i / 4).word[i % 4], forward[i]);
        assert_true(ht_stream_normal(&stream, (uint64_t)i) == normal[i]);
    }
}

static void stream__seed_step_site_and_index_all_matter(void **state)
{
    (void)state;
    ht_stream streams[] = {{1, 0, 5}, {2, 0, 5}, {1, 1, 5}, {1, UINT64_C(1) << 32, 5}, {1, 0, 6}, {0, 0, 0}, {5, 0, 1}};
    size_t count = sizeof streams / sizeof streams[0];
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++) {
            ht_philox a = ht_stream_block(&streams[i], 0), b = ht_stream_block(&streams[j], 0);
            assert_memory_not_equal(a.word, b.word, sizeof a.word);
        }
    assert_int_not_equal(ht_stream_word(&streams[0], 0), ht_stream_word(&streams[0], UINT64_C(1) << 34));
}

/* These bits are part of snapshots and of every published loss curve: a change here is a change of format. */
static void stream__layout_is_frozen(void **state)
{
    (void)state;
    ht_stream stream = {.seed = 1234, .step = 5, .site = ht_hash_text("site")};
    ht_philox block = ht_stream_block(&stream, 9);
    const uint32_t want[4] = {0x547E2251, 0xED59FAC2, 0x562853E6, 0xA361F5E7};
    assert_memory_equal(block.word, want, sizeof want);
}

static void stream__uniform_is_uniform_and_never_an_end(void **state)
{
    (void)state;
    ht_stream stream = {.seed = 11, .site = 42};
    const int count = 200000;
    int bins[16] = {0};
    double sum = 0;
    for (int i = 0; i < count; i++) {
        double u = ht_stream_uniform(&stream, (uint64_t)i);
        assert_true(u > 0 && u < 1);
        sum += u;
        bins[(int)(u * 16)]++;
    }
    assert_true(fabs(sum / count - 0.5) < 4 / sqrt(12.0 * count));
    double chi_square = 0, expected = count / 16.0;
    for (int i = 0; i < 16; i++) chi_square += (bins[i] - expected) * (bins[i] - expected) / expected;
    assert_true(chi_square < 37.7); /* 15 degrees of freedom, one in a thousand */
}

static void stream__normal_has_the_moments_of_a_normal(void **state)
{
    (void)state;
    ht_stream stream = {.seed = 11, .site = 42};
    const int count = 200000;
    double moment[5] = {0}, neighbours = 0, last = 0;
    for (int i = 0; i < count; i++) {
        double x = ht_stream_normal(&stream, (uint64_t)i);
        for (int k = 1; k <= 4; k++) moment[k] += pow(x, k) / count;
        neighbours += x * last / count;
        last = x;
    }
    double sigma = 1 / sqrt((double)count);
    assert_true(fabs(moment[1]) < 4 * sigma);
    assert_true(fabs(moment[2] - 1) < 4 * sqrt(2.0) * sigma);
    assert_true(fabs(moment[3]) < 4 * sqrt(15.0) * sigma);
    assert_true(fabs(moment[4] - 3) < 4 * sqrt(96.0) * sigma);
    assert_true(fabs(neighbours) < 4 * sigma);
}

static void hash__is_fnv_1a(void **state)
{
    (void)state;
    assert_true(ht_hash_text("") == UINT64_C(0xcbf29ce484222325));
    assert_true(ht_hash_text("a") == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(ht_hash_text("foobar") == UINT64_C(0x85944171f73967e8));
    assert_true(ht_hash_bytes(0, "foobar", 6) == ht_hash_text("foobar"));
    assert_true(ht_hash_bytes(1, "foobar", 6) != ht_hash_text("foobar"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox__known_answers),
        cmocka_unit_test(stream__a_word_does_not_depend_on_the_order_of_asking),
        cmocka_unit_test(stream__seed_step_site_and_index_all_matter),
        cmocka_unit_test(stream__layout_is_frozen),
        cmocka_unit_test(stream__uniform_is_uniform_and_never_an_end),
        cmocka_unit_test(stream__normal_has_the_moments_of_a_normal),
        cmocka_unit_test(hash__is_fnv_1a),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
