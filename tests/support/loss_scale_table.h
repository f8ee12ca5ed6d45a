/* The worked table of the dynamic loss scale, for the op that holds the rule and for whole steps. */
#ifndef HT_TESTS_LOSS_SCALE_TABLE_H
#define HT_TESTS_LOSS_SCALE_TABLE_H

#include <stdbool.h>

/* Window 4, first scale 65536, hysteresis 2, minimum 16384: scale in units of 1024 and hysteresis after each step,
 * where hysteresis refills at growth, and where it refills at each clean step. */
static const struct {
    bool overflow;
    int scale[2], left[2];
} table[] = {
    {false, {64, 64}, {2, 2}},   {false, {64, 64}, {2, 2}},  {false, {64, 64}, {2, 2}}, {false, {64, 64}, {2, 2}},
    {false, {128, 128}, {2, 2}}, {true, {128, 128}, {1, 1}}, {true, {64, 64}, {1, 1}},  {true, {32, 32}, {1, 1}},
    {true, {16, 16}, {1, 1}},    {false, {16, 16}, {1, 2}},  {false, {16, 16}, {1, 2}}, {false, {16, 16}, {1, 2}},
    {false, {16, 16}, {1, 2}},   {false, {32, 32}, {2, 2}},  {true, {32, 32}, {1, 1}},  {false, {32, 32}, {1, 2}},
    {false, {32, 32}, {1, 2}},   {false, {32, 32}, {1, 2}},  {true, {16, 32}, {1, 1}},  {false, {16, 32}, {1, 2}},
    {false, {16, 32}, {1, 2}},   {false, {16, 32}, {1, 2}},  {false, {16, 32}, {1, 2}}, {false, {32, 64}, {2, 2}},
    {true, {32, 64}, {1, 1}},    {true, {16, 32}, {1, 1}},   {false, {16, 32}, {1, 2}}, {false, {16, 32}, {1, 2}},
    {false, {16, 32}, {1, 2}},   {false, {16, 32}, {1, 2}},
};
enum { TABLE_STEPS = sizeof table / sizeof table[0], FATAL_AT = 26 };

#endif
