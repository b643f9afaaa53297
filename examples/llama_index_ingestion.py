"""An ingestion pipeline: chunks with the context of their document, in any vector store, kept up to date."""

from pathlib import Path

from llama_index.core import Document, Settings, VectorStoreIndex
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores import SimpleVectorStore

from llama_index.embeddings.lmk import LMKEmbedding, LMKNodeParser

LIBRARY = Path(__file__).parent / "library"


def read(name):
    # With an id that stays, a changed file replaces what was there.
    return Document(text=(LIBRARY / name).read_text("utf-8"), id_=name, metadata={"file": name})


def main():
    Settings.embed_model = LMKEmbedding()
    parser = LMKNodeParser(embed_model=Settings.embed_model, max_tokens=128)
    pipeline = IngestionPipeline(
        transformations=[parser],  # splits and embeds; needs no embedding behind it
        docstore=SimpleDocumentStore(),
        vector_store=SimpleVectorStore(stores_text=True),
    )
    documents = [read("lease-contract.txt")]
    nodes = pipeline.run(documents=documents)
    print(len(nodes), "nodes, then", len(pipeline.run(documents=documents)), "for the same file")

    index = VectorStoreIndex(nodes)  # or VectorStoreIndex.from_vector_store, for stores that hold texts
    for found in index.as_retriever(similarity_top_k=2).retrieve("When is the rent reviewed?"):
        start, end = found.node.start_char_idx, found.node.end_char_idx
        assert documents[0].text[start:end] == found.text
        print(f"\n{found.node.ref_doc_id}, characters {start}-{end}, score {found.score:.2f}\n{found.text}")


if __name__ == "__main__":
    main()
