"""Landmark embeddings in LangChain: embeddings, vector store, retriever and text splitter."""

from lmk_embed.errors import missing_extra

try:
    from langchain_lmk.embeddings import LMKEmbeddings
    from langchain_lmk.results import SPAN_KEY, Span, span
    from langchain_lmk.retrievers import LandmarkRetriever
    from langchain_lmk.text_splitters import LandmarkTextSplitter
    from langchain_lmk.vectorstores import LandmarkVectorStore
except ModuleNotFoundError as error:
    package = str(error.name).partition(".")[0]
    if package not in ("langchain_core", "langchain_text_splitters"):
        raise
    raise missing_extra(package.replace("_", "-"), "langchain") from error

__all__ = [
    "SPAN_KEY",
    "LMKEmbeddings",
    "LandmarkRetriever",
    "LandmarkTextSplitter",
    "LandmarkVectorStore",
    "Span",
    "span",
]
