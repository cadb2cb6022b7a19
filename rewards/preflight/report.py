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
class Knob:
    """A setting that a phase's memory is linear in.

    Attributes:
        setting: Its key.
        value: Now.
        fixed: Bytes that stay, whatever its value.
        partner: The key of a setting that must grow as this one shrinks, so that a step learns from as much; or None.
        partner_value: Now.
    """

    setting: str
    value: int
    fixed: float
    partner: str | None = None
    partner_value: int = 1

    def largest(self, now: int, allowed: int) -> tuple[str, int] | None:
        """The largest value with which a phase of `now` bytes fits into `allowed`, and its bytes then; None if 1 does
        not. Where there is a partner the product of both stays the same."""
        each = (now - self.fixed) / self.value
        for value in range(self.value - 1, 0, -1):
            if (self.partner and self.value % value) or self.fixed + each * value > allowed:
                continue
            partner = f" {self.partner}={self.partner_value * self.value // value}" if self.partner else ""
            return f"{self.setting}={value}{partner}", int(self.fixed + each * value)
        return None


@dataclass(frozen=True)
class Estimate:
    """A phase.

    Attributes:
        name: What happens.
        bytes: The most that is held, everything that stays included.
        note: For what.
        flops: Of an epoch or step; 0 where not counted.
        used: Whether the settings take this way.
        knob: The setting that makes it smaller.
    """

    name: str
    bytes: int
    note: str = ""
    flops: float = 0.0
    used: bool = True
    knob: Knob | None = None

    @staticmethod
    def of(
        name: str, size: float, note: str, flops: float = 0.0, used: bool = True, knob: Knob | None = None
    ) -> Estimate:
        """With whole bytes."""
        return Estimate(name, int(size), note, flops, used, knob)


@dataclass
class Report:
    """The whole.

    Attributes:
        title: The config.
        parts: Part of the run (policy, reward, audit) -> its phases.
        beside: Bytes that the policy holds while a judge works.
        checkpointing: The setting that recomputes activations.
        facts: Lines that are worth knowing.
        missing: What the run would stop for.
        failed: What could not be checked, and why.
        smaller: What else needs less memory, where the settings of the phases are not enough.
    """

    title: str
    parts: dict[str, list[Estimate]] = field(default_factory=dict)
    beside: int = 0
    checkpointing: str = "trainer.gradient_checkpointing=true"
    facts: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    smaller: list[str] = field(default_factory=list)

    @property
    def judges(self) -> tuple[int, int]:
        """Bytes of all judges' weights, and of the largest judge's work."""
        judges = [phases for part, phases in self.parts.items() if part != "policy" and phases]
        held = sum(phases[0].bytes for phases in judges)
        return held, max((most(phases) - phases[0].bytes for phases in judges), default=0)

    @property
    def peak(self) -> int:
        """Bytes: the judges' weights, and the policy's largest phase or what stays of it beside the largest judge's
        work."""
        held, work = self.judges
        return held + max(most(self.parts.get("policy", [])), self.beside + work)

    def changes(self, memory: int) -> tuple[list[str], int]:
        """Settings with which the run fits into so many bytes, the cheapest first, and its peak then.

        The peak is above `memory` where no value of the phases' settings is enough.
        """
        held, work = self.judges
        found: list[str] = []
        phases = [phase for phase in self.parts.get("policy", []) if phase.used]
        recomputed = [phase for phase in self.parts.get("policy", []) if not phase.used and "recomputed" in phase.name]
        sizes = []
        for phase in phases:
            size = phase.bytes
            if size + held > memory and phase.name == "update" and recomputed:
                found.append(self.checkpointing)
                phase, size = recomputed[0], recomputed[0].bytes
            if size + held > memory and phase.knob is not None:
                change = phase.knob.largest(size, memory - held)
                if change is not None:
                    found.append(change[0])
                    size = change[1]
            sizes.append(size)
        return found, held + max(self.beside + work, *sizes, 0)

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
        lines += [f"could not be checked: {what}" for what in self.failed]
        if memory is not None:
            lines.append(f"fits into {memory / GIB:.1f} GiB" if self.peak <= memory else self._advice(memory))
        return "\n".join(lines)

    def _advice(self, memory: int) -> str:
        changes, peak = self.changes(memory)
        told = f"does not fit into {memory / GIB:.1f} GiB"
        if changes:
            told += f"; with {' '.join(changes)} it takes about {peak / GIB:.2f} GiB"
        if peak > memory:
            told += f"; what else needs less: {'; '.join(self.smaller)}; or a GPU of {peak / GIB:.0f} GiB"
        return told


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
