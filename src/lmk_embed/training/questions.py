"""Questions with their answers: an optional help for distillation, where there are any."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from lmk_embed.evaluation.data import read_dataset
from lmk_embed.tokens import encodable
from lmk_embed.training.corpus import ROWS, CorpusError, Facts, json_rows, text_files


@dataclass(frozen=True, slots=True)
class Question:
    """A question and where its answer stands.

    Attributes
    ----------
    text : str
    document : int
        Number of the document.
    gold : tuple of (int, int)
        Character spans of the answer in it.
    """

    text: str
    document: int
    gold: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class Questions:
    """Questions about documents.

    Attributes
    ----------
    documents : list of str
    questions : list of Question
    facts : Facts
        Of the pairs.
    """

    documents: list[str]
    questions: list[Question]
    facts: Facts

    @cached_property
    def by_document(self) -> dict[int, list[Question]]:
        """The questions about each document."""
        found: dict[int, list[Question]] = defaultdict(list)
        for question in self.questions:
            found[question.document].append(question)
        return dict(found)


def read_questions(spans: Sequence[Path], pairs: Sequence[Path], sources: Sequence[str] = ()) -> Questions:
    """Read questions whose answers are known.

    Parameters
    ----------
    spans : sequence of Path
        Data sets in BEIR layout with ``spans.jsonl``.
    pairs : sequence of Path
        ``.jsonl`` and ``.jsonl.gz`` files, or folders of them, with ``query`` and ``positive`` in each row: the
        whole of ``positive`` is the answer.
    sources : sequence of str
        Patterns for the ``source`` of a pair; empty: all.

    Returns
    -------
    Questions
        Pairs that cannot be used are counted in its ``facts``.

    Raises
    ------
    CorpusError
        If a path does not exist, or there is no question.
    DatasetError
        If a data set is not well-formed.
    """
    documents: list[str] = []
    questions: list[Question] = []
    facts = Facts()
    for folder in spans:
        dataset = read_dataset(folder)
        numbers = {doc_id: len(documents) + at for at, doc_id in enumerate(dataset.documents)}
        documents += dataset.documents.values()
        for query, gold in dataset.spans.items():
            questions += (
                Question(dataset.queries[query], numbers[doc_id], tuple((int(a), int(b)) for a, b in places))
                for doc_id, places in gold.items()
            )
            facts.sources[dataset.name] += 1
    for source, query, positive in _pairs(pairs, facts):
        if sources and not any(fnmatchcase(source, pattern) for pattern in sources):
            facts.left_out[source] += 1
            continue
        facts.sources[source] += 1
        questions.append(Question(query, len(documents), ((0, len(positive)),)))
        documents.append(positive)
    if not questions:
        raise CorpusError(
            f"no questions in {', '.join(map(str, [*spans, *pairs]))}; pairs have query and positive"
        )
    return Questions(documents, questions, facts)


def _pairs(paths: Sequence[Path], facts: Facts) -> Iterator[tuple[str, str, str]]:
    for path, label in text_files(paths, ROWS) if paths else ():
        for where, row in json_rows(path, label, facts):
            query, positive = row.get("query"), row.get("positive")
            if isinstance(query, str) and isinstance(positive, str) and query.strip() and positive.strip():
                yield str(row.get("source") or label), encodable(query), encodable(positive)
            else:
                facts.bad(where, "no text under 'query' and 'positive'")
