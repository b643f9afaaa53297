"""Rows to train on with labels: JSON lines, data sets in BEIR layout, folders of Hugging Face ``datasets``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeGuard

from lmk_embed.evaluation.data import Dataset, read_dataset
from lmk_embed.tokens import encodable
from lmk_embed.training.corpus import ROWS, CorpusError, Facts, json_rows, text_files

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """What was read.

    Attributes
    ----------
    rows : list of dict
        All with the same keys, in the order that losses of Sentence Transformers expect.
    facts : Facts
        What was left out, too.
    """

    rows: Rows
    facts: Facts


def read_pairs(paths: Sequence[Path], sources: Sequence[str] = ()) -> Labelled:
    """Read queries with a text that answers each, and texts that do not.

    Parameters
    ----------
    paths : sequence of Path
        JSON rows have ``query``, ``positive`` and optionally ``negatives``, a list of texts. In a BEIR data set
        each relevant document makes a row.
    sources : sequence of str
        Patterns for the ``source`` of a row; empty: all.

    Returns
    -------
    Labelled
    --------
        ``query``, ``positive``, ``negative_1``, …; as many negatives as every row has.

    Raises
    ------
    CorpusError
        If a path does not exist, or no row is left.
    """
    facts = Facts()
    found: list[tuple[str, str, list[str]]] = []
    for where, source, row in _rows(paths, sources, facts):
        query, positive, negatives = row.get("query"), row.get("positive"), row.get("negatives") or []
        if not (_text(query) and _text(positive)):
            facts.bad(where, "no text under 'query' and 'positive'")
        elif not (isinstance(negatives, list) and all(map(_text, negatives))):
            facts.bad(where, "'negatives' is not a list of texts")
        else:
            facts.sources[source] += 1
            found.append((encodable(query), encodable(positive), [encodable(each) for each in negatives]))
    for dataset in _datasets(paths):
        for query_id, grades in dataset.qrels.items():
            relevant = [doc_id for doc_id, grade in grades.items() if grade > 0]
            facts.sources[dataset.name] += len(relevant)
            found += ((dataset.queries[query_id], dataset.documents[doc_id], []) for doc_id in relevant)
    _some(found, paths, "query and positive", facts)
    shared = min(len(negatives) for _, _, negatives in found)
    most = max(len(negatives) for _, _, negatives in found)
    if shared < most:
        facts.bad("negatives", f"rows have {shared} to {most} negatives, {shared} of each are used")
    return Labelled(
        [
            {"query": query, "positive": positive}
            | {f"negative_{number}": text for number, text in enumerate(negatives[:shared], start=1)}
            for query, positive, negatives in found
        ],
        facts,
    )


def read_spans(paths: Sequence[Path], sources: Sequence[str] = (), characters: int = 8000) -> Labelled:
    """Read queries with the place in a document that answers each.

    Parameters
    ----------
    paths : sequence of Path
        JSON rows have ``query``, ``document`` and ``span``, two character offsets; data sets in BEIR layout have
        ``spans.jsonl``.
    sources : sequence of str
    characters : int
        Of a longer document, so much around the answer is read.

    Returns
    -------
    Labelled
    --------
        ``query``, ``document``, and ``label``, the span.

    Raises
    ------
    CorpusError
        If a path does not exist, or no row is left.
    """
    facts = Facts()
    rows: Rows = []
    for where, source, row in _rows(paths, sources, facts):
        query, document, span = row.get("query"), row.get("document"), row.get("span")
        if not (_text(query) and _text(document)):
            facts.bad(where, "no text under 'query' and 'document'")
        elif not _is_span(span, len(document)):
            facts.bad(where, "'span' is not two offsets within the document")
        elif not document[span[0] : span[1]].strip():
            facts.bad(where, "'span' is blank")
        else:
            facts.sources[source] += 1
            rows.append(_around(encodable(query), encodable(document), (span[0], span[1]), characters))
    for dataset in _datasets(paths):
        for query_id, gold in dataset.spans.items():
            for doc_id, places in gold.items():
                facts.sources[dataset.name] += len(places)
                text = dataset.documents[doc_id]
                rows += (_around(dataset.queries[query_id], text, place, characters) for place in places)
    _some(rows, paths, "query, document and span", facts)
    return Labelled(rows, facts)


def read_scores(paths: Sequence[Path], group_size: int, sources: Sequence[str] = ()) -> Labelled:
    """Read queries with candidates that a teacher has scored.

    Parameters
    ----------
    paths : sequence of Path
        JSON rows have ``query``, ``candidates``, a list of texts, and ``scores``, as many numbers.
    group_size : int
        Candidates of a row that are used, from its first; rows with fewer are left out.
    sources : sequence of str

    Returns
    -------
    Labelled
    --------
        ``query``, ``candidate_1``, …, and ``label``, the scores.

    Raises
    ------
    CorpusError
        If a path does not exist, or no row is left.
    """
    facts = Facts()
    rows: Rows = []
    for where, source, row in _rows(paths, sources, facts):
        query, candidates, scores = row.get("query"), row.get("candidates"), row.get("scores")
        if not (_text(query) and isinstance(candidates, list) and all(map(_text, candidates))):
            facts.bad(where, "no text under 'query', or 'candidates' is not a list of texts")
        elif not (isinstance(scores, list) and len(scores) == len(candidates) and all(map(_number, scores))):
            facts.bad(where, "'scores' is not a list of one number for each candidate")
        elif len(candidates) < group_size:
            facts.bad(where, f"fewer than {group_size} candidates")
        else:
            facts.sources[source] += 1
            texts = {f"candidate_{n}": encodable(candidates[n - 1]) for n in range(1, group_size + 1)}
            rows.append({"query": encodable(query), **texts, "label": [float(s) for s in scores[:group_size]]})
    _some(rows, paths, "query, candidates and scores", facts)
    return Labelled(rows, facts)


def _rows(
    paths: Sequence[Path], sources: Sequence[str], facts: Facts
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield place, source and content of each row of an asked-for source."""
    for path in paths:
        if _is_beir(path):
            continue
        for where, label, row in _arrow_rows(path) if _is_arrow(path) else _json_rows(path, facts):
            source = str(row.get("source") or label)
            if sources and not any(fnmatchcase(source, pattern) for pattern in sources):
                facts.left_out[source] += 1
            else:
                yield where, source, row


def _json_rows(path: Path, facts: Facts) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for file, label in text_files([path], ROWS):
        for where, row in json_rows(file, label, facts):
            yield where, label, row


def _is_arrow(path: Path) -> bool:
    return any((path / name).is_file() for name in ("state.json", "dataset_dict.json"))


def _arrow_rows(path: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    from datasets import DatasetDict, load_from_disk

    stored = load_from_disk(str(path))
    if isinstance(stored, DatasetDict):
        if "train" not in stored:
            raise CorpusError(f"{path} has no split 'train', only {', '.join(map(str, stored))}")
        stored = stored["train"]
    for number, row in enumerate(stored):
        yield f"{path}, row {number}", path.name, dict(row)


def _is_beir(path: Path) -> bool:
    return any((path / f"corpus{suffix}").is_file() for suffix in ROWS)


def _datasets(paths: Sequence[Path]) -> Iterator[Dataset]:
    return (read_dataset(path) for path in paths if _is_beir(path))


def _text(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and bool(value.strip())


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < float("inf")


def _is_span(span: Any, length: int) -> TypeGuard[Sequence[int]]:
    return (
        isinstance(span, list | tuple)
        and len(span) == 2
        and all(isinstance(at, int) and not isinstance(at, bool) for at in span)
        and 0 <= span[0] < span[1] <= length
    )


def _around(query: str, document: str, span: tuple[int, int], characters: int) -> dict[str, Any]:
    """Cut a long document down to the surroundings of an answer, at white space where there is any."""
    start, end = int(span[0]), int(span[1])
    first = 0
    if len(document) > characters:
        first = max(0, min(start - (characters - (end - start)) // 2, len(document) - characters))
        first = min(first, start)
        if first:
            first = min(document.find(" ", first, start) + 1 or first, start)
    text = document[first : max(first + characters, end)]
    return {"query": query, "document": text, "label": [start - first, end - first]}


def _some(rows: Sequence[Any], paths: Sequence[Path], needed: str, facts: Facts) -> None:
    if not rows:
        said = "; ".join(f"{count} rows: {problem}" for problem, count in facts.problems.most_common(3))
        others = f"{facts.left_out.total()} rows are of other sources" if facts.left_out else ""
        reasons = "; ".join(filter(None, [said, others]))
        raise CorpusError(
            f"nothing to train on in {', '.join(map(str, paths))}: rows have {needed}"
            + (f" ({reasons})" if reasons else "")
        )
