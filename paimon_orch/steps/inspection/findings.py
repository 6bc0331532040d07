"""What a check finds."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as the format says. ``rule`` is a short name of what is broken."""

    rule: str
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.where}{': ' if self.where else ''}{self.text}"


@dataclass(slots=True)
class Findings:
    """Collects findings, each once: many versions share one damaged file."""

    collected: list[Finding] = field(default_factory=list)
    _known: set[tuple[str, str]] = field(default_factory=set)

    def add(self, rule: str, where: object, text: str) -> None:
        """Remember a finding."""
        if (rule, text) not in self._known:
            self._known.add((rule, text))
            self.collected.append(Finding(rule, str(where), text))
