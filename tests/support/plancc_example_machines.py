"""The machines of plans/topologies/, one by one; see plancc_example_topologies."""

from itertools import permutations

from plancc_example_cards import Machine, both_ways, card, p2p
from plancc_example_nvlink import NVLINK
from plancc_example_staged import STAGED

COLUMNS = (20480, 81920, 327680, 655360, 20971520)  # 1, 4, 16, 32 columns of 5120 fp32, and 20 MB

TWO_3090 = Machine(
    "two-3090",
    (
        "Two RTX 3090 on PCIe 3.0 x16, no peer access. The links are reported as measured on a",
        "rented pair (2026-09-21: staged copies in a graph; 20 KB, 4, 16 and 32 times that, and",
        "20 MB). So is the exchange: 27 us for 20 KB; 190 us and 5 ms are the better ends of its",
        "ranges. 812 GB/s and 61 TFLOP/s stand for the card until planprobe has measured it.",
    ),
    [card(f"gpu{i}", "RTX 3090", read_gb_s=812, tflops={"bfloat16": 61}) for i in range(2)],
    pairs=both_ways({("gpu0", "gpu1"): {
        "mode": "staged",
        "points": [list(p) for p in zip(COLUMNS, (24.0, 35.0, 76.0, 130.0, 3400.0), strict=True)],
        "trunk": "pcie-h0"}}),
    exchanges=[{"group": ["gpu0", "gpu1"],
                "points": [[20480, 27.0], [655360, 190.0], [20971520, 5000.0]]}],
)  # fmt: skip

TWO_A4000 = Machine(
    "2xa4000",
    (
        "Two RTX A4000, x8 and x16 slots on two sockets, no peer access. The exchange is reported",
        "as measured on a rented pair (2026-09-21), its points inside the ranges stated; the links",
        "are stand-ins for PCIe 3.0 x8.",
    ),
    [card(f"gpu{i}", "RTX A4000") for i in range(2)],
    slots={"gpu0": "3x8", "gpu1": "3x16"},
    exchanges=[{"group": ["gpu0", "gpu1"], "points": [
        list(p) for p in zip(COLUMNS, (30.0, 50.0, 150.0, 300.0, 6600.0), strict=True)]}],
)  # fmt: skip

MIXED_8 = Machine(
    "mixed-8",
    (
        "Eight unequal cards of 24 to 80 GB in one host, links staged and unequal both ways.",
        "Nothing here is measured: it is for compiling large models.",
    ),
    [
        card("a100", "A100 80GB"), card("l40s", "L40S"), card("a6000", "RTX A6000"),
        card("a40", "A40"), card("r5090", "RTX 5090"), card("r4090", "RTX 4090"),
        card("r3090", "RTX 3090", display=True), card("a5000", "RTX A5000"),
    ],
    slots={"a100": "4x16", "l40s": "4x16", "a6000": "4x8", "a40": "4x16", "r5090": "5x16",
           "r4090": "4x8", "r3090": "3x16", "a5000": "3x8"},
)  # fmt: skip

EIGHT_H200 = Machine(
    "8xh200",
    (
        "Eight H200. Read rate, matrix rate and launch are measured on one (triton stream over",
        "8 GiB; bf16 8192^3; a kernel inside a CUDA graph; 2026-11-29). The NVLink rows are not:",
        "0.8 of the datasheet's 450 GB/s each way, and an assumed 4 us for a put and its flag.",
    ),
    [card(f"gpu{i}", "H200", read_gb_s=4571, tflops={"bfloat16": 769}, launch_us=0.68)
     for i in range(8)],
    pairs={(f"gpu{a}", f"gpu{b}"): p2p(4.0, 360.0)
           for a, b in permutations(range(8), 2)},
)  # fmt: skip

FOUR_V100 = Machine(
    "4xv100-32",
    (
        "Four V100 32 GB SXM2 as one half of a DGX-1: pairs have one NVLink or two (25 GB/s each",
        "way). It has no bfloat16. Not measured; 0.8 of the NVLinks, and an assumed 6 us for a put",
        "and its flag.",
    ),
    [card(f"gpu{i}", "V100 32GB") for i in range(4)],
    pairs=both_ways({("gpu0", "gpu1"): p2p(6.0, 20.0), ("gpu0", "gpu2"): p2p(6.0, 20.0),
                     ("gpu0", "gpu3"): p2p(6.0, 40.0), ("gpu1", "gpu2"): p2p(6.0, 40.0),
                     ("gpu1", "gpu3"): p2p(6.0, 20.0), ("gpu2", "gpu3"): p2p(6.0, 40.0)}),
)  # fmt: skip

THREE_3060 = Machine(
    "3x3060",
    (
        "Three RTX 3060 12 GB; the first sits in a narrow slot. The links are those of a field",
        "report: 13.2 GB/s between the last two, 6.5 to the first, 25 us.",
    ),
    [card("gpu0", "RTX 3060", display=True), card("gpu1", "RTX 3060"), card("gpu2", "RTX 3060")],
    pairs=both_ways({
        pair: {"mode": "staged", "latency_us": 25.0, "bandwidth_gb_s": gb_s, "trunk": "pcie-h0"}
        for pair, gb_s in ((("gpu0", "gpu1"), 6.5), (("gpu0", "gpu2"), 6.5),
                           (("gpu1", "gpu2"), 13.2))}),
)  # fmt: skip

DESKTOP_PAIR = Machine(
    "4060ti-5080",
    (
        "An RTX 4060 Ti 16 GB (PCIe 4.0 x8) and an RTX 5080 in a desktop, the faster one on the",
        "display. Nothing here is measured.",
    ),
    [card("r4060ti", "RTX 4060 Ti"), card("r5080", "RTX 5080", display=True)],
    slots={"r4060ti": "4x8", "r5080": "4x16"},
)

LAPTOPS = Machine(
    "laptop-pair",
    (
        "Two laptops on 2.5 Gbit Ethernet: RTX 4080 Laptop and RTX 4060 Laptop. Nothing here is",
        "measured; the network is 0.28 GB/s and an assumed 150 us.",
    ),
    [card("big", "RTX 4080 Laptop", display=True),
     card("small", "RTX 4060 Laptop", host="h1", display=True)],
    network={"mode": "network", "latency_us": 150.0, "bandwidth_gb_s": 0.28},
)  # fmt: skip

TWO_HOSTS_A40 = Machine(
    "2x2-a40",
    (
        "Two hosts with two A40 each, joined by an SSH tunnel. Its round trip of 0.5 ms is",
        "reported as measured; 0.6 GB/s through its cipher is assumed.",
    ),
    [card(f"h{host}g{i}", "A40", host=f"h{host}") for host in range(2) for i in range(2)],
    slots={f"h{host}g{i}": "4x16" for host in range(2) for i in range(2)},
    network={"mode": "network", "latency_us": 250.0, "bandwidth_gb_s": 0.6, "trunk": "net0"},
)  # fmt: skip

_SIXTEEN = (
    ("A100 80GB", "A100 80GB", "L40S", "L40S", "A40", "A40", "RTX A6000", "RTX A6000"),
    ("RTX 5090", "RTX 5090", "RTX 4090", "RTX 4090", "RTX 3090", "RTX 3090", "RTX A5000",
     "RTX A5000"),
)  # fmt: skip

MIXED_16 = Machine(
    "mixed-16-two-hosts",
    (
        "Sixteen cards of eight kinds, eight a host, 25 Gbit Ethernet between (2.8 GB/s, an",
        "assumed 40 us). Nothing here is measured: it is for compiling large models.",
    ),
    [card(f"h{host}g{i}", kind, host=f"h{host}")
     for host, kinds in enumerate(_SIXTEEN) for i, kind in enumerate(kinds)],
    slots={f"h{host}g{i}": ("4x16", "4x8")[i % 2] for host in range(2) for i in range(8)},
    network={"mode": "network", "latency_us": 40.0, "bandwidth_gb_s": 2.8, "trunk": "net0"},
)  # fmt: skip

ONE_4090 = Machine(
    "single-4090",
    ("One RTX 4090. 923 GB/s is what calm reaches with an 8B model in fp16 (its README).",),
    [card("gpu0", "RTX 4090", display=True, read_gb_s=923)],
)

APPLE = Machine(
    "m4-max",
    (
        "An M4 Max with 64 GB of shared memory, three quarters of it for the GPU. 0.9 of the",
        "datasheet's 546 GB/s; 24 TFLOP/s is a guess. Not measured. Compiles; planrun has no",
        "backend of this kind.",
    ),
    [{"name": "gpu0", "host": "h0", "kind": "mps", "total_bytes": "64 GiB",
      "free_bytes": "48 GiB", "reserve_bytes": "1 GiB", "overhead_bytes": "0.5 GiB",
      "read_gb_s": 491, "tflops": {"bfloat16": 24, "float16": 24}, "launch_us": 5.0}],
)  # fmt: skip

MACHINES = (TWO_3090, TWO_A4000, MIXED_8, EIGHT_H200, FOUR_V100, THREE_3060, DESKTOP_PAIR,
            LAPTOPS, TWO_HOSTS_A40, MIXED_16, ONE_4090, APPLE, *NVLINK, *STAGED)  # fmt: skip
