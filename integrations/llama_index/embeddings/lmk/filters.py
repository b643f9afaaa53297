"""LlamaIndex's metadata filters as Chroma's."""

from __future__ import annotations

from typing import Any

from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from lmk_embed.errors import ConfigError

_OPERATORS = {
    FilterOperator.EQ: "$eq",
    FilterOperator.NE: "$ne",
    FilterOperator.GT: "$gt",
    FilterOperator.GTE: "$gte",
    FilterOperator.LT: "$lt",
    FilterOperator.LTE: "$lte",
    FilterOperator.IN: "$in",
    FilterOperator.NIN: "$nin",
    FilterOperator.CONTAINS: "$contains",
}
_CONDITIONS = {FilterCondition.AND: "$and", FilterCondition.OR: "$or"}


def chroma_where(filters: MetadataFilters) -> dict[str, Any] | None:
    """Translate filters on metadata.

    Parameters
    ----------
    filters : MetadataFilters

    Returns
    -------
    dict or None
        None if there is nothing to filter by.

    Raises
    ------
    ConfigError
        If Chroma has no such operator or condition.

    Examples
    --------
    >>> chroma_where(MetadataFilters(filters=[MetadataFilter(key="year", value=2020, operator=">=")]))
    {'year': {'$gte': 2020}}
    """
    parts = []
    for each in filters.filters:
        part = chroma_where(each) if isinstance(each, MetadataFilters) else _one(each)
        if part is not None:
            parts.append(part)
    condition = _CONDITIONS.get(filters.condition or FilterCondition.AND)
    if condition is None:
        raise ConfigError(f"Chroma cannot combine filters by {filters.condition!r}; use and, or, and !=")
    # Chroma takes neither an empty combination nor one of a single filter.
    return {condition: parts} if len(parts) > 1 else next(iter(parts), None)


def _one(given: MetadataFilter) -> dict[str, Any]:
    operator = _OPERATORS.get(given.operator)
    if operator is None:
        known = ", ".join(each.value for each in _OPERATORS)
        raise ConfigError(f"Chroma has no filter {given.operator.value!r} (on {given.key!r}); it has {known}")
    return {given.key: {operator: given.value}}
