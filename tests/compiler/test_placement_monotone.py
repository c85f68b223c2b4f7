"""More memory, a faster link or device, less context: never a worse value, nor a fit refused.

Latencies are whole microseconds: a link's time is split in whole ns, so that an odd fraction more
or less may cost a ns where several transfers add up.
"""

from dataclasses import dataclass, replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plancc_builders import MIB, build_device, build_model, build_topology
from plancc_cuts import placed

from plancc.ir.errors import DoesNotFit
from plancc.ir.layers import Layer
from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Topology

CHECKED = settings(
    max_examples=16, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
OBJECTIVES = ("latency", "prefill", "throughput")
TILES = 4


@dataclass(frozen=True)
class Instance:
    """Sizes in MiB, KV in KiB a token: (mixer, MLP, KV) of a layer. Links are GB/s and us by
    ordered pair; hosts are numbers."""

    layers: tuple[tuple[int, int, int], ...]
    free: tuple[int, ...]
    rates: tuple[int, ...]
    links: tuple[int, ...]
    waits: tuple[int, ...]
    hosts: tuple[int, ...]
    trunk: bool
    ends: tuple[int, int]
    context: int
    is_tied: bool
    objective: str


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """2 or 3 devices that hold the model about once or twice: fits and refusals are both common."""
    count = draw(st.integers(2, 3))
    layer = st.tuples(st.integers(20, 100), st.integers(0, 300), st.integers(0, 64))
    layers = tuple(draw(st.lists(layer, min_size=2, max_size=6)))
    whole = sum(map(sum, layers)) + 300
    free = st.integers(whole // (2 * count), whole)
    many = {"min_size": count, "max_size": count}
    pairs = {"min_size": count * count, "max_size": count * count}
    end = draw(st.integers(1, 150))
    is_tied = draw(st.booleans())
    return Instance(
        layers=layers,
        free=tuple(draw(st.lists(free, **many))),
        rates=tuple(draw(st.lists(st.integers(100, 1000), **many))),
        links=tuple(draw(st.lists(st.integers(1, 100), **pairs))),
        waits=tuple(draw(st.lists(st.integers(1, 40), **pairs))),
        hosts=tuple(draw(st.lists(st.sampled_from([0, 0, 0, 1]), **many))),
        trunk=draw(st.booleans()),
        ends=(end, end if is_tied else draw(st.integers(1, 150))),
        context=draw(st.integers(16, 4096)),
        is_tied=is_tied,
        objective=draw(st.sampled_from(OBJECTIVES)),
    )


def model_of(instance: Instance) -> ModelShape:
    """Layers with an MLP have four tiles, so that groups may share them."""
    layers = [
        Layer.model_validate({
            "mixer": {"kind": "attention", "weight_bytes": mixer * MIB,
                      "kv_bytes_per_token": kv * 1024},
            "mlp": {"kind": "swiglu", "weight_bytes": mlp * MIB, "intermediate_size": 64 * TILES,
                    "tiles": TILES} if mlp else None,
        })
        for mixer, mlp, kv in instance.layers
    ]  # fmt: skip
    embed, head = (size * MIB for size in instance.ends)
    return build_model(layers, embed=embed, head=head, tied=instance.is_tied, hidden_size=512)


def machine_of(instance: Instance) -> Topology:
    devices = [
        build_device(f"d{i}", free * MIB, gb_s=float(rate), launch_us=2.0, host=f"h{host}",
                     tflops={"bfloat16": rate / 10})
        for i, (free, rate, host) in enumerate(
            zip(instance.free, instance.rates, instance.hosts, strict=True))
    ]  # fmt: skip
    count = len(devices)
    links = {
        (f"d{a}", f"d{b}"): {
            "latency_us": float(instance.waits[a * count + b]),
            "bandwidth_gb_s": float(instance.links[a * count + b]),
            "trunk": "t" if instance.trunk else None,
        }
        for a in range(count) for b in range(count) if a != b
    }  # fmt: skip
    return build_topology(devices, links=links)


def best_of(instance: Instance, **flags: object) -> float:
    """T*, infinite where nothing fits."""
    asked = {"context": instance.context, "margin": 0.0, "prefill_chunk": 64, "slots": 2,
             "objective": instance.objective, "prompt": 16} | flags  # fmt: skip
    try:
        return placed(model_of(instance), machine_of(instance), **asked).proof.best
    except DoesNotFit:
        return float("inf")


def most_context(instance: Instance, **flags: object) -> int:
    """The largest context; 0 where not one token fits."""
    asked = {"margin": 0.0, "prefill_chunk": 64, "objective": "context"} | flags
    model = model_of(instance).model_copy(update={"max_context": 4096})
    try:
        return placed(model, machine_of(instance), **asked).context
    except DoesNotFit:
        return 0


def replaced(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    index %= len(values)
    return (*values[:index], value, *values[index + 1 :])


@CHECKED
@given(instances(), st.integers(0, 2), st.integers(1, 500))
def test_more_memory_on_one_device_is_never_worse(
    instance: Instance, device: int, more: int
) -> None:
    free = instance.free[device % len(instance.free)] + more
    richer = replace(instance, free=replaced(instance.free, device, free))
    assert best_of(richer) <= best_of(instance)


@settings(CHECKED, max_examples=10)
@given(instances(), st.integers(0, 2), st.integers(1, 500))
def test_more_memory_never_takes_context_away(instance: Instance, device: int, more: int) -> None:
    free = instance.free[device % len(instance.free)] + more
    richer = replace(instance, free=replaced(instance.free, device, free))
    assert most_context(richer) >= most_context(instance)


@CHECKED
@given(instances(), st.integers(0, 8), st.integers(1, 100))
def test_a_faster_link_is_never_worse(instance: Instance, pair: int, more: int) -> None:
    rate = instance.links[pair % len(instance.links)] + more
    faster = replace(instance, links=replaced(instance.links, pair, rate))
    assert best_of(faster) <= best_of(instance)


@CHECKED
@given(instances(), st.integers(0, 8))
def test_a_link_that_waits_less_is_never_worse(instance: Instance, pair: int) -> None:
    faster = replace(instance, waits=replaced(instance.waits, pair, 1))
    assert best_of(faster) <= best_of(instance)


@CHECKED
@given(instances(), st.integers(0, 2), st.integers(1, 900))
def test_a_faster_device_is_never_worse(instance: Instance, device: int, more: int) -> None:
    rate = instance.rates[device % len(instance.rates)] + more
    faster = replace(instance, rates=replaced(instance.rates, device, rate))
    assert best_of(faster) <= best_of(instance)


@CHECKED
@given(instances(), st.integers(1, 4096))
def test_less_context_is_never_worse(instance: Instance, less: int) -> None:
    shorter = replace(instance, context=max(16, instance.context - less))
    assert best_of(shorter) <= best_of(instance)


@CHECKED
@given(instances())
def test_links_without_a_trunk_are_never_worse(instance: Instance) -> None:
    assert best_of(replace(instance, trunk=False)) <= best_of(instance)


@settings(CHECKED, max_examples=10)
@given(instances())
def test_a_flag_that_takes_choices_away_is_never_better(instance: Instance) -> None:
    free = best_of(instance)
    assert best_of(instance, head="last") >= free
    assert best_of(instance, max_devices=1) >= free
    assert best_of(instance, tp="off") >= free
    names = tuple(f"d{i}" for i in range(len(instance.free)))
    assert best_of(instance, devices=names) >= free
