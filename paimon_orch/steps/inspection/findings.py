"""The findings of a check."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Finding:
    """A violation of the format."""

    rule: str
    """The short name of the invariant that is violated."""
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.where}{': ' if self.where else ''}{self.text}"


@dataclass(slots=True)
class Findings:
    """Collects findings without duplicates; several versions may share a damaged file."""

    collected: list[Finding] = field(default_factory=list)
    _seen: set[tuple[str, str]] = field(default_factory=set)

    def add(self, rule: str, where: object, text: str) -> None:
        """Add a finding unless it was added before."""
        if (rule, text) not in self._seen:
            self._seen.add((rule, text))
            self.collected.append(Finding(rule, str(where), text))

    def discard_from(self, start: int) -> None:
        """Remove the findings from an index on; they can be added again."""
        self._seen.difference_update((f.rule, f.text) for f in self.collected[start:])
        del self.collected[start:]
