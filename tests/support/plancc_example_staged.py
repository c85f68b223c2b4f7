"""More machines of plans/topologies/: copies pass host memory or a network; none is measured."""

from plancc_example_cards import Machine, both_ways, card

FOUR_3090 = Machine(
    "4x3090-x8",
    (
        "Four RTX 3090 in PCIe 3.0 x8 slots, two behind each of two switches: cards of a pair",
        "share the uplink of their switch, which every copy leaves by (`trunk`), so copies that",
        "leave a pair at once add up.",
    ),
    [card(f"gpu{i}", "RTX 3090", read_gb_s=812, tflops={"bfloat16": 61}) for i in range(4)],
    slots={f"gpu{i}": "3x8" for i in range(4)},
    uplinks={"gpu0": "switch-a", "gpu1": "switch-a", "gpu2": "switch-b", "gpu3": "switch-b"},
)

FOUR_4090 = Machine(
    "4x4090",
    (
        "Four RTX 4090 on a server board, PCIe 4.0 x16 each on a root port of its own; the driver",
        "allows no peer access. 923 GB/s is what calm reaches with an 8B model in fp16.",
    ),
    [card(f"gpu{i}", "RTX 4090", read_gb_s=923) for i in range(4)],
    slots={f"gpu{i}": "4x16" for i in range(4)},
    uplinks={f"gpu{i}": f"port-{i}" for i in range(4)},
)

_SPARK = {"free_bytes": "112 GiB", "reserve_bytes": "2 GiB"}

TWO_SPARKS = Machine(
    "2x-spark",
    (
        "Two small boxes with 128 GB of shared LPDDR5X at 273 GB/s each (GB10), joined by a 200",
        "Gbit cable: 0.8 of 25 GB/s, and an assumed 20 us through host memory. The system keeps",
        "7 GiB. 125 dense bf16 TFLOP/s are an eighth of the advertised sparse fp4 rate.",
    ),
    [card(f"spark{i}", "GB10", host=f"h{i}", **_SPARK) for i in range(2)],
    network={"mode": "network", "latency_us": 20.0, "bandwidth_gb_s": 20.0},
)

CPU_AND_GPU = Machine(
    "cpu-and-4090",
    (
        "A desktop whose processor is a device too: RTX 4090, and 16 cores over 96 GB of",
        "two-channel DDR5-5600 (89.6 GB/s by the datasheet, 0.7 of it; 2 TFLOP/s are a guess; 5 us",
        "to wake the team for a kernel). A copy between card and host memory: an assumed 12 us.",
    ),
    [card("gpu0", "RTX 4090", display=True, read_gb_s=923),
     {"name": "cpu0", "host": "h0", "kind": "cpu", "total_bytes": "96 GiB",
      "free_bytes": "80 GiB", "reserve_bytes": "4 GiB", "read_gb_s": 63,
      "tflops": {"bfloat16": 2, "float32": 1}, "launch_us": 5.0, "threads": 16,
      "dtypes": ["bfloat16", "float32"]}],
    pairs=both_ways({("gpu0", "cpu0"): {
        "mode": "staged", "latency_us": 12.0, "bandwidth_gb_s": 22.0, "trunk": "pcie-h0"}}),
)  # fmt: skip

STAGED = (FOUR_3090, FOUR_4090, TWO_SPARKS, CPU_AND_GPU)
