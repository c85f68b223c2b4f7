"""Buffers for rows that arrive at a device or leave it, summed again from stages and links."""

from plancc.ir.groups import exchange_buffer_bytes, hop_buffer_ends
from plancc.ir.plan import Plan
from plancc.ir.sizes import hop_buffer_bytes, step_rows


def buffer_bytes(plan: Plan, name: str) -> int:
    """The ledger's hop_buffers of one device: hidden rows of hops, and rows of exchanges."""
    rows = step_rows(plan.runtime.slots, plan.runtime.prefill_chunk)
    has_group = any(stage.mixer != "single" for stage in plan.stages)
    ends = _ends_in_groups(plan, name) if has_group else _ends_of_links(plan, name)
    return ends * hop_buffer_bytes(plan.model, rows) + _exchange_bytes(plan, name, rows)


def _ends_of_links(plan: Plan, name: str) -> int:
    """One for each end of a hidden-row link; a link from a device to itself has one pair."""
    ends = 0
    for link in plan.links:
        if link.payload == "hidden":
            touched = {plan.programs[link.from_].device, plan.programs[link.to].device}
            ends += name in touched
    return ends


def _ends_in_groups(plan: Plan, name: str) -> int:
    """Rows for several ranks leave from one buffer, so links are not what is counted."""
    head_first = "head" in plan.stages[0].blocks
    return sum(
        hop_buffer_ends(
            stage.mixer, len(stage.ranks), number, stage=index, num_stages=len(plan.stages),
            head_first=head_first,
        )
        for index, stage in enumerate(plan.stages)
        for number, rank in enumerate(stage.ranks)
        if rank.device == name
    )  # fmt: skip


def _exchange_bytes(plan: Plan, name: str, rows: int) -> int:
    """Partial rows of a rank and of those it hears, and an owner's normed rows."""
    return sum(
        exchange_buffer_bytes(
            plan.model, rows, [one.mlp_tiles for one in stage.ranks], stage.mixer, number
        )
        for stage in plan.stages
        for number, rank in enumerate(stage.ranks)
        if rank.device == name
    )
