#include <math.h>
#include <stdlib.h>

#include "report/page.h"

bool ht_axis_holds(const ht_axis *axis, double value)
{
    return isfinite(value) && (!axis->logarithmic || value > 0);
}

double ht_axis_place(const ht_axis *axis, double value)
{
    double share = axis->logarithmic ? (log(value) - log(axis->low)) / (log(axis->high) - log(axis->low))
                                     : (value / 2 - axis->low / 2) / (axis->high / 2 - axis->low / 2);
    return axis->from + share * (axis->to - axis->from);
}

static double round_step(double span, int wanted)
{
    double raw = span / wanted, power = pow(10, floor(log10(raw))), share = raw / power;
    return power * (share <= 1.000001 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10);
}

static void linear_ticks(ht_axis *axis, int wanted)
{
    double step = round_step(axis->high - axis->low, wanted);
    /* A range beyond what doubles can step through keeps its ends as its only ticks. */
    if (!(step > 0) || !isfinite(step) || axis->low + step == axis->low || axis->high - step == axis->high) {
        axis->ticks[0] = axis->low;
        axis->ticks[1] = axis->high;
        axis->tick_count = 2;
        return;
    }
    axis->low = step * floor(axis->low / step + 1e-9);
    axis->high = step * ceil(axis->high / step - 1e-9);
    double first = round(axis->low / step);
    for (int i = 0; i < HT_MOST_TICKS && (first + i) * step <= axis->high + step / 2; i++)
        axis->ticks[axis->tick_count++] = (first + i) * step;
}

static void log_ticks(ht_axis *axis, int wanted)
{
    int first = (int)floor(log10(axis->low) + 1e-9), last = (int)ceil(log10(axis->high) - 1e-9);
    int stride = (last - first) / wanted + 1;
    bool few = last - first <= 3;
    static const double parts[] = {1, 2, 5};
    for (int power = first; power <= last; power += stride)
        for (int i = 0; i < (few ? 3 : 1); i++) {
            double tick = parts[i] * pow(10, power);
            bool inside = tick >= axis->low * 0.999999 && tick <= axis->high * 1.000001;
            if (inside && axis->tick_count < HT_MOST_TICKS) axis->ticks[axis->tick_count++] = tick;
        }
}

void ht_axis_settle(ht_axis *axis, int wanted)
{
    axis->tick_count = 0;
    if (!(axis->low <= axis->high)) axis->low = axis->logarithmic ? 1 : 0, axis->high = axis->logarithmic ? 10 : 1;
    if (axis->low == axis->high && axis->logarithmic) {
        axis->low /= 2;
        axis->high *= 2;
    } else if (axis->low == axis->high) {
        /* Zero lies at the bottom, where a reader looks for it; another constant in the middle. */
        double around = fabs(axis->low) * 0.1;
        axis->high += axis->low != 0 ? around : 1;
        axis->low -= around;
    }
    double low = axis->low, high = axis->high;
    if (axis->logarithmic) log_ticks(axis, wanted);
    if (axis->logarithmic && axis->tick_count >= 3) return;
    /* A narrow range of a logarithmic axis has hardly a round power: even steps label it. */
    axis->tick_count = 0;
    linear_ticks(axis, wanted);
    if (!axis->logarithmic) return;
    int kept = 0;
    for (int i = 0; i < axis->tick_count; i++)
        if (axis->ticks[i] >= low && axis->ticks[i] <= high) axis->ticks[kept++] = axis->ticks[i];
    axis->tick_count = kept;
    axis->low = low;
    axis->high = high;
}

/* "2.5e-4" */
static void add_scientific(ht_text *page, double value)
{
    int power = (int)floor(log10(fabs(value)) + 1e-9);
    ht_text_number(page, round(value / pow(10, power) * 100) / 100);
    ht_text_add(page, "e%d", power);
}

static bool wants_scientific(double value)
{
    double size = fabs(value);
    return size >= 1e6 || (size > 0 && size < 1e-3);
}

void ht_axis_number(ht_text *page, double value)
{
    if (fabs(value) < 1e-300) value = 0;
    double size = fabs(value);
    if (wants_scientific(value)) {
        add_scientific(page, value);
        return;
    }
    double fine = pow(10, 5 - (size > 0 ? floor(log10(size)) : 0));
    ht_text_number(page, round(value * fine) / fine);
}

/* Digits behind the point that a number below a million needs; six at most. */
static int decimals_of(double value)
{
    int decimals = 0;
    for (double scaled = fabs(value); decimals < 6 && fabs(scaled - round(scaled)) > 1e-6 * scaled + 1e-9; scaled *= 10)
        decimals++;
    return decimals;
}

/* With that many digits behind the point, whatever the locale. */
static void add_fixed(ht_text *page, double value, int decimals)
{
    long unit = lround(pow(10, decimals)), scaled = lround(value * (double)unit), size = labs(scaled);
    ht_text_add(page, "%s%ld", scaled < 0 ? "-" : "", size / unit);
    if (decimals > 0) ht_text_add(page, ".%0*ld", decimals, size % unit);
}

void ht_axis_tick(ht_text *page, const ht_axis *axis, int tick)
{
    double value = fabs(axis->ticks[tick]) < 1e-300 ? 0 : axis->ticks[tick], largest = 0;
    int decimals = 0;
    bool scientific = false;
    for (int i = 0; i < axis->tick_count; i++) {
        largest = fmax(largest, fabs(axis->ticks[i]));
        decimals = decimals_of(axis->ticks[i]) > decimals ? decimals_of(axis->ticks[i]) : decimals;
    }
    /* What is tiny beside the others is zero but for rounding. */
    if (!axis->logarithmic && fabs(value) < 1e-12 * largest) value = 0;
    for (int i = 0; i < axis->tick_count; i++)
        scientific = scientific || (wants_scientific(axis->ticks[i]) && fabs(axis->ticks[i]) >= 1e-12 * largest);
    if (value != 0 && scientific)
        add_scientific(page, value);
    else if (value == 0)
        ht_text_add(page, "0");
    else if (axis->logarithmic && axis->high > 100 * axis->low)
        ht_axis_number(page, value); /* 0.01, 0.1, 1, 10 */
    else
        add_fixed(page, value, decimals);
}

int ht_axis_tick_length(const ht_axis *axis)
{
    int longest = 1;
    for (int i = 0; i < axis->tick_count; i++) {
        ht_text text = {0};
        ht_axis_tick(&text, axis, i);
        if ((int)text.length > longest) longest = (int)text.length;
        ht_text_free(&text);
    }
    return longest;
}
