"""Where a server is in its life: loading, ready, draining or dead."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from lora_sdk.serve.errors import unavailable


class State(str, Enum):
    """`dead`: the boards no longer work; the server answers, but only a restart helps."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    DEAD = "dead"


@dataclass
class Lifecycle:
    """The state, and bytes placed on the boards so far of bytes in all."""

    state: State = State.LOADING
    loaded_bytes: int = 0
    total_bytes: int = 0

    def progress(self, done: int, total: int) -> None:
        """Called while weights load, from the loading thread."""
        self.loaded_bytes, self.total_bytes = done, total

    def ready(self) -> None:
        """The engine takes requests, unless a drain began while it loaded."""
        if self.state is State.LOADING:
            self.state = State.READY

    def drain(self) -> None:
        """No further request is taken."""
        if self.state is not State.DEAD:
            self.state = State.DRAINING

    def die(self) -> None:
        """The boards no longer work."""
        self.state = State.DEAD

    def check_ready(self) -> None:
        """ApiError 503 where requests are not taken."""
        if self.state is not State.READY:
            raise unavailable(_WHY[self.state])

    def as_dict(self) -> dict[str, object]:
        """For `/health` and `/ready`."""
        return {
            "status": self.state.value,
            "loaded_bytes": self.loaded_bytes,
            "total_bytes": self.total_bytes,
        }


_WHY = {
    State.LOADING: "the model is loading",
    State.DRAINING: "the server is shutting down",
    State.DEAD: "the boards no longer work; the server must be restarted",
}
