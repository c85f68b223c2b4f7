"""Two hosts' files as one: what may be joined, what it is called, and what is only said."""

from pathlib import Path

import pytest

from plancc.executor.probe_cli import planprobe
from plancc.executor.probe_join import join, parse_between
from plancc.executor.probe_yaml import to_yaml
from plancc.ir.command import exit_code_of
from plancc.ir.errors import BadInput
from plancc.ir.topology import Topology, read_topology

BETWEEN = {"gb_s": 1.2, "latency_us": 80.0}


def host_of(name: str, address: str, devices: tuple[str, ...] = ("cpu0", "cpu1")) -> Topology:
    rows = [
        {"name": one, "host": name, "kind": "cpu", "uuid": f"CPU-{name}-{one}", "read_gb_s": 9,
         "total_bytes": "1 GiB", "free_bytes": "1 GiB"} for one in devices
    ]  # fmt: skip
    links = [
        {"from": a, "to": b, "mode": "network", "points": [[64, 150]]}
        for a in devices for b in devices if a != b
    ]  # fmt: skip
    exchanges = [{"group": devices, "points": [[64, 300]]}] if len(devices) > 1 else []
    return Topology.model_validate(
        {"name": name, "hosts": [{"name": name, "address": address}], "devices": rows,
         "links": links, "exchanges": exchanges}
    )  # fmt: skip


A, B = host_of("a", "192.0.2.1"), host_of("b", "192.0.2.2")


def test_names_that_both_hosts_use_get_their_host_in_front() -> None:
    both = join(A, B, "ab", BETWEEN)
    assert [one.name for one in both.devices] == ["a.cpu0", "a.cpu1", "b.cpu0", "b.cpu1"]
    assert [one.group for one in both.exchanges] == [("a.cpu0", "a.cpu1"), ("b.cpu0", "b.cpu1")]
    assert Topology.model_validate(both.model_dump(mode="json", by_alias=True)) == both


def test_links_between_hosts_are_marked_as_given_and_those_within_stay_measured() -> None:
    both = join(A, B, "ab", BETWEEN)
    across = [link for link in both.links if link.from_[0] != link.to[0]]
    within = [link for link in both.links if link.from_[0] == link.to[0]]
    assert len(across) == 8
    assert len(within) == 4
    assert {link.note for link in across} == {"given by hand, not measured"}
    assert {(link.latency_us, link.bandwidth_gb_s) for link in across} == {(80.0, 1.2)}
    assert {link.note for link in within} == {None}


def test_names_of_one_host_alone_stay() -> None:
    both = join(A, host_of("b", "192.0.2.2", ("big",)), "ab", BETWEEN)
    assert [one.name for one in both.devices] == ["cpu0", "cpu1", "big"]


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (host_of("a", "192.0.2.2"), "host a is in both files"),
        (host_of("b", "127.0.0.1"), "host b has address 127.0.0.1, which no other host can reach"),
        (host_of("b", "0.0.0.0"), "host b has address 0.0.0.0, which no other host can reach"),
        (host_of("b", "localhost"), "host b has address localhost"),
        (host_of("b", "::1"), "host b has address ::1"),
    ],
)
def test_a_host_that_cannot_be_joined_is_named(second: Topology, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        join(A, second, "ab", BETWEEN)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "the network run between hosts is not built yet"),
        ("gb_s=1", "expected gb_s=RATE,latency_us=TIME, found 'gb_s=1'"),
        ("gb_s=1,latency_us=fast", "latency_us: expected a number, found 'fast'"),
        ("gb_s=0,latency_us=80", "gb_s: expected more than 0, found 0"),
        ("gb_s=1,latency_us=nan", "latency_us: expected more than 0, found nan"),
        ("gb_s=1,latency_us=80,mtu=9000", "expected gb_s=RATE,latency_us=TIME"),
    ],
)
def test_what_lies_between_is_given_whole_or_refused(text: str | None, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        parse_between(text)


def test_the_command_writes_the_joined_file(tmp_path: Path) -> None:
    for name, part in (("a", A), ("b", B)):
        (tmp_path / f"{name}.yaml").write_text(to_yaml(part))
    out = tmp_path / "ab.yaml"
    flags = ["--join", str(tmp_path / "a.yaml"), str(tmp_path / "b.yaml"), "-o", str(out)]
    between = ["--between", "gb_s=1.2,latency_us=80"]
    assert exit_code_of(lambda: planprobe.main(flags, standalone_mode=False)) == 2
    assert not out.exists()
    assert exit_code_of(lambda: planprobe.main([*flags, *between], standalone_mode=False)) == 0
    assert read_topology(out) == join(A, B, "ab", BETWEEN)
