"""A rank's end of its group's exchange: its partial rows go to whoever adds, theirs come here.

All sends and receives of an exchange are under way at once. Nothing is copied on the sender's
side: it writes partial rows in turns into two slots, and nobody sends the next layer's before it
has added this one's, so a slot is free again when its turn comes.
"""

from collections import deque
from collections.abc import Mapping
from typing import Any

import torch

from plancc.executor.comm import Group as Workers
from plancc.executor.comm import finish
from plancc.executor.group import Group
from plancc.executor.links import Inlet, Outlet
from plancc.executor.step_codec import Message
from plancc.ir.sizes import LINK_SLOTS


class DirectOutlet:
    """Rows leave from where they lie; the sender leaves them alone until it has an answer."""

    buffer_bytes = 0
    leaves_process = True

    def __init__(self, workers: Workers, peer: int, link: int) -> None:
        self._workers, self._peer, self._link = workers, peer, link
        self._pending: deque[Any] = deque()

    def can_send(self) -> bool:
        return True

    def send_rows(self, rows: torch.Tensor) -> None:
        if len(self._pending) == LINK_SLOTS:
            finish(self._pending.popleft(), self._link)
        self._pending.append(self._workers.send(rows, self._peer, 2 * self._link))

    def send_message(self, message: Message) -> None:
        raise AssertionError(f"link {self._link} carries rows, not {message}")


class Exchanger:
    """`inlets` and `outlets` by link; `places` says which rank of the group an inlet is from.

    One exchange at a time: expect, open, then `go_on` until it is done, `parts`, and `release`
    once they have been added.
    """

    def __init__(
        self,
        group: Group,
        inlets: Mapping[int, Inlet],
        outlets: Mapping[int, Outlet],
        places: Mapping[int, int],
    ) -> None:
        self.group = group
        self.inlets, self.outlets, self._places = inlets, outlets, places
        self.buffer_bytes = sum(inlet.buffer_bytes for inlet in inlets.values())
        self._unsent: list[int] | None = None
        self._taken = False

    @property
    def is_open(self) -> bool:
        """Whether rows have begun to leave."""
        return self._unsent is not None

    def expect(self, num_rows: int) -> None:
        """The next rows will be so many; called before they are computed here."""
        for inlet in self.inlets.values():
            inlet.expect(num_rows)

    def go_on(self, partials: torch.Tensor) -> tuple[bool, Inlet | None]:
        """Send what can be sent: (whether all is done, what has not come)."""
        if self._unsent is None:
            self._unsent = list(self.outlets)
        while self._unsent and self.outlets[self._unsent[0]].can_send():
            self.outlets[self._unsent.pop(0)].send_rows(partials)
        late = [inlet for inlet in self.inlets.values() if not inlet.has_arrived()]
        return not self._unsent and not late, late[0] if late else None

    def parts(self, own: torch.Tensor) -> list[torch.Tensor]:
        """Every rank's partial rows in rank order; good until `release`. Ends the exchange."""
        self._unsent = None
        by_place = {self.group.number: own}
        for link, inlet in self.inlets.items():
            by_place[self._places[link]] = inlet.take_rows()
        self._taken = True
        return [by_place[place] for place in sorted(by_place)]

    def release(self) -> None:
        """Give the slots of the parts back."""
        if self._taken:
            self._taken = False
            for inlet in self.inlets.values():
                inlet.free()
