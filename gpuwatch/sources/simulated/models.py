"""The cards that can be simulated, with values of real ones (sources: nvml.md section 5)."""

import msgspec

MIB = 1 << 20


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """What a card is: powers in watts, temperatures in celsius, clocks in hertz, memory in bytes."""

    name: str
    architecture: str
    compute_capability: str
    idle_power: float
    power_limit: float
    power_min: float
    slowdown: float
    shutdown: float
    gpu_max: float
    sm_clock: float
    memory_clock: float
    memory_size: float
    memory_reserved: float
    pcie_generation: float
    full_load_rise: float  # celsius above the inlet at the power limit, with clean fans
    time_constant: float  # seconds in which it covers 63 % of the way to its final temperature
    ecc: bool


def model(name: str, architecture: str, capability: str, **numbers: float) -> Model:
    """Build a model from the numbers as data sheets give them: MHz and MiB."""
    return Model(
        name=name,
        architecture=architecture,
        compute_capability=capability,
        idle_power=numbers["idle"],
        power_limit=numbers["limit"],
        power_min=numbers["least"],
        slowdown=numbers["slowdown"],
        shutdown=numbers["shutdown"],
        gpu_max=numbers["gpu_max"],
        sm_clock=numbers["sm"] * 1e6,
        memory_clock=numbers["memory"] * 1e6,
        memory_size=numbers["size"] * MIB,
        memory_reserved=numbers["reserved"] * MIB,
        pcie_generation=numbers["generation"],
        full_load_rise=numbers["rise"],
        time_constant=numbers["tau"],
        ecc=bool(numbers["ecc"]),
    )


MODELS = {
    "A40": model(
        "NVIDIA A40",
        "Ampere",
        "8.6",
        idle=30,
        limit=300,
        least=100,
        slowdown=95,
        shutdown=98,
        gpu_max=88,
        sm=1740,
        memory=7251,
        size=46068,
        reserved=665,
        generation=4,
        rise=48,
        tau=25,
        ecc=1,
    ),
    "RTX 3090": model(
        "NVIDIA GeForce RTX 3090",
        "Ampere",
        "8.6",
        idle=25,
        limit=350,
        least=100,
        slowdown=95,
        shutdown=98,
        gpu_max=93,
        sm=2100,
        memory=9751,
        size=24576,
        reserved=316,
        generation=4,
        rise=46,
        tau=20,
        ecc=0,
    ),
    "A100": model(
        "NVIDIA A100-SXM4-80GB",
        "Ampere",
        "8.0",
        idle=55,
        limit=400,
        least=100,
        slowdown=89,
        shutdown=92,
        gpu_max=85,
        sm=1410,
        memory=1593,
        size=81920,
        reserved=869,
        generation=4,
        rise=38,
        tau=18,
        ecc=1,
    ),
    "T4": model(
        "Tesla T4",
        "Turing",
        "7.5",
        idle=10,
        limit=70,
        least=60,
        slowdown=93,
        shutdown=96,
        gpu_max=85,
        sm=1590,
        memory=5001,
        size=15360,
        reserved=448,
        generation=3,
        rise=50,
        tau=40,
        ecc=1,
    ),
}
