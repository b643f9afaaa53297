"""From HuggingFaceEmbedding in three lines; everything else of a program stays as it is."""

from llama_index.core import Document, Settings, VectorStoreIndex

# 1  from llama_index.embeddings.huggingface import HuggingFaceEmbedding
from llama_index.embeddings.lmk import LMKEmbedding, LMKNodeParser

# 2  Settings.embed_model = HuggingFaceEmbedding(model_name="sentence-transformers/all-MiniLM-L6-v2")
Settings.embed_model = LMKEmbedding()  # the same model, bundled; model_name="org/name" for another one

# 3  Settings.node_parser = SentenceSplitter(chunk_size=256)
Settings.node_parser = LMKNodeParser(embed_model=Settings.embed_model)


def main():
    documents = [Document(text="Rent is due on the third working day."), Document(text="Pets are allowed.")]
    index = VectorStoreIndex.from_documents(documents)
    print(index.as_retriever(similarity_top_k=1).retrieve("When do I have to pay?")[0].text)

    # HuggingFaceEmbedding reads 256 tokens of a text and drops the rest without a word.
    start = "alpha " * 400
    first, second = Settings.embed_model.get_text_embedding_batch([start, start + " a totally different ending"])
    print("The end of a long text counts:", first != second)


if __name__ == "__main__":
    main()
