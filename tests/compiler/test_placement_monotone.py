"""More memory, a faster link, less context: never a worse best value, nor a fit refused."""

from dataclasses import dataclass

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plancc_builders import MIB, build_device, build_layer, build_model, build_topology
from plancc_cuts import placed

from plancc.ir.errors import DoesNotFit
from plancc.ir.manifest import ModelShape
from plancc.ir.topology import Topology

CHECKED = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)


@dataclass(frozen=True)
class Instance:
    """Sizes in MiB, KV in KiB a token; links are GB/s by ordered pair."""

    layers: tuple[tuple[int, int], ...]
    free: tuple[int, ...]
    rates: tuple[int, ...]
    links: tuple[int, ...]
    ends: tuple[int, int]
    context: int
    is_tied: bool


@st.composite
def instances(draw: st.DrawFn) -> Instance:
    """2 or 3 devices that hold the model about once or twice: fits and refusals are both common."""
    count = draw(st.integers(2, 3))
    layer = st.tuples(st.integers(50, 400), st.integers(0, 64))
    layers = tuple(draw(st.lists(layer, min_size=2, max_size=6)))
    whole = sum(size + kv for size, kv in layers) + 300
    free = st.integers(whole // (2 * count), whole)
    many = {"min_size": count, "max_size": count}
    pairs = {"min_size": count * count, "max_size": count * count}
    end = draw(st.integers(1, 150))
    is_tied = draw(st.booleans())
    return Instance(
        layers=layers,
        free=tuple(draw(st.lists(free, **many))),
        rates=tuple(draw(st.lists(st.integers(100, 1000), **many))),
        links=tuple(draw(st.lists(st.integers(1, 30), **pairs))),
        ends=(end, end if is_tied else draw(st.integers(1, 150))),
        context=draw(st.integers(16, 4096)),
        is_tied=is_tied,
    )


def model_of(instance: Instance) -> ModelShape:
    layers = [build_layer(size * MIB, kv=kv * 1024) for size, kv in instance.layers]
    embed, head = (size * MIB for size in instance.ends)
    return build_model(layers, embed=embed, head=head, tied=instance.is_tied, hidden_size=512)


def machine_of(instance: Instance) -> Topology:
    count = len(instance.free)
    devices = [build_device(f"d{i}", instance.free[i] * MIB, gb_s=float(instance.rates[i]))
               for i in range(count)]  # fmt: skip
    links = {(f"d{a}", f"d{b}"): {"bandwidth_gb_s": float(instance.links[a * count + b])}
             for a in range(count) for b in range(count) if a != b}  # fmt: skip
    return build_topology(devices, links=links)


def best_of(instance: Instance, **flags: object) -> float:
    """T*, infinite where nothing fits."""
    asked = {"context": instance.context, "margin": 0.0, "prefill_chunk": 64} | flags
    try:
        return placed(model_of(instance), machine_of(instance), **asked).proof.best
    except DoesNotFit:
        return float("inf")


def replaced(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return (*values[:index], value, *values[index + 1 :])


def with_values(instance: Instance, **values: object) -> Instance:
    return Instance(**(vars(instance) | values))


@CHECKED
@given(instances(), st.integers(0, 2), st.integers(1, 500))
def test_more_memory_on_one_device_is_never_worse(
    instance: Instance, device: int, more: int
) -> None:
    device %= len(instance.free)
    richer = with_values(instance, free=replaced(instance.free, device,
                                                 instance.free[device] + more))  # fmt: skip
    assert best_of(richer) <= best_of(instance)


@CHECKED
@given(instances(), st.integers(0, 8), st.integers(1, 100))
def test_a_faster_link_is_never_worse(instance: Instance, pair: int, more: int) -> None:
    pair %= len(instance.links)
    faster = with_values(instance, links=replaced(instance.links, pair,
                                                  instance.links[pair] + more))  # fmt: skip
    assert best_of(faster) <= best_of(instance)


@CHECKED
@given(instances(), st.integers(1, 4096))
def test_less_context_is_never_worse(instance: Instance, less: int) -> None:
    shorter = with_values(instance, context=max(1, instance.context - less))
    assert best_of(shorter) <= best_of(instance)


@CHECKED
@given(instances())
def test_a_flag_that_takes_choices_away_is_never_better(instance: Instance) -> None:
    free = best_of(instance)
    assert best_of(instance, head="last") >= free
    assert best_of(instance, max_devices=1) >= free
    names = tuple(f"d{i}" for i in range(len(instance.free)))
    assert best_of(instance, devices=names) >= free
