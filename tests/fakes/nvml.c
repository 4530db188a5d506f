/* A libnvidia-ml.so.1 without a GPU: real exports and struct layouts (nvml.h 13.5), values from a mapped file.
 *
 * DRIVER (a major version, -DDRIVER=535) says which symbols and fields exist. The file named by GPUWATCH_FAKE_NVML is
 * mapped at the first call; tests/fakes/nvml.py writes it, also while the library runs.
 */
#include "nvml_state.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef DRIVER
#define DRIVER 595
#endif
#define EXPORT __attribute__((visibility("default")))
enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, UNKNOWN_VERSION = 25, UNKNOWN = 999 };
enum { AS_UINT = 1, AS_ULONGLONG = 3, AS_SIGNED = 5 };

typedef int nvmlReturn_t;
typedef struct device { int card; } *nvmlDevice_t;
typedef struct { unsigned gpu, memory; } utilization_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2_t;
typedef struct { unsigned version, sensor; int temperature; } temperature_t;
typedef struct { unsigned version; int margin; } margin_t;
typedef struct { unsigned version, fan, speed; } fan_t;
typedef struct { unsigned long long reference, violation; } violation_t;
typedef struct { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; } pci_t;
typedef struct { unsigned pid; unsigned long long memory; } process_v1_t;
typedef struct { unsigned pid; unsigned long long memory; unsigned gi, ci; } process_t;
typedef union { double d; unsigned ui; unsigned long long ull; int si; } value_t;
typedef struct { unsigned id, scope; long long timestamp, latency; int type; nvmlReturn_t code; value_t value; } field_t;
_Static_assert(sizeof(memory_t) == 24 && sizeof(memory_v2_t) == 40 && sizeof(pci_t) == 68 && sizeof(field_t) == 40, "nvml.h");
_Static_assert(sizeof(temperature_t) == 12 && sizeof(margin_t) == 8 && sizeof(fan_t) == 12 && sizeof(process_t) == 24, "nvml.h");

static struct device devices[CARDS];
static struct state *state;
static int64_t started, started_epoch; /* of this process: inits that were not shut down; a new epoch makes them void */

__attribute__((constructor)) static void map(void)
{
    const char *path = getenv("GPUWATCH_FAKE_NVML");
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *found = file < 0 ? MAP_FAILED : mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    state = found == MAP_FAILED ? NULL : found;
    for (int card = 0; card < CARDS; card++)
        devices[card].card = card;
}

static int64_t nanoseconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void rest(int64_t ns)
{
    struct timespec left = {ns / 1000000000, ns % 1000000000};
    while (ns > 0 && nanosleep(&left, &left) != 0)
        continue;
}

struct visit { int64_t wall, cpu; };

static void leave(const struct visit *visit)
{
    if (!state)
        return;
    __atomic_add_fetch(&state->inside_ns, nanoseconds(CLOCK_MONOTONIC) - visit->wall, __ATOMIC_RELAXED);
    __atomic_add_fetch(&state->inside_cpu_ns, nanoseconds(CLOCK_THREAD_CPUTIME_ID) - visit->cpu, __ATOMIC_RELAXED);
}

/* Count the call, then do what the rule and the state of the card say; a code other than 0 is the answer. */
static nvmlReturn_t enter(enum function function, int card)
{
    if (!state)
        return UNKNOWN;
    struct rule *rule = &state->rules[function][card];
    volatile int64_t *hang = &rule->hang, *all_hang = card == SYSTEM ? hang : &state->cards[card].hang;
    __atomic_add_fetch(&rule->calls, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&state->total_calls, 1, __ATOMIC_RELAXED);
    rest(rule->delay_ns >= 0 ? rule->delay_ns : state->delay_ns);
    while (*hang || *all_hang)
        rest(2000000);
    if (rule->crash)
        abort();
    if (__atomic_load_n(&rule->fail_in, __ATOMIC_RELAXED) > 0 && __atomic_sub_fetch(&rule->fail_in, 1, __ATOMIC_RELAXED) == 0) {
        if (rule->fail_more > 0 && rule->fail_more--)
            rule->fail_in = 1;
        return (nvmlReturn_t)rule->fail_code;
    }
    if (rule->code)
        return (nvmlReturn_t)rule->code;
    int needs_init = function != F_nvmlInitWithFlags && function != F_nvmlErrorString;
    return needs_init && (started <= 0 || started_epoch != state->epoch) ? UNINITIALIZED : OK;
}

/* The card behind a handle, -1 for what is none. A handle of a lost card is dead, and using it can be made to kill. */
static int card_of(nvmlDevice_t device, nvmlReturn_t *lost)
{
    if (device < devices || device >= devices + CARDS)
        return -1;
    *lost = OK;
    if (state && state->cards[device->card].lost) {
        int64_t uses = __atomic_add_fetch(&state->cards[device->card].dead_uses, 1, __ATOMIC_RELAXED);
        if (state->dead_uses_allowed >= 0 && uses > state->dead_uses_allowed)
            abort();
        *lost = (nvmlReturn_t)state->cards[device->card].lost;
    }
    return device->card;
}

#define START struct visit visit = {nanoseconds(CLOCK_MONOTONIC), nanoseconds(CLOCK_THREAD_CPUTIME_ID)}; nvmlReturn_t code
#define FINISH leave(&visit); return code
#define SYSTEM_CALL(name, parameters, body) \
    EXPORT nvmlReturn_t name parameters { START = enter(F_##name, SYSTEM); if (code == OK) body; FINISH; }
#define ALIAS(symbol, function, parameters, arguments) \
    EXPORT nvmlReturn_t function parameters; EXPORT nvmlReturn_t symbol parameters { return function arguments; }
#define AS(symbol, function, more, body) /* a call with a handle, counted under the name of `function` */ \
    EXPORT nvmlReturn_t symbol more { \
        START = OK; nvmlReturn_t lost = OK; int card = card_of(device, &lost); \
        if (card < 0) code = INVALID; \
        else if ((code = enter(F_##function, card)) == OK) { \
            code = lost; int64_t *v = state->cards[card].values; (void)v; if (code == OK) body; } \
        FINISH; }
#define CALL(name, more, body) AS(name, name, more, body)
#define WITH(...) (nvmlDevice_t device, __VA_ARGS__)
#define PUT(out, value) (v[V_##value] == NA ? UNSUPPORTED : (*(out) = (__typeof__(*(out)))v[V_##value], OK))
#define NUMBER(name, type, value) CALL(name, WITH(type *out), { code = PUT(out, value); })
#define PICK(out, first, index, count) /* one of several values that follow each other in the list */ \
    ((index) >= (count) ? INVALID : v[V_##first + (index)] == NA ? UNSUPPORTED \
        : (*(out) = (__typeof__(*(out)))v[V_##first + (index)], OK))

static nvmlReturn_t put_text(char *out, unsigned length, const char *text)
{
    if (!*text)
        return UNSUPPORTED;
    if (strlen(text) >= length)
        return SMALL;
    strcpy(out, text);
    return OK;
}
#define WORDS(name, text) \
    CALL(name, WITH(char *out, unsigned length), { code = put_text(out, length, state->cards[card].texts[T_##text]); })

/* --- the library as a whole --- */
EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    START = enter(F_nvmlInitWithFlags, SYSTEM);
    if (code == OK) {
        started = started_epoch == state->epoch ? started + 1 : 1;
        started_epoch = state->epoch;
        state->inits++;
    }
    FINISH;
}
EXPORT nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
EXPORT nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }
SYSTEM_CALL(nvmlShutdown, (void), { started--; state->shutdowns++; state->sets_at_shutdown += state->event_sets; state->samples_at_shutdown += state->gpm_samples; })
EXPORT const char *nvmlErrorString(nvmlReturn_t code)
{
    static __thread char text[40];
    snprintf(text, sizeof text, "fake error %d", code);
    return text;
}
SYSTEM_CALL(nvmlSystemGetDriverVersion, (char *out, unsigned n), { code = put_text(out, n, state->driver_version); })
SYSTEM_CALL(nvmlSystemGetNVMLVersion, (char *out, unsigned n), { code = put_text(out, n, state->nvml_version); })
SYSTEM_CALL(nvmlSystemGetCudaDriverVersion, (int *out), { *out = (int)state->cuda; })
ALIAS(nvmlSystemGetCudaDriverVersion_v2, nvmlSystemGetCudaDriverVersion, (int *out), (out))
SYSTEM_CALL(nvmlSystemGetProcessName, (unsigned pid, char *out, unsigned n), { (void)pid; code = put_text(out, n, "python"); })
SYSTEM_CALL(nvmlDeviceGetCount, (unsigned *out), { *out = state->empty_counts > 0 ? (state->empty_counts--, 0) : (unsigned)state->count; })
ALIAS(nvmlDeviceGetCount_v2, nvmlDeviceGetCount, (unsigned *out), (out))

static nvmlReturn_t give_handle(enum function function, int card, nvmlDevice_t *out)
{
    nvmlReturn_t code = enter(function, card);
    if (code == OK && state->cards[card].lost)
        code = (nvmlReturn_t)state->cards[card].lost;
    if (code == OK) {
        *out = &devices[card];
        __atomic_add_fetch(&state->cards[card].attaches, 1, __ATOMIC_RELAXED);
    }
    return code;
}
EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *out)
{
    START = INVALID;
    if (state && index < (unsigned)state->count)
        code = give_handle(F_nvmlDeviceGetHandleByIndex, (int)state->order[index], out);
    FINISH;
}
ALIAS(nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2, (unsigned i, nvmlDevice_t *out), (i, out))
static nvmlReturn_t search(enum function function, enum text text, const char *wanted, nvmlDevice_t *out)
{
    START = NOT_FOUND;
    for (int i = 0; state && i < state->count; i++)
        if (strcasecmp(state->cards[state->order[i]].texts[text], wanted) == 0)
            code = give_handle(function, (int)state->order[i], out);
    FINISH;
}
EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out)
{
    for (int i = 0; state && i < state->count; i++) /* as the real one: it attaches others while it searches */
        if (state->cards[state->order[i]].lost)
            return 15;
    return search(F_nvmlDeviceGetHandleByUUID, T_uuid, uuid, out);
}
EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *out)
{
    return search(F_nvmlDeviceGetHandleByPciBusId, strlen(bus) > 14 ? T_bus_id : T_bus_id_legacy, bus, out);
}
ALIAS(nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2, (const char *bus, nvmlDevice_t *out), (bus, out))

static void read_link_field(int card, field_t *field);
static void read_memory_field(int card, field_t *field);
#include "nvml_cards.h"
#include "nvml_mig.h"
#include "nvml_events.h"
#include "nvml_load.h"
#include "nvml_processes.h"
