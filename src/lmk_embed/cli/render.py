"""What commands print for people; results go to standard output, remarks to standard error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from lmk_embed.cli.answers import Answer, short_path
from lmk_embed.cli.indexing import IndexReport

_MOST_NAMED = 20
#: Control characters would move the cursor or worse; each becomes one visible character.
_VISIBLE = {code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"}
_VISIBLE |= dict.fromkeys([0x7F, *range(0x80, 0xA0)], 0xFFFD)


def show_report(report: IndexReport) -> None:
    """Print what an index run did, and to standard error what it left out and why."""
    out, err = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False, soft_wrap=True)
    if report.interrupted:
        err.print("interrupted: what was written is complete; run the same command again to finish")
        return
    files = report.added + report.changed
    out.print(
        f"indexed {files} {_plural(files, 'file')} ({report.added} new, {report.changed} changed), "
        f"{report.unchanged} unchanged, {report.removed} removed"
    )
    if report.chunks:
        speed = report.tokens / report.seconds if report.seconds else 0
        written = f"{report.chunks:,} {_plural(report.chunks, 'chunk')}, {report.tokens:,} tokens"
        out.print(f"{written} in {report.seconds:.1f} s ({speed:,.0f} tokens/s)")
    if report.gone:
        err.print(f"{report.gone} indexed {_plural(report.gone, 'file')} not found any more; --prune removes them")
    reasons = Counter(skip.reason for skip in report.skipped) + Counter(empty=len(report.blank))
    if reasons:
        listed = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common())
        err.print(f"skipped {reasons.total()} {_plural(reasons.total(), 'file')}: {listed}")
        lines = [str(skip) for skip in report.skipped]
        lines += [f"{short_path(path)}: no text in it" for path in report.blank]
        for line in lines[:_MOST_NAMED]:
            err.print(Text(f"  {_one_line(line)}"))
        if len(lines) > _MOST_NAMED:
            err.print(f"  … and {len(lines) - _MOST_NAMED} more")


def show_answers(answers: Sequence[Answer], *, collection_is_empty: bool) -> None:
    """Print hits, the best chunk of each marked: in bold on a terminal, between » and « elsewhere."""
    out, err = Console(highlight=False, soft_wrap=True), Console(stderr=True, highlight=False, soft_wrap=True)
    if not answers:
        reason = "the collection is empty; run lmk index first" if collection_is_empty else "nothing found"
        err.print(reason)
        return
    for rank, answer in enumerate(answers, start=1):
        out.print(Text(f"{rank}. {_place(answer)}", style="bold cyan"))
        for line in _marked(answer, styled=out.is_terminal).split("\n", allow_blank=True):
            out.print(Text("   ") + line if line else line)
        out.print()
    stale = sorted({_one_line(short_path(answer.path)) for answer in answers if answer.stale})
    if stale:
        err.print(
            Text(
                f"changed or gone since they were indexed, so without line numbers: {', '.join(stale)}; "
                "run lmk index again"
            )
        )


def show_facts(facts: Mapping[str, Any]) -> None:
    """Print names and values, settings indented below."""
    out = Console(highlight=False, soft_wrap=True)
    for name, value in facts.items():
        if isinstance(value, Mapping):
            out.print(Text(f"{name}:"))
            for key, setting in value.items():
                out.print(Text(f"  {key:<18} {setting!r}"))
        else:
            out.print(Text(f"{name:<20} {value}"))
    out.print()


def _place(answer: Answer) -> str:
    where = _one_line(short_path(answer.path))
    if answer.line_start is not None:
        last = "" if answer.line_end == answer.line_start else f"-{answer.line_end}"
        where += f":{answer.line_start}{last}"
    if answer.page is not None:
        where += f"  page {answer.page}"
    return f"{where}  characters {answer.start}-{answer.end}  score {answer.score:.3f}"


def _marked(answer: Answer, *, styled: bool) -> Text:
    start, end = answer.best
    shown = answer.shown.translate(_VISIBLE)
    before, best, after = shown[:start], shown[start:end], shown[end:]
    if not styled and (before or after):
        best = f"»{best}«"
    return Text.assemble(before, (best, "bold"), after)


def _one_line(text: str) -> str:
    return text.translate(_VISIBLE).replace("\n", "\u240a")


def _plural(count: int, noun: str) -> str:
    return noun if count == 1 else f"{noun}s"
