/* Energy of a GPU by NVML: joules of its board while it multiplies, and while it streams through its memory. Idle power is
 * part of both. */
#include <stdio.h>

#include "probe/gpu_own.h"

typedef struct nvml {
#define HT_NVML(name, parameters) int(*name) parameters;
#include "probe/nvml.def"
#undef HT_NVML
} nvml;

static union {
    nvml library;
    void (*functions[sizeof(nvml) / sizeof(void (*)(void))])(void);
} table;
static const char *const files[] = {"libnvidia-ml.so.1", "libnvidia-ml.so", NULL};
static const char *const names[] = {
#define HT_NVML(name, parameters) #name,
#include "probe/nvml.def"
#undef HT_NVML
};
static ht_cuda_library nvml_library = {files, names, sizeof names / sizeof names[0], table.functions, "", false};

typedef struct meter {
    void *device;
    char *note;
    size_t note_size;
} meter;

/* Where there is no such counter, the note says so. */
static double read_joules(void *arg)
{
    const meter *m = arg;
    unsigned long long millijoules = 0;
    int result = table.library.nvmlDeviceGetTotalEnergyConsumption(m->device, &millijoules);
    if (result == 0) return 1e-3 * (double)millijoules;
    snprintf(m->note, m->note_size, "NVML has no counter of this GPU's energy (error %d)", result);
    return 0;
}

/* The counter moves in steps of some tens of milliseconds. */
static const double long_seconds = 0.4;

typedef struct energy_row {
    const char *name, *op, *sample; /* op NULL: a loop over memory */
    unsigned liberties;
    double *to;
} energy_row;

/* Only what is timed counts: planning and filling operands take their time, and their joules. */
static ht_status run_for(const gpu_prober *g, const energy_row *row, gpu_meter *joules, double *operations)
{
    gpu_prober longer = *g;
    longer.meter = joules;
    longer.slice = g->small ? g->slice : long_seconds;
    if (!row->op) {
        enum { THREE = 3 * 256 };
        size_t bytes = g->memory_bytes / THREE * THREE;
        double rounds;
        HT_TRY(ht_gpu_loop(&longer, "triad", bytes, false, &rounds));
        *operations = joules->runs * (double)bytes;
        return HT_OK;
    }
    ht_gpu_measured m;
    HT_TRY(ht_gpu_op(&longer, row->op, row->sample, row->liberties, &m));
    *operations = joules->runs * m.cost.dot_flops;
    return HT_OK;
}

static ht_status measure(const gpu_prober *g, meter *m, const energy_row *row)
{
    double operations;
    gpu_meter joules = {.read = read_joules, .arg = m};
    if (row->liberties && !ht_target_has_library(g->target, HT_LIBRARY_CUBLASLT)) return HT_OK;
    HT_TRY(run_for(g, row, &joules, &operations));
    if (m->note[0]) return HT_OK;
    if (!(joules.counted > 0) || !(operations > 0)) {
        snprintf(m->note, m->note_size, "NVML's counter of energy did not move");
        return HT_OK;
    }
    *row->to = joules.counted / operations;
    return ht_gpu_add(g, "energy", row->name, "of the board, idle power included", "J", *row->to, 0) ? HT_OK
                                                                                                     : HT_ENOMEM;
}

#define PRODUCT(type) (g->small ? "(" type "[64,64], " type "[64,64])" : "(" type "[8192,8192], " type "[8192,8192])")

ht_status ht_gpu_energy(gpu_prober *g)
{
    ht_probe *out = g->p->out;
    ht_target *t = g->target;
    meter m = {.note = out->gpu_energy_note, .note_size = sizeof out->gpu_energy_note};
    const char *reason = ht_cuda_library_open(&nvml_library);
    char bus[32];
    unsigned milliwatts = 0;
    ht_probe_tell(g->p, "energy of the GPU");
    HT_TRY(ht_cuda_device_bus(g->device, bus, sizeof bus));
    int result = reason ? 0 : table.library.nvmlInit_v2();
    if (reason || result != 0) {
        if (reason)
            snprintf(m.note, m.note_size, "%.200s", reason);
        else
            snprintf(m.note, m.note_size, "NVML does not start (error %d)", result);
        return HT_OK;
    }
    const energy_row rows[] = {
        {"flop f32", "matmul", PRODUCT("f32"), 0, &t->flop_energy[HT_F32]},
        {"flop tf32", "matmul", PRODUCT("f32"), 1u << HT_LIBERTY_TF32, &t->flop_energy[HT_FORMAT_TF32]},
        {"flop f16", "matmul", PRODUCT("f16"), 0, &t->flop_energy[HT_F16]},
        {"flop bf16", "matmul", PRODUCT("bf16"), 0, &t->flop_energy[HT_BF16]},
        {"byte", NULL, NULL, 0, &t->byte_energy[HT_SPACE_MAIN]},
    };
    ht_status status = HT_OK;
    result = table.library.nvmlDeviceGetHandleByPciBusId_v2(bus, &m.device);
    if (result != 0) snprintf(m.note, m.note_size, "NVML does not know the GPU %s (error %d)", bus, result);
    if (result == 0 && table.library.nvmlDeviceGetEnforcedPowerLimit(m.device, &milliwatts) == 0)
        t->power[HT_POWER_BOARD] = 1e-3 * milliwatts;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0] && result == 0 && status == HT_OK && !m.note[0]; i++)
        status = measure(g, &m, &rows[i]);
    table.library.nvmlShutdown();
    return status;
}
