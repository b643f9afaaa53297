"""The named errors of the store; every message says what was wrong, the numbers, and the next step."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lmk_embed.errors import LandmarkError

_SHOWN = 20


class StoreError(LandmarkError):
    """The database could not do what was asked, or holds something that no store wrote."""


class StoreNotFoundError(StoreError, LookupError):
    """There is no database at the path, or no such collection in it."""


class NotALandmarkCollectionError(StoreError):
    """The collection exists but something else made it; its vectors cannot be compared with ours."""


class FingerprintMismatchError(StoreError):
    """The collection was made with another model, or with other settings of the same model.

    Attributes
    ----------
    stored, given : str
        Fingerprint the collection or file remembers, and fingerprint of the encoder it was opened with.
    """

    def __init__(self, collection: str, stored: str, given: str, *, file: Path | None = None) -> None:
        if file is None:
            message = (
                f"collection {collection!r} was made with the encoder {stored}, but this encoder is {given}: "
                "their vectors cannot be compared. Open it with the encoder it remembers "
                "(LandmarkStore.open), index the documents again (lmk index --rebuild), "
                "or use another collection."
            )
        else:
            message = (
                f"{file} was exported with the encoder {stored}, but this store has {given}: their vectors cannot "
                "be compared. Import it into a store with the encoder it remembers: "
                "LandmarkEncoder.from_dict(export_info(path).encoder)"
            )
        super().__init__(message)
        self.stored = stored
        self.given = given


class StoreLockedError(StoreError):
    """Another process is writing to the local database."""


class DamagedStoreError(StoreError):
    """Something other than a store has removed or altered rows, so that they cannot be given back exactly."""


class ExportFileError(StoreError):
    """A file is not what ``LandmarkStore.export`` has written, or it is damaged."""


class DocumentError(LandmarkError, ValueError):
    """A document cannot be stored: its id or its text is not usable."""


class DuplicateIdError(DocumentError):
    """The same document id came twice in one call."""


class MetadataError(LandmarkError, ValueError):
    """Metadata holds values that would not come back as they were given.

    Attributes
    ----------
    problems : tuple of str
        One line for every bad key of every document of the batch; the message shows the first twenty.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        shown = [f"  {problem}" for problem in problems[:_SHOWN]]
        if len(problems) > _SHOWN:
            shown.append(f"  … and {len(problems) - _SHOWN} more")
        super().__init__(
            f"{len(problems)} metadata value(s) would not come back as they were given:\n" + "\n".join(shown)
        )
        self.problems = tuple(problems)


class QueryError(LandmarkError, ValueError):
    """A search cannot be run as asked: blank query, wrong dimension, or an impossible setting."""
