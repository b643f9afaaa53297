"""Tells whether an event loop was free while something else ran."""

from __future__ import annotations

import asyncio
from types import TracebackType


class Heartbeat:
    """Beats every 5 ms as long as the loop is free.

    A blocked loop gets a turn about once a forward pass, a free one several times; so compare ``beats`` with the
    number of passes rather than with a clock, which says little on a busy machine.
    """

    def __init__(self) -> None:
        self.beats = 0

    async def __aenter__(self) -> Heartbeat:
        self._task = asyncio.create_task(self._beat())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.cancel()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(0.005)
            self.beats += 1
