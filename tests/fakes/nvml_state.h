/* What the fake libnvidia-ml.so.1 knows: one file, mapped by the library and by tests/fakes/nvml.py while it runs.
 *
 * Everything is an int64_t or text of 96 bytes, in this order; nvml.py reads the names of the three lists from this file.
 */
#ifndef NVML_STATE_H
#define NVML_STATE_H

#include <stdint.h>

#define CARDS 32        /* physical cards; NVML indexes are positions in `order` */
#define SYSTEM CARDS    /* row of calls that concern no card */
#define FIELDS 400      /* nvmlDeviceGetFieldValues ids */
#define TEXT 96
#define PROCESSES 256
#define MIG_DEVICES 8    /* of one card */
#define EVENTS 256       /* that sets can be behind */
#define NVLINKS 36
#define PLACES 8         /* nvmlMemoryLocation_t */
#define GPM 64           /* nvmlGpmMetricId_t, those before the C2C links */
#define NA INT64_MIN    /* a value that this card does not have: NOT_SUPPORTED */

/* clang-format off */
#define VALUES(V) \
    V(utilization) V(memory_activity) V(memory_total) V(memory_reserved) V(memory_free) V(memory_used) \
    V(temperature) V(temperature_memory) V(margin) V(power) V(power_average) V(power_min) V(power_max) V(power_default) \
    V(power_enforced) V(power_requested) V(energy) V(clock_graphics) V(clock_sm) V(clock_memory) V(clock_video) \
    V(clock_max_graphics) V(clock_max_sm) V(clock_max_memory) V(clock_max_video) V(reasons) V(reasons_supported) \
    V(performance_state) V(encoder) V(decoder) V(jpeg) V(ofa) V(bar1_total) V(bar1_used) \
    V(pcie_generation) V(pcie_width) V(pcie_generation_max) V(pcie_width_max) V(pcie_generation_card) \
    V(pcie_replays) V(pcie_rollovers) V(pcie_transmit) V(pcie_receive) V(pcie_transmit_rate) V(pcie_receive_rate) \
    V(pcie_correctable) V(pcie_nak_received) V(pcie_receiver) V(pcie_bad_tlp) V(pcie_nak_sent) V(pcie_bad_dllp) \
    V(pcie_non_fatal) V(pcie_fatal) V(pcie_unsupported) V(pcie_lcrc) V(pcie_recovery) \
    V(event_power) V(event_thermal) V(event_sync) V(event_board) V(event_low) V(event_reliability) \
    V(event_sw_thermal) V(event_hw_thermal) V(event_hw_brake) \
    V(ecc_current) V(ecc_pending) V(ecc_corrected_volatile) V(ecc_uncorrected_volatile) V(ecc_corrected_aggregate) \
    V(ecc_uncorrected_aggregate) V(remapped_correctable) V(remapped_uncorrectable) V(remap_pending) V(remap_failure) \
    V(retired_single) V(retired_double) V(retired_pending) V(persistence) V(compute_mode) V(minor) V(architecture) V(brand) \
    V(capability_major) V(capability_minor) V(fans) V(fan_speed) V(fan_rpm) \
    V(limit_shutdown) V(limit_slowdown) V(limit_memory) V(limit_gpu) V(limit_acoustic) \
    V(offset_shutdown) V(offset_slowdown) V(offset_memory) V(offset_gpu) V(numa_node) V(domain) V(bus) V(device) \
    V(display_active) V(display_mode) V(mig_mode) V(mig_pending) V(mig_max) V(event_types) V(recovery_action) V(process_samples) V(processes) \
    V(nvlinks) V(nvlink_speed) V(nvlink_version) V(nvlink_sums) V(nvlink_ecc) V(c2c_crc) V(c2c_replay) \
    V(fabric_state) V(fabric_status) V(fabric_mask) V(fabric_summary) V(unrepairable) V(gpm) \
    V(sram_threshold) V(sram_l2) V(sram_sm) V(sram_pcie) V(sram_microcontroller) V(sram_other) \
    V(banks_max) V(banks_high) V(banks_partial) V(banks_low) V(banks_none)

#define TEXTS(T) T(name) T(uuid) T(serial) T(part_number) T(vbios) T(inforom) T(bus_id) T(bus_id_legacy)

#define GLOBALS(G) \
    G(count) G(empty_counts) G(delay_ns) G(dead_uses_allowed) G(driver_major) G(cuda) G(epoch) G(inits) G(shutdowns) \
    G(inside_ns) G(inside_cpu_ns) G(total_calls) \
    G(event_head) G(event_sets) G(sets_at_shutdown) G(freed_uses) G(total_created) \
    G(gpm_samples) G(samples_at_shutdown) G(dead_samples)

/* mig_...: calls with the handle of a MIG device.
 * event_head: events ever; event_sets: live ones; sets_at_shutdown: live ones at any nvmlShutdown; freed_uses: uses of freed ones;
 * gpm_samples, samples_at_shutdown, dead_samples: the same of samples */

#define FUNCTIONS(F) \
    F(nvmlInitWithFlags) F(nvmlShutdown) F(nvmlErrorString) F(nvmlSystemGetDriverVersion) F(nvmlSystemGetNVMLVersion) \
    F(nvmlSystemGetCudaDriverVersion) F(nvmlSystemGetProcessName) F(nvmlDeviceGetCount) F(nvmlDeviceGetHandleByIndex) \
    F(nvmlDeviceGetHandleByUUID) F(nvmlDeviceGetHandleByPciBusId) F(nvmlDeviceGetIndex) F(nvmlDeviceGetName) \
    F(nvmlDeviceGetUUID) F(nvmlDeviceGetSerial) F(nvmlDeviceGetBoardPartNumber) F(nvmlDeviceGetVbiosVersion) \
    F(nvmlDeviceGetInforomImageVersion) F(nvmlDeviceGetPciInfo) F(nvmlDeviceGetMinorNumber) F(nvmlDeviceGetArchitecture) \
    F(nvmlDeviceGetBrand) F(nvmlDeviceGetCudaComputeCapability) F(nvmlDeviceGetNumaNodeId) F(nvmlDeviceGetUtilizationRates) \
    F(nvmlDeviceGetMemoryInfo) F(nvmlDeviceGetMemoryInfo_v2) F(nvmlDeviceGetBAR1MemoryInfo) F(nvmlDeviceGetTemperature) \
    F(nvmlDeviceGetTemperatureV) F(nvmlDeviceGetMarginTemperature) F(nvmlDeviceGetTemperatureThreshold) \
    F(nvmlDeviceGetClockInfo) F(nvmlDeviceGetMaxClockInfo) F(nvmlDeviceGetCurrentClocksEventReasons) \
    F(nvmlDeviceGetCurrentClocksThrottleReasons) F(nvmlDeviceGetSupportedClocksEventReasons) \
    F(nvmlDeviceGetSupportedClocksThrottleReasons) F(nvmlDeviceGetViolationStatus) F(nvmlDeviceGetPowerUsage) \
    F(nvmlDeviceGetEnforcedPowerLimit) F(nvmlDeviceGetPowerManagementLimit) F(nvmlDeviceGetPowerManagementDefaultLimit) \
    F(nvmlDeviceGetPowerManagementLimitConstraints) F(nvmlDeviceGetTotalEnergyConsumption) F(nvmlDeviceGetPerformanceState) \
    F(nvmlDeviceGetEncoderUtilization) F(nvmlDeviceGetDecoderUtilization) F(nvmlDeviceGetJpgUtilization) \
    F(nvmlDeviceGetOfaUtilization) F(nvmlDeviceGetNumFans) F(nvmlDeviceGetFanSpeed) F(nvmlDeviceGetFanSpeed_v2) \
    F(nvmlDeviceGetFanSpeedRPM) F(nvmlDeviceGetCurrPcieLinkGeneration) F(nvmlDeviceGetCurrPcieLinkWidth) \
    F(nvmlDeviceGetMaxPcieLinkGeneration) F(nvmlDeviceGetMaxPcieLinkWidth) F(nvmlDeviceGetGpuMaxPcieLinkGeneration) \
    F(nvmlDeviceGetPcieReplayCounter) F(nvmlDeviceGetPcieThroughput) F(nvmlDeviceGetFieldValues) F(nvmlDeviceGetEccMode) \
    F(nvmlDeviceGetTotalEccErrors) F(nvmlDeviceGetRemappedRows) F(nvmlDeviceGetRetiredPages) \
    F(nvmlDeviceGetRetiredPagesPendingStatus) F(nvmlDeviceGetPersistenceMode) F(nvmlDeviceGetComputeMode) \
    F(nvmlDeviceGetDisplayActive) F(nvmlDeviceGetDisplayMode) F(nvmlDeviceGetMigMode) F(nvmlDeviceIsMigDeviceHandle) \
    F(nvmlDeviceGetMaxMigDeviceCount) F(nvmlDeviceGetMigDeviceHandleByIndex) F(nvmlDeviceGetDeviceHandleFromMigDeviceHandle) \
    F(nvmlDeviceGetGpuInstanceId) F(nvmlDeviceGetComputeInstanceId) F(nvmlDeviceGetDriverModel) \
    F(nvmlDeviceGetComputeRunningProcesses) F(nvmlDeviceGetGraphicsRunningProcesses) \
    F(nvmlDeviceGetMPSComputeRunningProcesses) F(nvmlDeviceGetProcessUtilization) \
    F(nvmlDeviceGetProcessesUtilizationInfo) \
    F(nvmlEventSetCreate) F(nvmlEventSetFree) F(nvmlEventSetWait) F(nvmlDeviceRegisterEvents) \
    F(nvmlDeviceGetSupportedEventTypes) \
    F(mig_uuid) F(mig_name) F(mig_memory) F(mig_gpu_instance) F(mig_compute_instance) \
    F(nvmlDeviceGetNvLinkState) F(nvmlDeviceGetGpuFabricInfo) F(nvmlDeviceGetGpuFabricInfoV) \
    F(nvmlDeviceGetMemoryErrorCounter) F(nvmlDeviceGetSramEccErrorStatus) F(nvmlDeviceGetRowRemapperHistogram) \
    F(nvmlDeviceGetUnrepairableMemoryFlag_v1) F(nvmlGpmQueryDeviceSupport) F(nvmlGpmSampleAlloc) F(nvmlGpmSampleFree) \
    F(nvmlGpmSampleGet) F(nvmlGpmMigSampleGet) F(nvmlGpmMetricsGet) \
    F(nvmlDeviceGetSamples)
/* clang-format on */

#define V(name) V_##name,
enum value { VALUES(V) VALUE_COUNT };
#undef V
#define T(name) T_##name,
enum text { TEXTS(T) TEXT_COUNT };
#undef T
#define F(name) F_##name,
enum function { FUNCTIONS(F) FUNCTION_COUNT };
#undef F

/* What one function does for one card (or for all: row SYSTEM of a function that concerns a card is not looked at). */
struct rule {
    int64_t code;     /* always answer this (0: work) */
    int64_t fail_in;  /* answer fail_code to the n-th call from now (0: never), and to the fail_more calls after it */
    int64_t fail_code;
    int64_t fail_more;
    int64_t hang;     /* do not return while this is 1 */
    int64_t crash;    /* abort the process */
    int64_t delay_ns; /* in place of the global delay (-1: that) */
    int64_t calls;
};

struct mig {
    int64_t present, gpu_instance, compute_instance, total, used;
    char uuid[TEXT], name[TEXT];
    int64_t gpm[GPM]; /* counted so far, in hundredths of the metric's unit */
};

/* One NVLink (there are `nvlinks` of them): 0 active, 1 inactive, 2 asleep; bytes and errors so far. */
struct link {
    int64_t state, transmit, receive, replay, recovery, crc, symbol, recovery_failed;
};

/* Something that happened: delivered `times` times to every set that has this card and type. */
struct event {
    int64_t card, type, data, gpu_instance, compute_instance, times;
};

struct card {
    int64_t values[VALUE_COUNT];
    int64_t field_codes[FIELDS]; /* nvmlReturn of one field (0: as its value says) */
    int64_t pids[PROCESSES];
    int64_t process_memory[PROCESSES];
    int64_t process_kinds[PROCESSES];   /* 1 compute, 2 graphics, 4 MPS */
    int64_t process_gi[PROCESSES];
    int64_t process_ci[PROCESSES];
    int64_t process_share[PROCESSES];   /* percent; 0: no sample */
    int64_t process_sampled[PROCESSES]; /* time stamp of its sample in microseconds (0: now) */
    int64_t process_stride;             /* bytes of a row (0: as the function promises) */
    int64_t lost;      /* every call answers this code (15, 16, 999) */
    int64_t dead_uses; /* calls with the handle since then */
    int64_t attaches;  /* handles given out */
    int64_t hang;      /* no call returns while this is 1 */
    char texts[TEXT_COUNT][TEXT];
    struct mig mig[MIG_DEVICES]; /* by MIG index */
    struct link links[NVLINKS];
    int64_t memory_errors[4 * PLACES]; /* corrected and uncorrected, of each volatile and aggregate, of each the places */
    int64_t gpm[GPM];
    int64_t gpm_codes[GPM]; /* nvmlReturn of one metric */
};

struct state {
#define G(name) int64_t name;
    GLOBALS(G)
#undef G
    int64_t order[CARDS]; /* card at each NVML index */
    char driver_version[TEXT];
    char nvml_version[TEXT];
    struct rule rules[FUNCTION_COUNT][CARDS + 1];
    struct card cards[CARDS];
    struct event events[EVENTS];
};

#endif
