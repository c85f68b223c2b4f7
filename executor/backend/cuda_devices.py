"""Which of this process's CUDA devices a plan means."""

import torch

from plancc.executor.backend.cuda_limits import check_card
from plancc.ir.errors import BadInput

_PREFIX = "GPU-"


def device_of(uuid: str | None) -> torch.device:
    """The device of a uuid as planprobe writes it; without one, the only device there is.

    Raises BadInput naming what is here, or what of the card the kernels are not made for.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count == 0:
        raise BadInput("this machine has no CUDA device that torch can open")
    found = [_uuid_of(ordinal) for ordinal in range(count)]
    if uuid is None and count == 1:
        uuid = found[0]
    if uuid is None:
        raise BadInput(f"a device without uuid is one of {count} cards here: planprobe writes "
                       f"uuids into a topology")  # fmt: skip
    if uuid not in found:
        raise BadInput(f"no CUDA device {uuid} here, found {', '.join(found)}")
    device = torch.device("cuda", found.index(uuid))
    check_card(device)
    return device


def new_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def _uuid_of(ordinal: int) -> str:
    text = str(torch.cuda.get_device_properties(ordinal).uuid)
    return text if text.startswith(_PREFIX) else _PREFIX + text
