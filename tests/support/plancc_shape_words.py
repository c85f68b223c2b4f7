"""A solver's answer in the words of the brute force, so that both can be compared."""

from plancc_bruteforce import BruteForce, Candidate
from plancc_bruteforce_bytes import Group

from plancc.compiler.placement.placement import Placement


def candidate_of(oracle: BruteForce, placement: Placement) -> Candidate:
    """Only blocks that may lie anywhere have homes; a single device deals no tiles."""
    stages = placement.stages
    homes = {name: index for index, stage in enumerate(stages) for name in stage.blocks}
    first = len(stages) > 1 and "head" in stages[0].blocks
    return Candidate(
        groups=tuple(Group(stage.devices, stage.mixer) for stage in stages),
        cuts=(0, *(stage.layers[1] for stage in stages)),
        tiles=tuple(stage.tiles if len(stage.devices) > 1 else () for stage in stages),
        head="first" if first else "last",
        homes=tuple(homes[name] for name in oracle.free),
    )
