"""What `rewards check` says: phases with their memory and work, what is missing, and what to change."""

from __future__ import annotations

from dataclasses import dataclass, field

from rewards.errors import InputError
from rewards.tables import text_table

GPUS = {"h200": 989e12, "h100": 989e12, "a100": 312e12, "l40s": 362e12, "rtx4090": 165e12, "t4": 65e12}
"""Dense FLOPs a second in 16 bits by the makers' data sheets."""

UTILISATION = 0.4
"""Share of them that is assumed. The host's work and memory traffic are not: times are a lower bound."""

GIB = 2**30


@dataclass(frozen=True)
class Estimate:
    """A phase.

    Attributes:
        name: What happens.
        bytes: The most that is held, everything that stays included.
        note: For what.
        flops: Of an epoch or step; 0 where not counted.
        used: Whether the settings take this way.
    """

    name: str
    bytes: int
    note: str = ""
    flops: float = 0.0
    used: bool = True

    @staticmethod
    def of(name: str, size: float, note: str, flops: float = 0.0, used: bool = True) -> Estimate:
        """With whole bytes."""
        return Estimate(name, int(size), note, flops, used)


@dataclass
class Report:
    """The whole.

    Attributes:
        title: The config.
        parts: Part of the run (policy, reward, audit) -> its phases.
        facts: Lines that are worth knowing.
        missing: What the run would stop for.
        advice: Settings that need less memory, in the order to try.
    """

    title: str
    parts: dict[str, list[Estimate]] = field(default_factory=dict)
    facts: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)

    @property
    def peak(self) -> int:
        """Bytes: the policy's largest phase, beside what the judges hold (weights, and the largest judge's work)."""
        judges = [phases for part, phases in self.parts.items() if part != "policy"]
        held = sum(phases[0].bytes for phases in judges if phases)
        work = max((most(phases) - phases[0].bytes for phases in judges if phases), default=0)
        return most(self.parts.get("policy", [])) + held + work

    def seconds(self, gpu: str) -> float:
        """Seconds an epoch or step of the policy's and the reward's arithmetic on a GPU."""
        if gpu not in GPUS:
            raise InputError(f"unknown GPU {gpu!r}; known: {', '.join(GPUS)}")
        flops = sum(phase.flops for phases in self.parts.values() for phase in phases if phase.used)
        return flops / (GPUS[gpu] * UTILISATION)

    def text(self, memory: int | None, gpu: str) -> str:
        """Everything as a person reads it."""
        rows = [
            [f"{part}: {phase.name}", f"{phase.bytes / GIB:.2f}", "" if phase.used else "not set", phase.note]
            for part, phases in self.parts.items()
            for phase in phases
        ]
        lines = [self.title, text_table(["phase", "GiB", "", "of"], rows), *self.facts]
        lines.append(f"peak of a process: about {self.peak / GIB:.2f} GiB, from shapes alone")
        lines.append(
            f"arithmetic an epoch (or step): {self.seconds(gpu):,.1f} s on {gpu} at {UTILISATION:.0%} of its peak "
            "(an estimate; the host's time is not in it)"
        )
        lines += [f"missing: {what}" for what in self.missing]
        if memory is not None:
            if self.peak <= memory:
                lines.append(f"fits into {memory / GIB:.0f} GiB")
            else:
                lines.append(f"does not fit into {memory / GIB:.0f} GiB; try, in this order: {'; '.join(self.advice)}")
        return "\n".join(lines)


def most(phases: list[Estimate]) -> int:
    """The largest phase of those that the settings take."""
    return max((phase.bytes for phase in phases if phase.used), default=0)


def read_memory(text: str) -> int:
    """Bytes from "24GiB", "80GB" or "16".

    Raises:
        InputError: It is no size.

    Example:
        >>> read_memory("24GiB") == 24 * 2**30, read_memory("80GB")
        (True, 80000000000)
    """
    unit = {"gib": GIB, "gb": 10**9, "mib": 2**20, "": GIB}
    digits = text.strip().rstrip("GgMmIiBb")
    try:
        return int(float(digits) * unit[text.strip()[len(digits) :].lower()])
    except (ValueError, KeyError) as error:
        raise InputError(f"--memory {text!r}: expected a size such as 24GiB") from error
