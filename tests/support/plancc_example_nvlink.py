"""Machines of plans/topologies/ whose cards reach each other's memory; none is measured."""

from itertools import permutations

from plancc_example_cards import Machine, both_ways, card, p2p

BRIDGE = p2p(5.0, 45.0)

TWO_3090_NVLINK = Machine(
    "two-3090-nvlink",
    (
        "Two RTX 3090 with an NVLink bridge: 56 GB/s each way by the datasheet, 0.8 of it, and an",
        "assumed 5 us for a put and its flag. The exchange is assumed too: both put at once, 2 us",
        "more for the wait.",
    ),
    [card(f"gpu{i}", "RTX 3090", read_gb_s=812, tflops={"bfloat16": 61}) for i in range(2)],
    pairs=both_ways({("gpu0", "gpu1"): BRIDGE}),
    exchanges=[{"group": ["gpu0", "gpu1"],
                "points": [[20480, 7.5], [655360, 21.6], [20971520, 473.0]]}],
)  # fmt: skip

FOUR_3090_NVLINK = Machine(
    "4x3090-two-bridges",
    (
        "Four RTX 3090 in a workstation, PCIe 4.0 x16 each, joined in two pairs by NVLink bridges",
        "(0.8 of 56 GB/s, an assumed 5 us); between the pairs copies are staged.",
    ),
    [card(f"gpu{i}", "RTX 3090", read_gb_s=812, tflops={"bfloat16": 61}) for i in range(4)],
    slots={f"gpu{i}": "4x16" for i in range(4)},
    pairs=both_ways({("gpu0", "gpu1"): BRIDGE, ("gpu2", "gpu3"): BRIDGE}),
)  # fmt: skip

EIGHT_A100 = Machine(
    "8xa100-40",
    (
        "Eight A100 SXM 40 GB on NVSwitch: 0.8 of 300 GB/s each way, and an assumed 5 us for a put",
        "and its flag. Nothing here is measured.",
    ),
    [card(f"gpu{i}", "A100 40GB") for i in range(8)],
    pairs={(f"gpu{a}", f"gpu{b}"): p2p(5.0, 240.0) for a, b in permutations(range(8), 2)},
)

TWO_HOSTS_H100 = Machine(
    "2x8-h100",
    (
        "Two hosts with eight H100 SXM 80 GB each: NVSwitch inside (0.8 of 450 GB/s, an assumed",
        "4 us), a 400 Gbit card for each GPU between (0.8 of 50 GB/s, an assumed 12 us with",
        "GPUDirect). Nothing here is measured.",
    ),
    [card(f"h{host}g{i}", "H100 80GB", host=f"h{host}", launch_us=0.7)
     for host in range(2) for i in range(8)],
    pairs={(f"h{host}g{a}", f"h{host}g{b}"): p2p(4.0, 360.0)
           for host in range(2) for a, b in permutations(range(8), 2)},
    network={"mode": "network", "latency_us": 12.0, "bandwidth_gb_s": 40.0},
)  # fmt: skip

NVLINK = (TWO_3090_NVLINK, FOUR_3090_NVLINK, EIGHT_A100, TWO_HOSTS_H100)
