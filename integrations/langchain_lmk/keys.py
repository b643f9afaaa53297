"""Keys for LangChain's indexing API that notice a change of model."""

from __future__ import annotations

import hashlib

from langchain_core.documents import Document

from chroma_lmk import document_digest
from lmk_embed import Document as StoredDocument


def document_key(fingerprint: str, document: Document) -> str:
    """Return a key that is equal exactly for equal text, equal metadata and the same vectors.

    LangChain's own keys leave out the model, so that ``index`` skips everything after the model has changed.

    Parameters
    ----------
    fingerprint : str
        Of the encoder.
    document : Document
        Its id does not count.

    Returns
    -------
    str
        64 hexadecimal digits.

    Examples
    --------
    >>> document = Document("a text", metadata={"source": "a.txt"})
    >>> document_key("model 1", document) == document_key("model 2", document)
    False
    """
    digest = document_digest(StoredDocument("", document.page_content, document.metadata))
    return hashlib.sha256(f"{fingerprint}\n{digest}".encode()).hexdigest()
