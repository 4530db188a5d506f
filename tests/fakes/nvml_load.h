/* NVLink, fabric, memory errors by place and GPM of the fake; a part of nvml.c, which has the macros. */

/* --- NVLink: fields of one link (scope), or of all (scope ALL_LINKS) --- */
#define ALL_LINKS 0xFFFFFFFFu
#define BLACKWELL 7 /* nvlink_version: NVLink 5.0 (nvml.md 2.9) */
enum { TOTAL = 1, ONE = 2, OLD = 4, NEW = 8, SUMS = 16 }; /* which scopes; before or from NVLink 5 on; only where nvlink_sums */
enum link_member { M_transmit, M_receive, M_replay, M_recovery, M_crc, M_symbol, M_recovery_failed };
static const struct { int id, member, scopes, unit, since; } LINK_FIELDS[] = {
    {138, M_transmit, TOTAL | ONE | OLD, 1024, 450}, {139, M_receive, TOTAL | ONE | OLD, 1024, 450},
    {202, M_transmit, TOTAL | ONE | NEW, 1, 560}, {204, M_receive, TOTAL | ONE | NEW, 1, 560},
    {161, M_replay, SUMS | ONE | OLD, 1, 515}, {162, M_recovery, SUMS | ONE | OLD, 1, 515}, {163, M_crc, SUMS | ONE | OLD, 1, 515},
    {52, M_replay, TOTAL | OLD, 1, 0}, {59, M_recovery, TOTAL | OLD, 1, 0}, {38, M_crc, TOTAL | OLD, 1, 0},
    {221, M_symbol, TOTAL | ONE | NEW, 1, 560}, {214, M_recovery_failed, TOTAL | ONE | NEW, 1, 560},
};

static int64_t link_member(const struct link *link, int member)
{
    const int64_t all[] = {link->transmit, link->receive, link->replay, link->recovery, link->crc, link->symbol, link->recovery_failed};
    return all[member];
}

/* Whether the link is there, and the code that says why not. */
static int has_link(int card, unsigned link)
{
    int64_t links = state->cards[card].values[V_nvlinks];
    return links != NA && link < (unsigned)links;
}

static void put_link(field_t *field, unsigned long long value)
{
    field->code = OK;
    field->type = AS_ULONGLONG;
    field->value.ull = value;
}

static void read_link_field(int card, field_t *field)
{
    const struct card *c = &state->cards[card];
    const int64_t *v = c->values;
    int none = v[V_nvlinks] == NA || v[V_nvlinks] == 0;
    int common = field->id >= 84 && field->id <= 89 ? (int)field->id - 84 : field->id >= 132 && field->id <= 137 ? (int)field->id - 126 : -1;
    if (common >= 0) { /* speed of one of the links 0 to 11, by an id of its own */
        if (!has_link(card, (unsigned)common)) field->code = UNSUPPORTED;
        else put_link(field, c->links[common].state ? 0 : (unsigned long long)v[V_nvlink_speed]);
        return;
    }
    if ((field->id == 164 || field->id == 165) && DRIVER >= 515) {
        const int64_t states[] = {1, 0, 2};
        if (none) field->code = UNSUPPORTED;
        else if (!has_link(card, field->scope)) field->code = INVALID;
        else {
            int64_t present = c->links[field->scope].state;
            put_link(field, (unsigned long long)(field->id == 165 ? states[present] : present == 1 ? 0 : v[V_nvlink_speed]));
        }
        return;
    }
    for (unsigned i = 0; i < sizeof LINK_FIELDS / sizeof *LINK_FIELDS; i++) {
        if (LINK_FIELDS[i].id != (int)field->id || LINK_FIELDS[i].since > DRIVER)
            continue;
        int scopes = LINK_FIELDS[i].scopes, all = field->scope == ALL_LINKS || !(scopes & ONE);
        if (none || (scopes & OLD && v[V_nvlink_version] >= BLACKWELL) || (scopes & NEW && v[V_nvlink_version] < BLACKWELL)) field->code = UNSUPPORTED;
        else if (all && !(scopes & TOTAL) && !(scopes & SUMS && v[V_nvlink_sums] == 1)) field->code = INVALID;
        else if (!all && !has_link(card, field->scope)) field->code = INVALID;
        else {
            int64_t sum = 0;
            for (int link = 0; link < (int)v[V_nvlinks]; link++)
                if (all || link == (int)field->scope) sum += link_member(&c->links[link], LINK_FIELDS[i].member);
            put_link(field, (unsigned long long)sum / (unsigned)LINK_FIELDS[i].unit);
        }
    }
}

CALL(nvmlDeviceGetNvLinkState, WITH(unsigned link, unsigned *out), {
    if (v[V_nvlinks] == NA) code = UNSUPPORTED;
    else if (!has_link(card, link)) code = INVALID;
    else *out = state->cards[card].links[link].state != 1;
})

/* --- fabric --- */
typedef struct { unsigned char cluster[16]; nvmlReturn_t status; unsigned clique; unsigned char state; } fabric_t;
typedef struct { unsigned version; unsigned char cluster[16]; nvmlReturn_t status; unsigned clique; unsigned char state; unsigned mask; } fabric_v2_t;
typedef struct { unsigned version; unsigned char cluster[16]; nvmlReturn_t status; unsigned clique; unsigned char state; unsigned mask; unsigned char summary; } fabric_v3_t;
_Static_assert(sizeof(fabric_t) == 28 && sizeof(fabric_v2_t) == 36 && sizeof(fabric_v3_t) == 40, "nvml.h");
#define FABRIC(out) \
    memset((out)->cluster, 7, 16); (out)->status = (nvmlReturn_t)v[V_fabric_status]; (out)->clique = 2; (out)->state = (unsigned char)v[V_fabric_state]
#if DRIVER >= 525
CALL(nvmlDeviceGetGpuFabricInfo, WITH(fabric_t *out), { if (v[V_fabric_state] == NA) code = UNSUPPORTED; else { FABRIC(out); } })
#endif
#if DRIVER >= 550
CALL(nvmlDeviceGetGpuFabricInfoV, WITH(fabric_v3_t *out), {
    if (out->version != 0x02000024 && !(DRIVER >= 570 && out->version == 0x03000028)) code = UNKNOWN_VERSION;
    else if (v[V_fabric_state] == NA) code = UNSUPPORTED;
    else {
        FABRIC(out);
        out->mask = (unsigned)v[V_fabric_mask];
        if (out->version == 0x03000028) out->summary = (unsigned char)v[V_fabric_summary];
    }
})
#endif

/* --- memory errors by place --- */
typedef struct { unsigned version; unsigned long long unc_parity, unc_secded, cor, vol_parity, vol_secded, vol_cor, l2, sm, pcie, mcu, other; unsigned exceeded; } sram_t;
typedef struct { unsigned max, high, partial, low, none; } banks_t;
typedef struct { unsigned version, unrepairable; } unrepairable_t;
_Static_assert(sizeof(sram_t) == 104 && sizeof(banks_t) == 20 && sizeof(unrepairable_t) == 8, "nvml.h");
#define PLACE(type, counter, location) state->cards[card].memory_errors[((type) * 2 + (counter)) * PLACES + (location)]
CALL(nvmlDeviceGetMemoryErrorCounter, WITH(unsigned type, unsigned counter, unsigned location, unsigned long long *out), {
    if (type > 1 || counter > 1 || location >= PLACES) code = INVALID;
    else if (PLACE(type, counter, location) == NA) code = UNSUPPORTED;
    else *out = (unsigned long long)PLACE(type, counter, location);
})
static void read_memory_field(int card, field_t *field)
{
    static const int places[] = {0, 1, 2, 3, 4}; /* L1, L2, DRAM, registers, texture; CBU has only double-bit ones */
    int type, counter, location;
    if (field->id >= 7 && field->id <= 16) counter = 0, type = (field->id - 7) % 2, location = places[(field->id - 7) / 2];
    else if (field->id >= 18 && field->id <= 27) counter = 1, type = (field->id - 18) % 2, location = places[(field->id - 18) / 2];
    else if (field->id == 17 || field->id == 28) counter = field->id == 28, type = 1, location = 6;
    else return;
    int64_t value = PLACE(type, counter, location);
    if (value == NA) field->code = UNSUPPORTED;
    else put_link(field, (unsigned long long)value);
}
#if DRIVER >= 550 /* 535.161 */
CALL(nvmlDeviceGetSramEccErrorStatus, WITH(sram_t *out), {
    if (out->version != 0x01000068) code = UNKNOWN_VERSION;
    else if (v[V_sram_threshold] == NA) code = UNSUPPORTED;
    else {
        out->l2 = (unsigned long long)v[V_sram_l2]; out->sm = (unsigned long long)v[V_sram_sm]; out->pcie = (unsigned long long)v[V_sram_pcie];
        out->mcu = (unsigned long long)v[V_sram_microcontroller]; out->other = (unsigned long long)v[V_sram_other];
        out->exceeded = (unsigned)v[V_sram_threshold];
    }
})
#endif
CALL(nvmlDeviceGetRowRemapperHistogram, WITH(banks_t *out), {
    if ((code = PUT(&out->max, banks_max)) == OK && (code = PUT(&out->high, banks_high)) == OK && (code = PUT(&out->partial, banks_partial)) == OK
        && (code = PUT(&out->low, banks_low)) == OK) code = PUT(&out->none, banks_none);
})
#if DRIVER >= 590
CALL(nvmlDeviceGetUnrepairableMemoryFlag_v1, WITH(unrepairable_t *out), { code = PUT(&out->unrepairable, unrepairable); })
#endif

/* --- GPM: a sample holds what was counted so far, in hundredths; a metric is the difference of two --- */
#if DRIVER >= 525
#define SAMPLES 1024
typedef struct gpm_sample { int64_t live, epoch, card, part, at, counts[GPM]; } *gpmSample_t;
typedef struct { unsigned id; nvmlReturn_t code; double value; const char *words[3]; } gpm_metric_t;
typedef struct { unsigned version, count; gpmSample_t older, newer; gpm_metric_t metrics[]; } gpm_get_t;
typedef struct { unsigned version, supported; } gpm_support_t;
_Static_assert(sizeof(gpm_metric_t) == 40 && sizeof(gpm_get_t) == 24, "nvml.h");
static struct gpm_sample samples[SAMPLES];

static int is_sample(gpmSample_t sample)
{
    if (sample >= samples && sample < samples + SAMPLES && sample->live && sample->epoch == state->epoch)
        return 1;
    __atomic_add_fetch(&state->dead_samples, 1, __ATOMIC_RELAXED);
    return 0;
}

SYSTEM_CALL(nvmlGpmSampleAlloc, (gpmSample_t *out), {
    code = 20;
    for (int i = 0; i < SAMPLES && code != OK; i++) {
        int64_t none = 0;
        if (!__atomic_compare_exchange_n(&samples[i].live, &none, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) continue;
        samples[i].epoch = state->epoch; samples[i].at = 0;
        __atomic_add_fetch(&state->gpm_samples, 1, __ATOMIC_RELAXED);
        *out = &samples[i]; code = OK;
    }
})
SYSTEM_CALL(nvmlGpmSampleFree, (gpmSample_t sample), {
    if (!is_sample(sample)) code = INVALID;
    else { sample->live = 0; __atomic_sub_fetch(&state->gpm_samples, 1, __ATOMIC_RELAXED); }
})
CALL(nvmlGpmQueryDeviceSupport, WITH(gpm_support_t *out), {
    code = out->version != 1 ? UNKNOWN_VERSION : PUT(&out->supported, gpm);
})

static nvmlReturn_t take_sample(int card, int64_t part, const int64_t *counts, gpmSample_t sample)
{
    if (!is_sample(sample))
        return INVALID;
    if (state->cards[card].values[V_gpm] != 1)
        return UNSUPPORTED;
    sample->card = card; sample->part = part; sample->at = nanoseconds(CLOCK_MONOTONIC);
    memcpy(sample->counts, counts, sizeof sample->counts);
    return OK;
}
CALL(nvmlGpmSampleGet, WITH(gpmSample_t sample), { code = take_sample(card, -1, state->cards[card].gpm, sample); })
CALL(nvmlGpmMigSampleGet, WITH(unsigned instance, gpmSample_t sample), {
    code = INVALID;
    for (int i = 0; i < MIG_DEVICES && code == INVALID; i++)
        if (state->cards[card].mig[i].present && state->cards[card].mig[i].gpu_instance == instance)
            code = take_sample(card, instance, state->cards[card].mig[i].gpm, sample);
})
EXPORT nvmlReturn_t nvmlGpmMetricsGet(gpm_get_t *get)
{
    gpmSample_t older = get->older, newer = get->newer;
    int good = state && is_sample(older) && is_sample(newer) && older->at && newer->at && older->card == newer->card && older->part == newer->part;
    int card = good ? (int)newer->card : SYSTEM;
    START = enter(F_nvmlGpmMetricsGet, card);
    if (code == OK && get->version != 1) code = UNKNOWN_VERSION;
    else if (code == OK && (!good || newer->at - older->at < 100000000)) code = INVALID;
    for (unsigned i = 0; code == OK && i < get->count; i++) {
        gpm_metric_t *metric = &get->metrics[i];
        metric->code = metric->id >= GPM ? INVALID : (nvmlReturn_t)state->cards[card].gpm_codes[metric->id];
        if (metric->code == OK) metric->value = (double)(newer->counts[metric->id] - older->counts[metric->id]) / 100;
    }
    FINISH;
}
#endif
