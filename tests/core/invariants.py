"""What holds for every document embedding, whatever the text."""

from __future__ import annotations

import numpy as np

from lmk_embed import DocumentEmbedding


def check(doc: DocumentEmbedding) -> None:
    """Assert I1 (spans) and I3 (document vector), and that every vector is finite and of unit length."""
    source = doc.text
    previous = 0
    covered = 0
    for index, chunk in enumerate(doc.chunks):
        assert chunk.index == index
        assert 0 <= chunk.start < chunk.end <= len(source)
        assert chunk.start >= previous
        assert source[chunk.start : chunk.end] == chunk.text
        assert chunk.text == chunk.text.strip()
        assert chunk.n_tokens >= 1
        assert not source[previous : chunk.start].strip(), "characters between chunks that no chunk holds"
        previous = chunk.end
        covered += chunk.n_tokens
    if doc.chunks and not doc.truncated:
        assert not source[previous:].strip()
    assert doc.n_tokens == covered <= doc.total_tokens
    vectors = np.stack([doc.vector, *(chunk.vector for chunk in doc.chunks)])
    assert np.isfinite(vectors).all()
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    if doc.chunks:
        mean = doc.states.mean(axis=0)
        np.testing.assert_allclose(doc.vector, mean / np.linalg.norm(mean), atol=1e-6)
