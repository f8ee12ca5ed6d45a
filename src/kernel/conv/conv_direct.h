/* Convolution line by line for conv.cpu.c, whatever its sizes: an output line is a few lines of the input, shifted,
 * weighted and added. For windows that are mostly padding and for what conv_planes.h and conv_product.h do not take.
 * Numerics: real inside, taps in order, one rounding.  Threads: planes; weight gradients: pairs of channels. */
#ifndef HT_KERNEL_CONV_DIRECT_H
#define HT_KERNEL_CONV_DIRECT_H

#include "kernel/cpu.h"
#include "op/op.h"

enum { DIRECT_POINTS = 512 };

typedef struct direct_job {
    const ht_launch *launch;
    const ht_conv *conv;
} direct_job;

/* One line of the output: `n` positions from (step_h, step_w) on. */
static inline void direct_forward_line(const direct_job *job, int64_t image, int64_t out_channel, int64_t step_h,
                                       int64_t step_w, int64_t n)
{
    const ht_launch *launch = job->launch;
    const ht_conv *c = job->conv;
    const ht_window *v = &c->window;
    real sum[DIRECT_POINTS] = {0}, line[DIRECT_POINTS];
    int64_t first = (image * c->groups + out_channel / c->out_channels) * c->in_channels;
    for (int64_t line_tap = 0; line_tap < c->in_channels * v->size[0]; line_tap++) {
        int64_t plane = (first + line_tap / v->size[0]) * v->plane[0];
        int64_t h = ht_window_at(v, 0, step_h, line_tap % v->size[0]);
        if (h < 0 || h >= v->plane[0]) continue;
        for (int64_t tap_w = 0; tap_w < v->size[1]; tap_w++) {
            int64_t tap = (out_channel * c->in_channels * v->size[0] + line_tap) * v->size[1] + tap_w,
                    w = ht_window_at(v, 1, step_w, tap_w);
            ht_span in = ht_span_inside(w, v->stride[1], v->plane[1], 0, n);
            if (in.from == in.to) continue;
            real weight = ht_load1(launch->in[1], launch->call->in[1]->dtype, tap);
            ht_load_strided(line, launch->in[0], launch->call->in[0]->dtype,
                            (plane + h) * v->plane[1] + w + in.from * v->stride[1], v->stride[1], in.to - in.from);
            for (int64_t i = in.from; i < in.to; i++) sum[i] += weight * line[i - in.from];
        }
    }
    int64_t at = ((image * c->groups * c->out_channels + out_channel) * v->steps[0] + step_h) * v->steps[1] + step_w;
    ht_save(launch->out[0], launch->call->out[0]->dtype, at, sum, n);
}

static inline void direct_forward_plane(void *arg, int64_t tile)
{
    const direct_job *job = arg;
    const ht_window *v = &job->conv->window;
    int64_t channels = job->conv->groups * job->conv->out_channels;
    for (int64_t h = 0; h < v->steps[0]; h++)
        for (int64_t w = 0; w < v->steps[1]; w += DIRECT_POINTS)
            direct_forward_line(job, tile / channels, tile % channels, h, w,
                                ht_min_i64(v->steps[1] - w, DIRECT_POINTS));
}

/* Adds what one output channel's dy sends to `n` positions of the plane from (h, w) on. */
static inline void direct_collect(const direct_job *job, real *sum, int64_t image, int64_t in_channel,
                                  int64_t out_channel, int64_t h, int64_t w, int64_t n)
{
    const ht_launch *launch = job->launch;
    const ht_window *v = &job->conv->window;
    real line[DIRECT_POINTS];
    int64_t plane = (image * job->conv->groups * job->conv->out_channels + out_channel) * v->steps[0];
    for (int64_t tap_h = 0; tap_h < v->size[0]; tap_h++) {
        int64_t from_top = h - ht_window_at(v, 0, 0, tap_h), step_h = from_top / v->stride[0];
        if (from_top < 0 || from_top % v->stride[0] || step_h >= v->steps[0]) continue;
        for (int64_t tap_w = 0; tap_w < v->size[1]; tap_w++) {
            int64_t tap =
                ((out_channel * job->conv->in_channels + in_channel) * v->size[0] + tap_h) * v->size[1] + tap_w;
            int64_t start = ht_window_at(v, 1, 0, tap_w) - w;
            ht_span in = ht_span_inside(start, v->stride[1], n, 0, v->steps[1]);
            if (in.from == in.to) continue;
            real weight = ht_load1(launch->in[1], launch->call->in[1]->dtype, tap);
            ht_load(line, launch->in[0], launch->call->in[0]->dtype, (plane + step_h) * v->steps[1] + in.from,
                    in.to - in.from);
            for (int64_t i = in.from; i < in.to; i++) sum[start + i * v->stride[1]] += weight * line[i - in.from];
        }
    }
}

static inline void direct_grad_input_plane(void *arg, int64_t tile)
{
    const direct_job *job = arg;
    const ht_conv *c = job->conv;
    const ht_window *v = &c->window;
    int64_t channels = c->groups * c->in_channels, image = tile / channels, group = tile % channels / c->in_channels;
    for (int64_t h = 0; h < v->plane[0]; h++) {
        for (int64_t w = 0; w < v->plane[1]; w += DIRECT_POINTS) {
            real sum[DIRECT_POINTS] = {0};
            int64_t n = ht_min_i64(v->plane[1] - w, DIRECT_POINTS);
            for (int64_t o = 0; o < c->out_channels; o++)
                direct_collect(job, sum, image, tile % c->in_channels, group * c->out_channels + o, h, w, n);
            ht_save(job->launch->out[0], job->launch->call->out[0]->dtype, (tile * v->plane[0] + h) * v->plane[1] + w,
                    sum, n);
        }
    }
}

/* Adds x·dy of one tap over one line of one image, element by element: sum[i] for every DIRECT_POINTS-th position. */
static inline void direct_correlate(const direct_job *job, real *sum, int64_t image, int64_t in_channel,
                                    int64_t out_channel, int64_t step_h, int64_t h, int64_t tap_w)
{
    const ht_launch *launch = job->launch;
    const ht_conv *c = job->conv;
    const ht_window *v = &c->window;
    real x[DIRECT_POINTS], dy[DIRECT_POINTS];
    int64_t plane = (image * c->groups + out_channel / c->out_channels) * c->in_channels + in_channel;
    int64_t x_line = (plane * v->plane[0] + h) * v->plane[1];
    int64_t dy_line = ((image * c->groups * c->out_channels + out_channel) * v->steps[0] + step_h) * v->steps[1];
    int64_t start = ht_window_at(v, 1, 0, tap_w);
    ht_span in = ht_span_inside(start, v->stride[1], v->plane[1], 0, v->steps[1]);
    for (int64_t i = in.from; i < in.to; i += DIRECT_POINTS) {
        int64_t n = ht_min_i64(in.to - i, DIRECT_POINTS);
        ht_load_strided(x, launch->in[0], launch->call->in[0]->dtype, x_line + start + i * v->stride[1], v->stride[1],
                        n);
        ht_load(dy, launch->in[1], launch->call->in[1]->dtype, dy_line + i, n);
        for (int64_t j = 0; j < n; j++) sum[j] += x[j] * dy[j];
    }
}

static inline void direct_grad_weight_channel(void *arg, int64_t tile)
{
    const direct_job *job = arg;
    const ht_conv *c = job->conv;
    const ht_window *v = &c->window;
    int64_t in_channel = tile % c->in_channels, out_channel = tile / c->in_channels;
    for (int64_t tap = 0; tap < v->size[0] * v->size[1]; tap++) {
        real sum[DIRECT_POINTS] = {0}, total = 0;
        for (int64_t image = 0; image < c->batch; image++) {
            for (int64_t step_h = 0; step_h < v->steps[0]; step_h++) {
                int64_t h = ht_window_at(v, 0, step_h, tap / v->size[1]);
                if (h >= 0 && h < v->plane[0])
                    direct_correlate(job, sum, image, in_channel, out_channel, step_h, h, tap % v->size[1]);
            }
        }
        for (int i = 0; i < DIRECT_POINTS; i++) total += sum[i];
        ht_save1(job->launch->out[0], job->launch->call->out[0]->dtype, tile * v->size[0] * v->size[1] + tap, total);
    }
}

static inline void direct_forward(const ht_launch *launch, const ht_conv *c)
{
    ht_parallel(launch->pool, c->batch * c->groups * c->out_channels, direct_forward_plane, &(direct_job){launch, c});
}

static inline void direct_grad_input(const ht_launch *launch, const ht_conv *c)
{
    ht_parallel(launch->pool, c->batch * c->groups * c->in_channels, direct_grad_input_plane, &(direct_job){launch, c});
}

static inline void direct_grad_weight(const ht_launch *launch, const ht_conv *c)
{
    ht_parallel(launch->pool, c->groups * c->out_channels * c->in_channels, direct_grad_weight_channel,
                &(direct_job){launch, c});
}

#endif
