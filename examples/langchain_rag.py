"""A RAG chain over long documents: no splitting, passages in context, citations to the character."""

from pathlib import Path

from langchain_core.documents import Document
from langchain_core.language_models.chat_models import SimpleChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough

from langchain_lmk import LandmarkRetriever, LandmarkVectorStore, LMKEmbeddings, span

LIBRARY = Path(__file__).parent / "library"
QUESTION = "How much of a training course must I pay back if I resign eighteen months after it ended?"


class QuotingChatModel(SimpleChatModel):
    """Stands for a chat model: it answers with the first passage it is given."""

    @property
    def _llm_type(self):
        return "quoting"

    def _call(self, messages, stop=None, run_manager=None, **kwargs):
        passages = messages[-1].content.split("\n\n---\n\n")
        return f"The documents say: {passages[1]}"


def join(documents):
    return "\n\n---\n\n".join(document.page_content for document in documents)


def main():
    # A Document may be as long as it likes: this one has some 8,000 tokens.
    documents = [
        Document((LIBRARY / "staff-handbook.md").read_text("utf-8"), id="handbook", metadata={"kind": "rules"}),
        Document("The canteen is closed on Friday.", id="notice", metadata={"kind": "news"}),
    ]
    store = LandmarkVectorStore.from_documents(documents, LMKEmbeddings())

    retriever = LandmarkRetriever(store=store.store, k=3, max_chars=600)
    prompt = ChatPromptTemplate.from_template("Answer {question}\n\n---\n\n{context}")
    chain = (
        {"context": retriever | join, "question": RunnablePassthrough()}
        | prompt
        | QuotingChatModel()
        | StrOutputParser()
    )
    print(chain.invoke(QUESTION))

    print("\nSources:")
    for passage in retriever.invoke(QUESTION):
        place = span(passage)
        print(f"  {place.doc_id}, characters {place.start}-{place.end}, score {place.score:.2f}")


if __name__ == "__main__":
    main()
