/* MIG in the fake: modes, the handles of MIG devices, and the calls that take one; a part of nvml.c. */

#if DRIVER >= 450
static struct device parts[CARDS][MIG_DEVICES];

/* The MIG device behind a handle, and its card; NULL for the handle of a whole card. */
static struct mig *part_of(nvmlDevice_t device, int *card)
{
    struct device *first = &parts[0][0];
    if (!state || device < first || device >= first + CARDS * MIG_DEVICES)
        return NULL;
    int place = (int)(device - first);
    *card = place / MIG_DEVICES;
    return &state->cards[*card].mig[place % MIG_DEVICES];
}

#define PART(function, pseudo, more, arguments, body) /* the call of a whole card, or that of a MIG device */ \
    EXPORT nvmlReturn_t function more { \
        int card = 0; struct mig *part = part_of(device, &card); \
        if (!part) return whole_##function arguments; \
        START = enter(F_##pseudo, card); \
        if (code == OK && state->cards[card].lost) code = (nvmlReturn_t)state->cards[card].lost; \
        if (code == OK && !part->present) code = INVALID; /* a handle whose device was destroyed */ \
        if (code == OK) body; \
        FINISH; }

PART(nvmlDeviceGetUUID, mig_uuid, WITH(char *out, unsigned length), (device, out, length), { code = put_text(out, length, part->uuid); })
PART(nvmlDeviceGetName, mig_name, WITH(char *out, unsigned length), (device, out, length), { code = put_text(out, length, part->name); })
PART(nvmlDeviceGetMemoryInfo, mig_memory, WITH(memory_t *out), (device, out), {
    out->total = (unsigned long long)part->total; out->used = (unsigned long long)part->used; out->free = out->total - out->used;
})
#if DRIVER >= 510
PART(nvmlDeviceGetMemoryInfo_v2, mig_memory, WITH(memory_v2_t *out), (device, out), {
    if (out->version != 0x02000028) code = INVALID;
    out->total = (unsigned long long)part->total; out->used = (unsigned long long)part->used;
    out->reserved = 0; out->free = out->total - out->used;
})
#endif
#define NOT_WHOLE(function) \
    AS(whole_##function, function, WITH(unsigned *out), { (void)out; code = INVALID; })
NOT_WHOLE(nvmlDeviceGetGpuInstanceId)
NOT_WHOLE(nvmlDeviceGetComputeInstanceId)
PART(nvmlDeviceGetGpuInstanceId, mig_gpu_instance, WITH(unsigned *out), (device, out), { *out = (unsigned)part->gpu_instance; })
PART(nvmlDeviceGetComputeInstanceId, mig_compute_instance, WITH(unsigned *out), (device, out), { *out = (unsigned)part->compute_instance; })

CALL(nvmlDeviceGetMigMode, WITH(unsigned *current, unsigned *pending), {
    if ((code = PUT(current, mig_mode)) == OK) code = PUT(pending, mig_pending);
})
CALL(nvmlDeviceGetMaxMigDeviceCount, WITH(unsigned *out), { *out = v[V_mig_mode] == 1 ? (unsigned)v[V_mig_max] : 0; })
CALL(nvmlDeviceGetMigDeviceHandleByIndex, WITH(unsigned index, nvmlDevice_t *out), {
    if (v[V_mig_mode] == NA) code = UNSUPPORTED;
    else if (v[V_mig_mode] != 1 || index >= MIG_DEVICES || index >= (unsigned)v[V_mig_max]) code = INVALID;
    else if (!state->cards[card].mig[index].present) code = NOT_FOUND;
    else *out = &parts[card][index];
})
EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *out)
{
    int card;
    *out = part_of(device, &card) != NULL;
    return OK;
}
EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *out)
{
    int card;
    if (!part_of(device, &card))
        return INVALID;
    *out = &devices[card];
    return OK;
}
#else
ALIAS(nvmlDeviceGetUUID, whole_nvmlDeviceGetUUID, (nvmlDevice_t d, char *out, unsigned n), (d, out, n))
ALIAS(nvmlDeviceGetName, whole_nvmlDeviceGetName, (nvmlDevice_t d, char *out, unsigned n), (d, out, n))
ALIAS(nvmlDeviceGetMemoryInfo, whole_nvmlDeviceGetMemoryInfo, (nvmlDevice_t d, memory_t *out), (d, out))
#endif
