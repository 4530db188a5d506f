/* Event sets in the fake; a part of nvml.c. Who writes an event (tests/fakes/nvml_parts.py) wakes those who wait. */

#include <linux/futex.h>
#include <sys/syscall.h>

#define SETS 64
#define STEP 250000000LL /* ns after which a wait looks around: a lost card does not wake it */

struct event_set { int live; int64_t epoch, seen, served, mask[CARDS], from[CARDS]; };
typedef struct event_set *nvmlEventSet_t;
typedef struct { nvmlDevice_t device; unsigned long long type, data; unsigned gi, ci; } event_data_t;
_Static_assert(sizeof(event_data_t) == 32, "nvml.h");

static struct event_set sets[SETS];

static int is_live(nvmlEventSet_t set)
{
    if (set >= sets && set < sets + SETS && set->live && set->epoch == state->epoch)
        return 1;
    __atomic_add_fetch(&state->freed_uses, 1, __ATOMIC_RELAXED);
    return 0;
}

SYSTEM_CALL(nvmlEventSetCreate, (nvmlEventSet_t *out), {
    code = 20;
    for (int i = 0; i < SETS && code != OK; i++) {
        int none = 0;
        if (!__atomic_compare_exchange_n(&sets[i].live, &none, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) continue;
        sets[i].epoch = state->epoch; sets[i].seen = state->event_head; sets[i].served = 0;
        memset(sets[i].mask, 0, sizeof sets[i].mask);
        __atomic_add_fetch(&state->event_sets, 1, __ATOMIC_RELAXED);
        *out = &sets[i]; code = OK;
    }
})
SYSTEM_CALL(nvmlEventSetFree, (nvmlEventSet_t set), {
    if (!is_live(set)) code = INVALID;
    else { set->live = 0; __atomic_sub_fetch(&state->event_sets, 1, __ATOMIC_RELAXED); }
})

/* Which bits this driver knows; from which version the later ones are is not documented. */
#define KNOWN (DRIVER >= 575 ? 0xFF9F : DRIVER >= 560 ? 0x3F9F : DRIVER >= 450 ? 0x19F : 0x9F)
CALL(nvmlDeviceGetSupportedEventTypes, WITH(unsigned long long *out), {
    if ((code = PUT(out, event_types)) == OK) *out &= KNOWN;
})
CALL(nvmlDeviceRegisterEvents, WITH(unsigned long long types, nvmlEventSet_t set), {
    if (!is_live(set)) code = INVALID;
    else if (v[V_event_types] == NA || types & ~(unsigned long long)(v[V_event_types] & KNOWN)) code = UNSUPPORTED; /* and nothing is registered */
    else { set->mask[card] |= (int64_t)types; set->from[card] = state->event_head; }
})

#if DRIVER >= 450 /* pynvml knows no other wait than the second */
static int next_event(nvmlEventSet_t set, event_data_t *out)
{
    int64_t head = __atomic_load_n(&state->event_head, __ATOMIC_ACQUIRE);
    if (head - set->seen > EVENTS)
        set->seen = head - EVENTS;
    for (; set->seen < head; set->seen++, set->served = 0) {
        const struct event *event = &state->events[set->seen % EVENTS];
        if (event->card >= CARDS || !(set->mask[event->card] & event->type) || set->seen < set->from[event->card] || set->served >= event->times)
            continue;
        set->served++;
        *out = (event_data_t){&devices[event->card], (unsigned long long)event->type, (unsigned long long)event->data,
                              (unsigned)event->gpu_instance, (unsigned)event->compute_instance};
        return 1;
    }
    return 0;
}

EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, event_data_t *out, unsigned milliseconds)
{
    int first = SYSTEM;
    for (int card = CARDS - 1; card >= 0; card--)
        if (state && set->mask[card])
            first = card;
    START = enter(F_nvmlEventSetWait, first);
    int64_t end = nanoseconds(CLOCK_MONOTONIC) + milliseconds * 1000000LL;
    while (code == OK) {
        int64_t left = end - nanoseconds(CLOCK_MONOTONIC);
        int head = (int)__atomic_load_n(&state->event_head, __ATOMIC_ACQUIRE);
        volatile int64_t *hang = &state->rules[F_nvmlEventSetWait][first].hang;
        while (*hang)
            rest(2000000);
        if (started <= 0 || started_epoch != state->epoch) code = UNINITIALIZED;
        else if (!is_live(set)) code = INVALID;
        else if (next_event(set, out)) break;
        for (int card = 0; code == OK && card < CARDS; card++)
            if (set->mask[card] && state->cards[card].lost)
                code = (nvmlReturn_t)state->cards[card].lost;
        if (code == OK && left <= 0) code = 10;
        if (code == OK) {
            struct timespec step = {0, left < STEP ? left : STEP - 1};
            syscall(SYS_futex, (int *)&state->event_head, FUTEX_WAIT, head, &step, NULL, 0);
        }
    }
    FINISH;
}
#endif
