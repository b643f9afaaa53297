"""From HuggingFaceEmbeddings in three lines; everything else of a program stays as it is."""

from langchain_core.vectorstores import InMemoryVectorStore

# 1  from langchain_huggingface import HuggingFaceEmbeddings
from langchain_lmk import LMKEmbeddings

# 2  embeddings = HuggingFaceEmbeddings(model_name="sentence-transformers/all-MiniLM-L6-v2")
embeddings = LMKEmbeddings()  # the same model, bundled; model="org/name" for another one

# 3  Documents that were embedded before are embedded again, since their vectors differ. With LangChain's index():
#    index(documents, record_manager, store, cleanup="full", key_encoder=embeddings.document_key)


def main():
    store = InMemoryVectorStore.from_texts(
        ["Rent is due on the third working day.", "Pets are allowed."], embeddings
    )
    print(store.similarity_search("When do I have to pay?", k=1)[0].page_content)

    # HuggingFaceEmbeddings reads 256 tokens of a text and drops the rest without a word.
    start = "alpha " * 400
    first, second = embeddings.embed_documents([start, start + " a totally different ending"])
    print("The end of a long text counts:", first != second)


if __name__ == "__main__":
    main()
