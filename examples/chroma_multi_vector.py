"""Many vectors a document in Chroma: chunks in context, passages, documents, any coarser size; exact spans."""

from pathlib import Path
from tempfile import TemporaryDirectory

import chromadb

from chroma_lmk import FingerprintMismatchError, LandmarkStore, LMKEmbeddingFunction
from lmk_embed import Document, LandmarkEncoder

LIBRARY = Path(__file__).parent / "library"
KINDS = {"staff-handbook.md": "rules", "lease-contract.txt": "contract"}
QUESTION = "How much of a training course must I pay back if I resign eighteen months after it ended?"


def read(name):
    return (LIBRARY / name).read_text("utf-8")


def show(title, hits):
    print(f"\n=== {title}")
    for hit in hits:
        assert read(hit.doc_id)[hit.start : hit.end] == hit.text  # a span is a place in the file itself
        print(f"{hit.score:.2f}  {hit.doc_id}, characters {hit.start}-{hit.end}")
        print(f"      {' '.join(hit.text.split())[:160]}")


def many_vectors(folder, encoder):
    # Documents go in whole: each is read once, and its chunks become rows with vectors that know their context.
    with LandmarkStore(folder, "library", encoder) as store:
        store.add(Document(name, read(name), {"kind": kind}) for name, kind in KINDS.items())
        print(store.count("document"), "documents,", store.count("chunk"), "vectors")

    with LandmarkStore.open(folder, "library") as store:  # another day: the collection remembers its encoder
        show("chunks", store.search(QUESTION, k=2))
        show("a passage", store.search(QUESTION, k=1, per="passage", max_chars=600))
        show("documents, each with its best chunk", store.search(QUESTION, k=2, per="document"))
        show("contracts only", store.search("When is the rent reviewed?", k=1, where={"kind": "contract"}))
        # Coarser spans are computed from the vectors that are stored; nothing is embedded again.
        show("spans of up to 256 tokens", store.search(QUESTION, k=2, max_tokens=256))

    try:
        LandmarkStore(folder, "library", LandmarkEncoder.from_pretrained(granularity=32))
    except FingerprintMismatchError as error:
        print(f"\n=== other settings are refused\n{error}")


def one_vector_each(encoder):
    # Chroma's own calls: one vector for each text that is added, whatever its length.
    collection = chromadb.EphemeralClient().create_collection(
        "chapters", embedding_function=LMKEmbeddingFunction.from_encoder(encoder)
    )
    chapters = read("staff-handbook.md").split("\n## ")[1:]
    collection.add(ids=[chapter.splitlines()[0] for chapter in chapters], documents=chapters)
    found = collection.query(query_texts=["What happens when I leave the company?"], n_results=2)
    print("\n=== collection.query\n" + "\n".join(found["ids"][0]))


def main():
    encoder = LandmarkEncoder.from_pretrained()
    with TemporaryDirectory() as folder:
        many_vectors(folder, encoder)
    one_vector_each(encoder)


if __name__ == "__main__":
    main()
