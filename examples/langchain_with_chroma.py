"""Your own Chroma with LMKEmbeddings, and next to it the vector store that keeps chunks in context."""

from pathlib import Path
from tempfile import TemporaryDirectory

from langchain_chroma import Chroma
from langchain_core.documents import Document

from langchain_lmk import LandmarkTextSplitter, LandmarkVectorStore, LMKEmbeddings

LIBRARY = Path(__file__).parent / "library"
QUESTION = "How often is the rent reviewed?"


def show(title, results):
    print(f"\n=== {title}")
    for document, score in results:
        print(f"{score:.2f}  {' '.join(document.page_content.split())[:160]}")


def main():
    lease = Document(
        (LIBRARY / "lease-contract.txt").read_text("utf-8")[:12_000], metadata={"kind": "contract"}, id="lease"
    )
    embeddings = LMKEmbeddings()

    # Any vector store of LangChain: cut first, each chunk is embedded on its own.
    chunks = LandmarkTextSplitter(embeddings).split_documents([lease])
    plain = Chroma.from_documents(
        chunks, embeddings, collection_name="lease", collection_configuration={"hnsw": {"space": "cosine"}}
    )
    show(f"Chroma, {len(chunks)} chunks", plain.similarity_search_with_relevance_scores(QUESTION, k=2))

    # LandmarkVectorStore: the Document goes in whole, and each chunk's vector knows what is around it.
    with (
        TemporaryDirectory() as folder,
        LandmarkVectorStore(embeddings, persist_directory=folder, collection_name="contracts") as store,
    ):
        store.add_documents([lease])
        show("chunks in context", store.similarity_search_with_score(QUESTION, k=2, filter={"kind": "contract"}))
        show("passages", store.similarity_search_with_score(QUESTION, k=1, per="passage", max_chars=800))
        (document,) = store.similarity_search(QUESTION, k=1, per="document")
        print(f"\nThe document is the one that was added: {document == lease}")


if __name__ == "__main__":
    main()
