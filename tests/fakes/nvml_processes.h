/* Process lists and utilisation samples of the fake; a part of nvml.c, which has the macros.
 *
 * A card's `process_stride` other than 0 is the size of the rows that every list function writes, whatever it promises: 16, 24
 * or 32 bytes have been seen (nvml.md 2.11).
 */
enum { COMPUTE = 1, GRAPHICS = 2, MPS = 4 };
typedef struct { unsigned pid; unsigned long long memory; unsigned gi, ci; unsigned long long protected_memory; } process_wide_t;
typedef struct { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; } sample_t;
typedef struct { unsigned long long at; unsigned pid, sm, memory, encoder, decoder, jpeg, ofa; } info_t;
typedef struct { unsigned version, count; unsigned long long since; info_t *rows; } infos_t;
_Static_assert(sizeof(process_v1_t) == 16 && sizeof(process_wide_t) == 32 && sizeof(sample_t) == 32, "nvml.h");
_Static_assert(sizeof(info_t) == 40 && sizeof(infos_t) == 24, "nvml.h");

static nvmlReturn_t list_processes(int card, int kind, unsigned size, unsigned *count, void *out)
{
    const struct card *c = &state->cards[card];
    if (c->values[V_processes] == NA && (kind == MPS || c->values[V_domain] == NA))
        return UNSUPPORTED; /* a card that is not on the PCI bus (Orin) lists none of a kind */
    int64_t all = c->values[V_processes] == NA ? 0 : c->values[V_processes];
    unsigned have = 0, room = *count;
    for (int64_t i = 0; i < all; i++)
        have += (c->process_kinds[i] & kind) != 0;
    *count = have;
    if (have > room)
        return SMALL;
    unsigned char *row = out;
    size = c->process_stride ? (unsigned)c->process_stride : size;
    for (int64_t i = 0; i < all; i++) {
        if (!(c->process_kinds[i] & kind))
            continue;
        process_wide_t process;
        memset(&process, 0, sizeof process);
        process.pid = (unsigned)c->pids[i];
        process.memory = (unsigned long long)c->process_memory[i];
        process.gi = (unsigned)c->process_gi[i];
        process.ci = (unsigned)c->process_ci[i];
        memcpy(row, &process, size);
        row += size;
    }
    return OK;
}

#define PROCESS_LIST(symbol, function, kind, type) \
    AS(symbol, function, WITH(unsigned *count, type *out), { code = list_processes(card, kind, sizeof *out, count, out); })
#if DRIVER >= 510
#define PROCESS_LIST_V3(name, kind) PROCESS_LIST(name##_v3, name, kind, process_t)
#else
#define PROCESS_LIST_V3(name, kind)
#endif
#define PROCESS_LISTS(name, kind) \
    PROCESS_LIST(name, name, kind, process_v1_t) \
    PROCESS_LIST(name##_v2, name, kind, process_t) \
    PROCESS_LIST_V3(name, kind)
PROCESS_LISTS(nvmlDeviceGetComputeRunningProcesses, COMPUTE)
PROCESS_LISTS(nvmlDeviceGetGraphicsRunningProcesses, GRAPHICS)
PROCESS_LISTS(nvmlDeviceGetMPSComputeRunningProcesses, MPS)

/* The samples of a card that are newer than `since`; one with a time of its own is given whenever it is asked for. */
static unsigned sample_processes(int card, unsigned long long since, unsigned room, sample_t *out)
{
    const struct card *c = &state->cards[card];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned long long stamp = now.tv_sec * 1000000ULL + now.tv_nsec / 1000;
    unsigned have = 0;
    for (int64_t i = 0; c->values[V_processes] != NA && i < c->values[V_processes]; i++) {
        if (c->process_share[i] == 0 || (!c->process_sampled[i] && stamp <= since))
            continue;
        if (have < room)
            out[have] = (sample_t){.pid = (unsigned)c->pids[i], .sm = (unsigned)c->process_share[i],
                                   .at = c->process_sampled[i] ? (unsigned long long)c->process_sampled[i] : stamp};
        have++;
    }
    return have;
}

CALL(nvmlDeviceGetProcessUtilization, WITH(sample_t *out, unsigned *count, unsigned long long since), {
    unsigned room = *count;
    *count = sample_processes(card, since, room, out);
    code = v[V_process_samples] == NA ? UNSUPPORTED : *count == 0 ? NOT_FOUND : *count > room ? SMALL : OK;
})
#if DRIVER >= 550
CALL(nvmlDeviceGetProcessesUtilizationInfo, WITH(infos_t *out), {
    sample_t found[PROCESSES];
    unsigned room;
    room = out->count;
    if (out->version != 0x01000018) code = UNKNOWN_VERSION;
    else {
        out->count = sample_processes(card, out->since, PROCESSES, found);
        code = out->count == 0 ? NOT_FOUND : out->count > room ? SMALL : OK;
        for (unsigned i = 0; code == OK && i < out->count; i++) {
            memset(&out->rows[i], 0, sizeof out->rows[i]);
            out->rows[i].at = found[i].at;
            out->rows[i].pid = found[i].pid;
            out->rows[i].sm = found[i].sm;
        }
    }
})
#endif
