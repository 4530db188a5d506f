/* The calls of the fake that take a handle; a part of nvml.c, which has the macros. */

/* --- who it is --- */
CALL(nvmlDeviceGetIndex, WITH(unsigned *out), {
    code = NOT_FOUND;
    for (unsigned i = 0; i < (unsigned)state->count; i++)
        if (state->order[i] == card) { *out = i; code = OK; }
})
AS(whole_nvmlDeviceGetName, nvmlDeviceGetName, WITH(char *out, unsigned length), { /* those of MIG devices: nvml_mig.h */
    code = put_text(out, length, state->cards[card].texts[T_name]);
})
AS(whole_nvmlDeviceGetUUID, nvmlDeviceGetUUID, WITH(char *out, unsigned length), {
    code = put_text(out, length, state->cards[card].texts[T_uuid]);
})
WORDS(nvmlDeviceGetSerial, serial)
WORDS(nvmlDeviceGetBoardPartNumber, part_number)
WORDS(nvmlDeviceGetVbiosVersion, vbios)
WORDS(nvmlDeviceGetInforomImageVersion, inforom)
CALL(nvmlDeviceGetPciInfo, WITH(pci_t *out), {
    memset(out, 0, sizeof *out);
    if (v[V_domain] == NA) code = UNSUPPORTED;
    else {
        out->domain = (unsigned)v[V_domain]; out->bus = (unsigned)v[V_bus]; out->device = (unsigned)v[V_device];
        out->id = 0x223510de;
        strncpy(out->bus_id, state->cards[card].texts[T_bus_id], sizeof out->bus_id - 1);
        strncpy(out->legacy, state->cards[card].texts[T_bus_id_legacy], sizeof out->legacy - 1);
    }
})
ALIAS(nvmlDeviceGetPciInfo_v2, nvmlDeviceGetPciInfo, (nvmlDevice_t d, pci_t *out), (d, out))
ALIAS(nvmlDeviceGetPciInfo_v3, nvmlDeviceGetPciInfo, (nvmlDevice_t d, pci_t *out), (d, out))
NUMBER(nvmlDeviceGetMinorNumber, unsigned, minor)
NUMBER(nvmlDeviceGetArchitecture, unsigned, architecture)
NUMBER(nvmlDeviceGetBrand, unsigned, brand)
CALL(nvmlDeviceGetCudaComputeCapability, WITH(int *major, int *minor), {
    if ((code = PUT(major, capability_major)) == OK) code = PUT(minor, capability_minor);
})
#if DRIVER >= 550
NUMBER(nvmlDeviceGetNumaNodeId, unsigned, numa_node)
#endif

/* --- what changes all the time --- */
CALL(nvmlDeviceGetUtilizationRates, WITH(utilization_t *out), {
    if ((code = PUT(&out->gpu, utilization)) == OK) code = PUT(&out->memory, memory_activity);
})
AS(whole_nvmlDeviceGetMemoryInfo, nvmlDeviceGetMemoryInfo, WITH(memory_t *out), { /* version 1 counts the reserved part as used */
    if ((code = PUT(&out->total, memory_total)) == OK) {
        int64_t reserved = v[V_memory_reserved] == NA ? 0 : v[V_memory_reserved];
        out->free = (unsigned long long)v[V_memory_free];
        out->used = (unsigned long long)(v[V_memory_used] == -1 ? -1 : v[V_memory_used] + reserved);
    }
})
#if DRIVER >= 510
AS(whole_nvmlDeviceGetMemoryInfo_v2, nvmlDeviceGetMemoryInfo_v2, WITH(memory_v2_t *out), {
    if (out->version != 0x02000028) code = INVALID;
    else if ((code = PUT(&out->total, memory_total)) == OK) {
        out->reserved = (unsigned long long)(v[V_memory_reserved] == NA ? 0 : v[V_memory_reserved]);
        out->free = (unsigned long long)v[V_memory_free];
        out->used = (unsigned long long)v[V_memory_used];
    }
})
#endif
CALL(nvmlDeviceGetBAR1MemoryInfo, WITH(memory_t *out), {
    if ((code = PUT(&out->total, bar1_total)) == OK && (code = PUT(&out->used, bar1_used)) == OK)
        out->free = out->total - out->used;
})
CALL(nvmlDeviceGetTemperature, WITH(unsigned sensor, unsigned *out), { code = sensor ? INVALID : PUT(out, temperature); })
#if DRIVER >= 570
CALL(nvmlDeviceGetTemperatureV, WITH(temperature_t *out), {
    code = out->version != 0x0100000C ? UNKNOWN_VERSION : out->sensor ? INVALID : PUT(&out->temperature, temperature);
})
CALL(nvmlDeviceGetMarginTemperature, WITH(margin_t *out), {
    code = out->version != 0x01000008 ? UNKNOWN_VERSION : PUT(&out->margin, margin);
})
CALL(nvmlDeviceGetFanSpeedRPM, WITH(fan_t *out), {
    code = out->version != 0x0100000C ? UNKNOWN_VERSION
        : v[V_fans] == NA || out->fan >= (unsigned)v[V_fans] ? INVALID : PUT(&out->speed, fan_rpm);
})
#endif
CALL(nvmlDeviceGetTemperatureThreshold, WITH(unsigned kind, unsigned *out), {
    code = kind == 5 ? PUT(out, limit_acoustic) : kind > 7 ? INVALID : kind > 3 ? UNSUPPORTED : PICK(out, limit_shutdown, kind, 4);
})
CALL(nvmlDeviceGetClockInfo, WITH(unsigned kind, unsigned *out), { code = PICK(out, clock_graphics, kind, 4); })
CALL(nvmlDeviceGetMaxClockInfo, WITH(unsigned kind, unsigned *out), { code = PICK(out, clock_max_graphics, kind, 4); })
#if DRIVER >= 535
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, reasons)
NUMBER(nvmlDeviceGetSupportedClocksEventReasons, unsigned long long, reasons_supported)
#endif
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, reasons)
NUMBER(nvmlDeviceGetSupportedClocksThrottleReasons, unsigned long long, reasons_supported)
CALL(nvmlDeviceGetViolationStatus, WITH(unsigned policy, violation_t *out), {
    out->reference = 0;
    code = PICK(&out->violation, event_power, policy, 6);
})
NUMBER(nvmlDeviceGetPowerUsage, unsigned, power)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, power_enforced)
NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned, power_requested)
NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, power_default)
CALL(nvmlDeviceGetPowerManagementLimitConstraints, WITH(unsigned *least, unsigned *most), {
    if ((code = PUT(least, power_min)) == OK) code = PUT(most, power_max);
})
NUMBER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, energy)
NUMBER(nvmlDeviceGetPerformanceState, unsigned, performance_state)
#define ENGINE(name, value) CALL(name, WITH(unsigned *out, unsigned *period), { *period = 167000; code = PUT(out, value); })
ENGINE(nvmlDeviceGetEncoderUtilization, encoder)
ENGINE(nvmlDeviceGetDecoderUtilization, decoder)
#if DRIVER >= 535
ENGINE(nvmlDeviceGetJpgUtilization, jpeg)
ENGINE(nvmlDeviceGetOfaUtilization, ofa)
#endif
#if DRIVER >= 515
NUMBER(nvmlDeviceGetNumFans, unsigned, fans)
#endif
NUMBER(nvmlDeviceGetFanSpeed, unsigned, fan_speed)
CALL(nvmlDeviceGetFanSpeed_v2, WITH(unsigned fan, unsigned *out), {
    code = v[V_fans] == NA ? UNSUPPORTED : fan >= (unsigned)v[V_fans] ? INVALID : PUT(out, fan_speed);
})

/* --- PCIe --- */
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, pcie_generation)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, pcie_width)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, pcie_generation_max)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, pcie_width_max)
#if DRIVER >= 525
NUMBER(nvmlDeviceGetGpuMaxPcieLinkGeneration, unsigned, pcie_generation_card)
#endif
NUMBER(nvmlDeviceGetPcieReplayCounter, unsigned, pcie_replays)
CALL(nvmlDeviceGetPcieThroughput, WITH(unsigned direction, unsigned *out), {
    rest(20000000); /* as documented: a window of 20 ms */
    code = PICK(out, pcie_transmit_rate, direction, 2);
})

/* --- fields: id, value, type, first driver (by the header that has it) --- */
static const struct { int id, value, type, since; } FIELD_LIST[] = {
    {3, V_ecc_corrected_volatile, AS_ULONGLONG, 0}, {4, V_ecc_uncorrected_volatile, AS_ULONGLONG, 0},
    {5, V_ecc_corrected_aggregate, AS_ULONGLONG, 0}, {6, V_ecc_uncorrected_aggregate, AS_ULONGLONG, 0},
    {29, V_retired_single, AS_UINT, 0}, {30, V_retired_double, AS_UINT, 0}, {31, V_retired_pending, AS_UINT, 0},
    {74, V_event_power, AS_ULONGLONG, 0}, {75, V_event_thermal, AS_ULONGLONG, 0}, {76, V_event_sync, AS_ULONGLONG, 0},
    {77, V_event_board, AS_ULONGLONG, 0}, {78, V_event_low, AS_ULONGLONG, 0}, {79, V_event_reliability, AS_ULONGLONG, 0},
    {82, V_temperature_memory, AS_UINT, 0}, {83, V_energy, AS_ULONGLONG, 0}, {94, V_pcie_replays, AS_UINT, 0},
    {95, V_pcie_rollovers, AS_UINT, 0}, {142, V_remapped_correctable, AS_UINT, 450}, {143, V_remapped_uncorrectable, AS_UINT, 450},
    {144, V_remap_pending, AS_UINT, 450}, {145, V_remap_failure, AS_UINT, 450}, {169, V_pcie_recovery, AS_UINT, 525},
    {173, V_pcie_correctable, AS_UINT, 535}, {174, V_pcie_nak_received, AS_UINT, 535}, {175, V_pcie_receiver, AS_UINT, 535},
    {176, V_pcie_bad_tlp, AS_UINT, 535}, {177, V_pcie_nak_sent, AS_UINT, 535}, {178, V_pcie_bad_dllp, AS_UINT, 535},
    {179, V_pcie_non_fatal, AS_UINT, 535}, {180, V_pcie_fatal, AS_UINT, 535}, {181, V_pcie_unsupported, AS_UINT, 535},
    {182, V_pcie_lcrc, AS_UINT, 535}, {185, V_power_average, AS_UINT, 535}, {186, V_power, AS_UINT, 535},
    {187, V_power_min, AS_UINT, 535}, {188, V_power_max, AS_UINT, 535}, {189, V_power_default, AS_UINT, 535},
    {190, V_power_enforced, AS_UINT, 535}, {191, V_energy, AS_ULONGLONG, 535}, {192, V_power_requested, AS_UINT, 535},
    {193, V_offset_shutdown, AS_SIGNED, 535}, {194, V_offset_slowdown, AS_UINT, 535}, {195, V_offset_memory, AS_SIGNED, 535},
    {196, V_offset_gpu, AS_SIGNED, 535}, {197, V_pcie_transmit, AS_ULONGLONG, 535}, {198, V_pcie_receive, AS_ULONGLONG, 535},
    {230, V_recovery_action, AS_UINT, 560}, {269, V_event_sw_thermal, AS_ULONGLONG, 575}, {270, V_event_hw_thermal, AS_ULONGLONG, 575},
    {271, V_event_hw_brake, AS_ULONGLONG, 575}, {160, V_nvlink_ecc, AS_ULONGLONG, 510},
    {231, V_c2c_crc, AS_UINT, 570}, {232, V_c2c_replay, AS_UINT, 570},
};
static void read_field(int card, field_t *field)
{
    const int64_t *v = state->cards[card].values;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    field->timestamp = now.tv_sec * 1000000LL + now.tv_nsec / 1000;
    field->latency = 10;
    field->code = INVALID; /* an id that is newer than the driver */
    for (unsigned i = 0; i < sizeof FIELD_LIST / sizeof *FIELD_LIST; i++) {
        if (FIELD_LIST[i].id != (int)field->id || FIELD_LIST[i].since > DRIVER)
            continue;
        int64_t value = v[FIELD_LIST[i].value];
        field->code = value == NA ? UNSUPPORTED : OK;
        field->type = FIELD_LIST[i].type;
        if (field->type == AS_ULONGLONG) field->value.ull = (unsigned long long)value;
        else field->value.ui = (unsigned)value; /* si has the same bits */
    }
    read_link_field(card, field);
    read_memory_field(card, field);
    if (field->id < FIELDS && state->cards[card].field_codes[field->id])
        field->code = (nvmlReturn_t)state->cards[card].field_codes[field->id];
}
CALL(nvmlDeviceGetFieldValues, WITH(int count, field_t *out), {
    int good = 0;
    for (int i = 0; i < count; i++) { read_field(card, &out[i]); good += out[i].code == OK; }
    code = good || !count ? OK : out[0].code; /* succeeds if any field does */
})

/* --- memory errors, modes --- */
CALL(nvmlDeviceGetEccMode, WITH(unsigned *current, unsigned *pending), {
    if ((code = PUT(current, ecc_current)) == OK) code = PUT(pending, ecc_pending);
})
CALL(nvmlDeviceGetTotalEccErrors, WITH(unsigned type, unsigned counter, unsigned long long *out), {
    code = type > 1 || counter > 1 ? INVALID : PICK(out, ecc_corrected_volatile, type + 2 * counter, 4);
})
CALL(nvmlDeviceGetRemappedRows, WITH(unsigned *corr, unsigned *unc, unsigned *pending, unsigned *failure), {
    if ((code = PUT(corr, remapped_correctable)) == OK && (code = PUT(unc, remapped_uncorrectable)) == OK
        && (code = PUT(pending, remap_pending)) == OK) code = PUT(failure, remap_failure);
})
CALL(nvmlDeviceGetRetiredPages, WITH(unsigned cause, unsigned *count, unsigned long long *out), {
    (void)cause; (void)out; *count = 0; code = v[V_retired_single] == NA ? UNSUPPORTED : OK;
})
NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, unsigned, retired_pending)
NUMBER(nvmlDeviceGetPersistenceMode, unsigned, persistence)
NUMBER(nvmlDeviceGetComputeMode, unsigned, compute_mode)
NUMBER(nvmlDeviceGetDisplayActive, unsigned, display_active)
NUMBER(nvmlDeviceGetDisplayMode, unsigned, display_mode)
CALL(nvmlDeviceGetDriverModel, WITH(unsigned *current, unsigned *pending), { (void)current; (void)pending; code = UNSUPPORTED; })
ALIAS(nvmlDeviceGetDriverModel_v2, nvmlDeviceGetDriverModel, (nvmlDevice_t d, unsigned *c, unsigned *p), (d, c, p))

CALL(nvmlDeviceGetSamples, WITH(int kind, unsigned long long since, int *type, unsigned *count, void *out), {
    (void)kind; (void)since; (void)type; (void)out; *count = 0; code = NOT_FOUND;
})
