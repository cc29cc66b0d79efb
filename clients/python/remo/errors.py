"""Errors of Remo as exceptions."""
from __future__ import annotations

import errno as _errno

from ._library import library


class Error(OSError):
    """A call failed. ``errno`` is the code and ``name`` its name; ``sentence`` states the failure,
    its cause and the remedy."""

    def __init__(self, errno: int, sentence: str):
        super().__init__(errno, sentence)
        self.sentence = sentence

    @property
    def name(self) -> str:
        """The name of the code: "EHOSTDOWN"."""
        return library.remo_error_name(self.errno).decode()

    def __str__(self) -> str:
        return f'{self.name}: {self.sentence}'


class Again(Error, BlockingIOError):
    """The call has no effect yet, or only a part of it: repeat it (EAGAIN). The call states the cause."""


class Exists(Error, FileExistsError):
    """An entry or object of this name exists already (EEXIST)."""


class HostDown(Error):
    """A peer that the call depends on has failed or left (EHOSTDOWN)."""


class InvalidArgument(Error, ValueError):
    """An argument is wrong (EINVAL)."""


class NotConnected(Error):
    """A peer has closed the object (ENOTCONN)."""


class NotFound(Error):
    """The entry does not exist (ENOENT)."""


class NotRecoverable(Error):
    """A failed node left the object partly changed, and no node repaired it (ENOTRECOVERABLE)."""


class OwnerDead(Error):
    """The last holder of a lock failed (EOWNERDEAD)."""


class Timeout(Error, TimeoutError):
    """The deadline passed (ETIMEDOUT)."""


_CLASSES = {
    _errno.EAGAIN: Again,
    _errno.EEXIST: Exists,
    _errno.EHOSTDOWN: HostDown,
    _errno.EINVAL: InvalidArgument,
    _errno.ENOENT: NotFound,
    _errno.ENOTCONN: NotConnected,
    _errno.ENOTRECOVERABLE: NotRecoverable,
    _errno.EOWNERDEAD: OwnerDead,
    _errno.ETIMEDOUT: Timeout,
}


def error(code: int, sentence: str | None = None) -> Error:
    """Return the exception for a code (-errno), with the last sentence of this thread unless
    another is given."""
    if sentence is None:
        sentence = library.remo_last_error().decode(errors='replace')
    return _CLASSES.get(-code, Error)(-code, sentence)


def check(code: int) -> int:
    """Raise the exception for a negative code; otherwise return the code."""
    if code < 0:
        raise error(code)
    return code
