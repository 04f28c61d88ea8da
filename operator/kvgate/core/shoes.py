"""What a probe's pod copies from the worker that it stands for, so that both use the network in the same way."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace


@dataclass(frozen=True, order=True)
class Ask:
    """A quantity of a resource that a container asks for; `section` is `requests` or `limits`."""

    section: str
    name: str
    quantity: str


@dataclass(frozen=True)
class Shoes:
    """`annotations` attach networks, `resources` are network devices and never GPUs, `environment` is of UCX and NCCL,
    and written in the spec itself: what comes from elsewhere, or is named like a secret, is left out. `user` and
    `group` are None where the worker names none or is root.

    `left_out` says what of the worker's the probe does without, and why; `off_host_network` is true where that is
    the network itself.
    """

    annotations: tuple[tuple[str, str], ...] = ()
    resources: tuple[Ask, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    user: int | None = None
    group: int | None = None
    capabilities: tuple[str, ...] = ()
    host_network: bool = False
    left_out: tuple[str, ...] = ()
    off_host_network: bool = False

    def allowed(self, capabilities: Collection[str], *, host_network: bool) -> Shoes:
        """Without what the operator's settings do not allow, which is then among what is left out."""
        refused = [f"capability {name}" for name in self.capabilities if name not in capabilities]
        refused += ["host network"] if self.host_network and not host_network else []
        why = tuple(f"{what}, for the operator's settings do not allow it" for what in refused)
        return replace(
            self,
            capabilities=tuple(name for name in self.capabilities if name in capabilities),
            host_network=self.host_network and host_network,
            left_out=self.left_out + why,
            off_host_network=self.host_network and not host_network,
        )

    @property
    def told(self) -> tuple[str, ...]:
        """Each thing that was copied, and each that was not, in words without its content but for what is no secret."""
        return tuple(self._told())

    def _told(self) -> Iterator[str]:
        yield from (f"annotation {key}" for key, _ in self.annotations)
        yield from (f"{ask.section} {ask.name}={ask.quantity}" for ask in self.resources)
        yield from (f"env {name}" for name, _ in self.environment)
        if self.user is not None:
            yield f"user {self.user}"
        if self.group is not None:
            yield f"group {self.group}"
        yield from (f"capability {name}" for name in self.capabilities)
        if self.host_network:
            yield "host network"
        yield from (f"not copied: {what}" for what in self.left_out)


OFF_HOST_NETWORK = (
    "the worker is on the host network, and the probe is not, for probe.allowHostNetwork is false: the operator's "
    "administrator must set it"
)
"""What is said of a probe that may not stand where its worker does."""

BAREFOOT = Shoes()
"""Of a probe that stands for no worker."""
