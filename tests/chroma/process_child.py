"""A process with a store of its own: reads one command a line, answers one JSON value a line."""

import json
import sys

import chromadb
from chroma_fakes import FakeEncoder

from chroma_lmk import LandmarkStore
from lmk_embed.results import Document


def connect(target: str) -> chromadb.ClientAPI:
    if target.isdecimal():
        return chromadb.HttpClient(host="127.0.0.1", port=int(target))
    return chromadb.PersistentClient(target)


def text(name: str, words: int = 40) -> str:
    return " ".join(f"{name}x{number}" for number in range(words))


def run(store: LandmarkStore, command: str, arguments: list) -> object:
    match command:
        case "add":
            prefix, first, last = arguments
            return store.add(Document(f"{prefix}{n}", text(f"{prefix}{n}")) for n in range(first, last)).added
        case "one-by-one":
            prefix, first, last = arguments
            return sum(
                store.add([Document(f"{prefix}{n}", text(f"{prefix}{n}"))]).added for n in range(first, last)
            )
        case "replace":
            (name,) = arguments
            return store.add([Document(name, text(f"new{name}"))]).replaced
        case "delete":
            return store.delete(arguments)
        case "count":
            return store.count()
        case "find":
            # Names of the documents whose chunks are all found by their own vectors.
            return [name for name in arguments if found(store, name, text(name))]
        case "get":
            return [document.text for document in store.get(arguments)]
    raise ValueError(command)


def found(store: LandmarkStore, name: str, content: str) -> bool:
    chunks = store.encoder.encode_document(content).chunks
    hits = [store.search(chunk.vector, k=1) for chunk in chunks]
    return all(
        hit and hit[0].doc_id == name and hit[0].text == chunk.text
        for hit, chunk in zip(hits, chunks, strict=True)
    )


def main() -> None:
    client = connect(sys.argv[1])
    store = LandmarkStore(client, sys.argv[2], FakeEncoder())
    say("ready")
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        if command == "reopen":  # the client, and the index it has in memory, stay
            store.close()
            store = LandmarkStore(client, sys.argv[2], FakeEncoder())
            say("reopened")
            continue
        try:
            say(run(store, command, arguments))
        except Exception as error:
            say({"error": type(error).__name__, "message": str(error)})


def say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
