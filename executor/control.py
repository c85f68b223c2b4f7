"""The control connection: authenticated by the run's secret, JSON frames of bounded size.

multiprocessing.connection gives the challenge (HMAC, both ways) and the framing; nothing that
comes over it is ever unpickled.
"""

import os
import socket
import threading
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import (
    Client,
    Connection,
    Listener,
    answer_challenge,
    deliver_challenge,
)

from plancc.executor.failures import Closed
from plancc.executor.messages import MAX_FRAME_BYTES, Message, from_frame, to_frame
from plancc.ir.errors import RunFailed

SECRET_BYTES = 32


class Control:
    """One connection. `send` may be called from several threads, `receive` from one."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as view:
            view.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # tokens go at once

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, message: Message) -> None:
        """Raises Closed when nobody is there to read it."""
        frame = to_frame(message)
        try:
            with self._lock:
                self._connection.send_bytes(frame)
        except OSError:
            raise Closed("the control connection is closed") from None

    def receive(self) -> Message:
        """The next message; waits. Raises Closed, or BadFrame for what is no message."""
        try:
            frame = self._connection.recv_bytes(MAX_FRAME_BYTES)
        except (EOFError, OSError):
            raise Closed("the control connection is closed") from None
        return from_frame(frame)

    def has_message(self) -> bool:
        """True if `receive` will not wait for a first byte."""
        try:
            return self._connection.poll()
        except (BrokenPipeError, OSError):
            return True

    def close(self) -> None:
        self._connection.close()


def connect(address: str, port: int, secret: bytes) -> Control:
    """Raises RunFailed saying which address was tried and what happened."""
    try:
        return Control(Client((address, port), authkey=secret))
    except (OSError, EOFError, AuthenticationError) as error:
        reason = str(error) or type(error).__name__
        raise RunFailed(f"control connection to {address}:{port}: {reason}") from None


class Doorway:
    """Listens at an address and lets in who knows the secret; a stranger never holds up others."""

    def __init__(self, address: str, secret: bytes) -> None:
        try:
            self._listener = Listener((address, 0), family="AF_INET", backlog=64)
        except OSError as error:
            raise RunFailed(f"cannot listen on {address}: {error.strerror}") from None
        self._secret = secret
        self._arrived: list[Control] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True, name="doorway").start()

    @property
    def port(self) -> int:
        address = self._listener.address
        assert isinstance(address, tuple)
        return int(address[1])

    def arrivals(self) -> list[Control]:
        """Connections that passed the challenge since the last call."""
        with self._lock:
            arrived, self._arrived = self._arrived, []
        return arrived

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._challenge, args=(connection,), daemon=True).start()

    def _challenge(self, connection: Connection) -> None:
        try:
            deliver_challenge(connection, self._secret)
            answer_challenge(connection, self._secret)
        except (OSError, EOFError, AuthenticationError, ValueError):
            connection.close()
            return
        with self._lock:
            self._arrived.append(Control(connection))
