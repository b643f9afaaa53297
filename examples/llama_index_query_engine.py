"""A query engine over long documents: no splitter, passages in context, citations to the character."""

import tempfile
from pathlib import Path

from llama_index.core import PromptTemplate
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine

from chroma_lmk import LandmarkStore
from llama_index.embeddings.lmk import LMKRetriever
from lmk_embed import Document, LandmarkEncoder

LIBRARY = Path(__file__).parent / "library"
QUESTION = "How much of a training course must I pay back if I resign eighteen months after it ended?"


def main():
    handbook = (LIBRARY / "staff-handbook.md").read_text("utf-8")
    with (
        tempfile.TemporaryDirectory() as folder,
        LandmarkStore(folder, "library", LandmarkEncoder.from_pretrained()) as store,
    ):
        # A document may be as long as it likes: this one has some 8,000 tokens.
        store.add(
            [
                Document("handbook", handbook, {"kind": "rules"}),
                Document("notice", "The canteen is closed on Friday.", {"kind": "news"}),
            ]
        )
        engine = RetrieverQueryEngine.from_args(
            LMKRetriever(store, per="passage", similarity_top_k=1, max_chars=600),
            llm=MockLLM(),  # stands for a language model: it answers with what it is asked
            text_qa_template=PromptTemplate("{query_str}\n\n{context_str}"),
        )
        answer = engine.query(QUESTION)
        print(answer)
        print("\nSources:")
        for source in answer.source_nodes:
            node = source.node
            place = f"characters {node.start_char_idx}-{node.end_char_idx}"
            print(f"  {node.ref_doc_id}, {place}, score {source.score:.2f}")


if __name__ == "__main__":
    main()
