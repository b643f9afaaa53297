"""The named errors of the package; every message says what was wrong, the numbers, and the next step."""


class LandmarkError(Exception):
    """Base class of every error that ``lmk_embed`` and its integrations raise on purpose."""


class ConfigError(LandmarkError, ValueError):
    """A setting has an impossible value, or two settings exclude each other."""


class CheckpointError(LandmarkError, OSError):
    """A model folder or hub repository cannot be used: no weights, unsafe weights, no fast tokenizer."""


class TokenLimitError(LandmarkError, ValueError):
    """A text is longer than the model reads and ``overflow="error"`` was asked for."""


class SpanError(LandmarkError, ValueError):
    """Spans given by the caller are out of range, out of order, empty or overlapping."""


class MissingExtraError(LandmarkError, ImportError):
    """An optional dependency is not installed; the message holds the exact ``pip install`` command."""


def missing_extra(package: str, extra: str) -> MissingExtraError:
    """Return the error for an optional dependency that is not installed.

    Parameters
    ----------
    package : str
        Name of the distribution that could not be imported.
    extra : str
        The extra of ``lmk-embed`` that brings it.

    Returns
    -------
    MissingExtraError
        Ready to raise.

    Examples
    --------
    >>> print(missing_extra("pypdf", "pdf"))
    'pypdf' is not installed. Install it with: pip install "lmk-embed[pdf]"
    """
    return MissingExtraError(f'{package!r} is not installed. Install it with: pip install "lmk-embed[{extra}]"')
