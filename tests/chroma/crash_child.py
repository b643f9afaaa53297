"""What the crash tests run in processes of their own: to be killed, or to run out of disk."""

import os
import random
import resource
import signal
import sys
import time
from pathlib import Path

import chromadb
import chromadb.api.rust
from chroma_fakes import FakeEncoder, sample_text

from chroma_lmk import LandmarkStore, settings, transfer
from chroma_lmk.session import Session
from lmk_embed.results import Document

NAMES = [f"doc-{number}" for number in range(24)]
FINAL = 1_000_000
SEED = int(os.environ.get("LMK_SEED", "7"))  # runs with different seeds are different runs


def version(name: str, round_: int) -> Document:
    """The state of a document in a round: another text of another length, other metadata keys."""
    seed = hash((int(name.split("-")[1]), round_)) % 10_000_000
    sizes = random.Random(seed)
    metadata = {f"key{sizes.randrange(4)}": round_, "tags": ["x"] * sizes.randrange(1, 3)}
    return Document(name, sample_text(seed, sizes.choice([3, 40, 150, 300])), metadata)


def final_documents() -> list[Document]:
    """What has to be there in the end."""
    return [version(name, FINAL) for name in NAMES[:20]]


def work(path: str, round_: int) -> None:
    """One round: replace most documents, delete some."""
    with LandmarkStore(path, "lmk", FakeEncoder(), document_vectors=True) as store:
        rng = random.Random(f"{SEED} {round_}")
        for _ in range(6):
            store.add(version(name, round_ * 100 + rng.randrange(100)) for name in rng.sample(NAMES, 12))
            store.delete(rng.sample(NAMES, 5))
            store.add(rng.sample(final_documents(), 6), skip_unchanged=True)


def kills(path: str, count: int) -> None:
    """Start processes and kill each after a random time, until so many were killed; then put right what is there.

    Prints how many were killed before they had finished, and how many of those while Chroma saved its index.
    """
    # Small numbers, so that documents take several calls and the index is saved often.
    settings._SYNC_THRESHOLD = 60
    Session.limit = lambda self: 25
    rng = random.Random(SEED)
    killed = saving = 0
    for round_ in range(2 * count):
        if killed == count:
            break
        child = os.fork()  # the modules are loaded, but no database is open yet
        if child == 0:
            work(path, round_)
            os._exit(0)
        time.sleep(rng.uniform(0.02, 0.6))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        killed += os.WIFSIGNALED(status)
        saving += any(Path(path).glob("lmk-recovery/*.json"))
    with LandmarkStore(path, "lmk", FakeEncoder(), document_vectors=True) as store:
        store.add(final_documents(), skip_unchanged=True)
        store.delete(NAMES[20:])
    sys.stdout.write(f"{killed} {saving}\n")


def full_disk(path: str) -> None:
    """Add documents until no file may grow any more."""
    Path(path).mkdir()
    limit = 1_800_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    with LandmarkStore(path, "lmk", FakeEncoder()) as store:
        try:
            for first in range(0, 80, 5):
                store.add([Document(f"d{n}", sample_text(n, 400)) for n in range(first, first + 5)])
        except Exception as error:
            sys.stdout.write(f"{type(error).__name__}: {error}\n")


def imports(path: str, file: str, count: int) -> None:
    """Import a file in small pieces, in processes that are killed after a random time; at last, all of it."""
    transfer.WRITE_ROWS = 30
    settings._SYNC_THRESHOLD = 60
    Session.limit = lambda self: 25
    rng = random.Random(SEED)
    killed = 0
    for _ in range(count):
        child = os.fork()
        if child == 0:
            with LandmarkStore(path, "lmk", FakeEncoder()) as store:
                store.import_(file)
            os._exit(0)
        time.sleep(rng.uniform(0.02, 0.3))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        killed += os.WIFSIGNALED(status)
    with LandmarkStore(path, "lmk", FakeEncoder()) as store:
        store.import_(file)
    sys.stdout.write(f"{killed}\n")


def export(path: str, file: str) -> None:
    """Begin an export and say so, then never finish."""

    def begun(*_: object) -> None:
        sys.stdout.write("begun\n")
        sys.stdout.flush()
        time.sleep(60)

    transfer._record_batch = begun
    with LandmarkStore(path, "lmk", FakeEncoder()) as store:
        store.export(file)


def plain_count(path: str) -> None:
    """Open the collection without this package; damaged files make Chroma fail, or even crash."""
    sys.stdout.write(f"{chromadb.PersistentClient(path).get_collection('lmk', embedding_function=None).count()}\n")


if __name__ == "__main__":
    if sys.argv[1] == "kills":
        kills(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1] == "imports":
        imports(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    elif sys.argv[1] == "export":
        export(sys.argv[2], sys.argv[3])
    elif sys.argv[1] == "full-disk":
        full_disk(sys.argv[2])
    else:
        plain_count(sys.argv[2])
