"""LandmarkTextSplitter: the encoder's chunks as plain Documents, for stores of one's own."""

from __future__ import annotations

import copy
from typing import Any

from langchain_core.documents import Document
from langchain_text_splitters import TextSplitter

from langchain_lmk.embeddings import LMKEmbeddings


class LandmarkTextSplitter(TextSplitter):
    """Cuts texts where the encoder would, without running the model.

    The chunks are measured in tokens of the model that is going to embed them, so none of them is truncated. What
    embeds them afterwards sees each on its own; vectors in context are what ``LandmarkVectorStore`` has.

    Parameters
    ----------
    embeddings : LMKEmbeddings, optional
        Says how to cut: ``LMKEmbeddings(granularity=128, boundaries="markdown")``. The bundled model unless given.

    Examples
    --------
    >>> splitter = LandmarkTextSplitter(LMKEmbeddings(granularity=8))
    >>> for chunk in splitter.create_documents(["Rent is due monthly. Pets are allowed."]):
    ...     print(chunk.metadata, chunk.page_content)
    {'start_index': 0, 'end_index': 20} Rent is due monthly.
    {'start_index': 21, 'end_index': 38} Pets are allowed.
    """

    def __init__(self, embeddings: LMKEmbeddings | None = None) -> None:
        super().__init__(chunk_overlap=0, add_start_index=True, strip_whitespace=False)
        self._embeddings = embeddings or LMKEmbeddings()

    def split_text(self, text: str) -> list[str]:
        """Return the chunks of a text."""
        return [text[start:end] for start, end in self._embeddings.encoder.spans(text)]

    def create_documents(self, texts: list[str], metadatas: list[dict[Any, Any]] | None = None) -> list[Document]:
        """Cut texts into Documents; ``split_documents`` and ``transform_documents`` come here, too.

        Parameters
        ----------
        texts : list of str
        metadatas : list of dict, optional
            One for each text; each of its Documents gets a copy.

        Returns
        -------
        list of Document
            ``page_content == text[start_index:end_index]``, with both numbers in the metadata.
        """
        return [
            Document(text[start:end], metadata={**copy.deepcopy(metadata), "start_index": start, "end_index": end})
            for text, metadata in zip(texts, metadatas or [{}] * len(texts), strict=True)
            for start, end in self._embeddings.encoder.spans(text)
        ]
