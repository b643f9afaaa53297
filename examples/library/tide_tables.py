#!/usr/bin/env python3
"""Tide tables and berth scheduling for the Port of Kelmouth.

The harbour office uses this program for three things:

* printing the monthly tide table for the standard port (Kelmouth Pier) and its two secondary ports,
  Kettle Bar and Upper Lode;
* finding the times at which a ship of a given draught can pass the bar and reach a berth;
* drawing up the berth plan for a list of announced calls, with pilots and tugs taken into account.

Heights are metres above Chart Datum, which at Kelmouth lies 3.42 m below mean sea level. Depths are metres
below Chart Datum. All computation is done in UTC; harbour time (UTC, or UTC+1 in summer) appears only in
input and output.

Examples::

    python tide_tables.py hilo --date 2026-03-20 --days 3
    python tide_tables.py window --draught 6.4 --loa 112 --beam 17 --berth GQ1 --date 2026-03-20
    python tide_tables.py schedule --sample --date 2026-03-20
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import sys
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from itertools import pairwise
from pathlib import Path

J2000 = datetime(2000, 1, 1, 12, tzinfo=UTC)

# Position of the tide gauge at the head of Kelmouth Pier.
PIER_LATITUDE = 53.7120
PIER_LONGITUDE = 0.2140

# Under-keel clearance, Harbour Master's Direction 4 (2019): one tenth of the draught, never less than 0.60 m,
# and 0.30 m more while the wave buoy reports a significant height of 1.5 m or above.
UKC_FRACTION = 0.10
UKC_MINIMUM = 0.60
UKC_SWELL_EXTRA = 0.30
SWELL_THRESHOLD = 1.5

# Soffit of Sallow Bridge above Chart Datum, surveyed on 12 May 2021, and the margin kept below it.
BRIDGE_SOFFIT = 26.30
BRIDGE_MARGIN = 1.00

# The gate of Lode Basin is worked around high water, but only if the tide reaches the sill height plus 1.8 m.
GATE_BEFORE_HW = timedelta(hours=1, minutes=30)
GATE_AFTER_HW = timedelta(minutes=45)
GATE_MINIMUM_HW = 4.60

# Ships of this length or more move in daylight only (sun no lower than 6 degrees below the horizon).
DAYLIGHT_LOA = 140.0
CIVIL_TWILIGHT = -6.0

# Dangerous goods of any class are not moved between these hours of harbour time.
DANGEROUS_CLOSED_FROM = time(22, 0)
DANGEROUS_CLOSED_UNTIL = time(6, 0)

PILOTS_ON_DUTY = 2
TUGS_AVAILABLE = 3
PILOT_TURN = timedelta(hours=1, minutes=45)
TUG_TURN = timedelta(hours=1, minutes=30)
BERTH_CLEAR_TIME = timedelta(minutes=30)
MOORING_GAP = 15.0

# One hectopascal below the mean pressure raises the sea by about one centimetre.
MEAN_PRESSURE_HPA = 1013.0
METRES_PER_HPA = 0.01

GRID = timedelta(minutes=5)
MAX_SPAN_DAYS = 400


class TideError(Exception):
    """Base class of the errors that are reported to the user without a traceback."""


class InputError(TideError):
    """A file or an argument cannot be understood."""


class UnknownNameError(TideError):
    """A port or berth code does not exist."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        super().__init__(f"unknown {kind} {name!r}; known are: {', '.join(sorted(known))}")


class AnalysisError(TideError):
    """The observations do not allow a harmonic analysis."""


# ----------------------------------------------------------------------------------------------------------
# Time
# ----------------------------------------------------------------------------------------------------------


def last_sunday(year: int, month: int) -> date:
    """Return the last Sunday of a month that has 31 days (March and October are the only callers)."""
    last = date(year, month, 31)
    return last - timedelta(days=(last.weekday() + 1) % 7)


class HarbourTime(tzinfo):
    """UTC in winter, UTC+1 from the last Sunday in March to the last Sunday in October, both at 01:00 UTC.

    The rule is coded here rather than taken from a time-zone database because the office computer that prints
    the tables has no such database and is not allowed to fetch one.
    """

    def _is_summer_utc(self, utc: datetime) -> bool:
        naive = utc.replace(tzinfo=None)
        begin = datetime.combine(last_sunday(naive.year, 3), time(1))
        end = datetime.combine(last_sunday(naive.year, 10), time(1))
        return begin <= naive < end

    def utcoffset(self, dt: datetime | None) -> timedelta:
        """Offset for a local time; of the repeated hour in October the first pass is summer time (fold 0)."""
        if dt is None:
            return timedelta(0)
        naive = dt.replace(tzinfo=None)
        begin = datetime.combine(last_sunday(naive.year, 3), time(2))
        end = datetime.combine(last_sunday(naive.year, 10), time(2 if dt.fold == 0 else 1))
        return timedelta(hours=1) if begin <= naive < end else timedelta(0)

    def dst(self, dt: datetime | None) -> timedelta:
        """Summer time is the whole of the offset."""
        return self.utcoffset(dt)

    def tzname(self, dt: datetime | None) -> str:
        """Return the abbreviation printed in the tables: KST (Kelmouth Summer Time) or UT."""
        return "KST" if self.utcoffset(dt) else "UT"

    def fromutc(self, dt: datetime) -> datetime:
        """Convert from UTC, marking the second pass of the repeated hour with ``fold=1``."""
        if self._is_summer_utc(dt):
            return dt + timedelta(hours=1)
        repeated = self._is_summer_utc(dt - timedelta(hours=1)) and dt.month == 10
        return dt.replace(fold=1) if repeated else dt


HARBOUR = HarbourTime()


def parse_local(text: str) -> datetime:
    """Read ``YYYY-MM-DD`` or ``YYYY-MM-DDTHH:MM`` in harbour time and return it in UTC.

    A trailing ``Z`` marks a time that is already in UTC.
    """
    raw = text.strip()
    try:
        if raw.endswith("Z"):
            return datetime.fromisoformat(raw[:-1]).replace(tzinfo=UTC)
        parsed = datetime.fromisoformat(raw)
    except ValueError:
        raise InputError(f"not a date or time: {text!r}") from None
    if parsed.tzinfo is None:
        parsed = parsed.replace(tzinfo=HARBOUR)
    return parsed.astimezone(UTC)


def show(moment: datetime, pattern: str = "%a %d %b %H:%M") -> str:
    """Format a UTC time in harbour time, rounded to the nearest minute."""
    rounded = (moment + timedelta(seconds=30)).replace(second=0, microsecond=0)
    return rounded.astimezone(HARBOUR).strftime(pattern)


def frange(start: datetime, end: datetime, step: timedelta) -> Iterator[datetime]:
    """Yield times from start to end inclusive."""
    if step <= timedelta(0):
        raise InputError("the interval must be positive")
    moment = start
    while moment <= end:
        yield moment
        moment += step


def ceil_to_grid(moment: datetime, step: timedelta = GRID) -> datetime:
    """Round a time up to the planning grid, so that ships are ordered for round five-minute times."""
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    steps = -((midnight - moment) // step)
    return midnight + steps * step


# ----------------------------------------------------------------------------------------------------------
# Astronomy
# ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Astronomy:
    """Mean longitudes, in degrees, that drive the tide."""

    solar_hour: float  # 15 degrees per hour since midnight UT
    moon: float  # s
    sun: float  # h
    lunar_perigee: float  # p
    node: float  # N, ascending node of the lunar orbit
    solar_perigee: float  # p1

    @classmethod
    def at(cls, moment: datetime) -> Astronomy:
        """Evaluate the mean longitudes with the linear terms of the standard lunar theory.

        The quadratic terms stay below 0.01 degree until the year 2090 and are left out.
        """
        century = (moment - J2000) / timedelta(days=36525)
        midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
        hours = (moment - midnight) / timedelta(hours=1)
        return cls(
            solar_hour=15.0 * hours,
            moon=(218.3164477 + 481267.88123421 * century) % 360.0,
            sun=(280.46646 + 36000.76983 * century) % 360.0,
            lunar_perigee=(83.3532465 + 4069.0137287 * century) % 360.0,
            node=(125.04452 - 1934.136261 * century) % 360.0,
            solar_perigee=(282.93735 + 1.71946 * century) % 360.0,
        )


@dataclass(frozen=True)
class NodalRule:
    """Amplitude factor f = f0 + f1 cos N and phase u = u1 sin N, raised to a power for compound tides."""

    f0: float
    f1: float
    u1: float
    power: int = 1

    def evaluate(self, node: float) -> tuple[float, float]:
        """Return (f, u in degrees) for a longitude of the ascending node in degrees."""
        radians = math.radians(node)
        factor = self.f0 + self.f1 * math.cos(radians)
        return factor**self.power, self.power * self.u1 * math.sin(radians)


NODAL_NONE = NodalRule(1.0, 0.0, 0.0)
NODAL_M2 = NodalRule(1.0, -0.037, -2.1)
NODAL_M2_SQUARED = NodalRule(1.0, -0.037, -2.1, power=2)
NODAL_M2_CUBED = NodalRule(1.0, -0.037, -2.1, power=3)
NODAL_K2 = NodalRule(1.024, 0.286, -17.7)
NODAL_K1 = NodalRule(1.006, 0.115, -8.9)
NODAL_O1 = NodalRule(1.009, 0.187, 10.8)
NODAL_MM = NodalRule(1.0, -0.130, 0.0)
NODAL_MF = NodalRule(1.043, 0.414, -23.7)

# Degrees per hour of T, s, h, p and p1.
RATES = (15.0, 0.5490165, 0.0410686, 0.0046418, 0.0000020)


@dataclass(frozen=True)
class Constituent:
    """A harmonic constituent: multiples of (T, s, h, p, p1), a constant phase and its nodal rule."""

    name: str
    multiples: tuple[int, int, int, int, int]
    offset: float
    nodal: NodalRule

    @property
    def speed(self) -> float:
        """Angular speed in degrees per hour."""
        return sum(m * r for m, r in zip(self.multiples, RATES, strict=True))

    def argument(self, astro: Astronomy) -> float:
        """Equilibrium argument V, in degrees."""
        values = (astro.solar_hour, astro.moon, astro.sun, astro.lunar_perigee, astro.solar_perigee)
        return (sum(m * v for m, v in zip(self.multiples, values, strict=True)) + self.offset) % 360.0


CONSTITUENTS: dict[str, Constituent] = {
    c.name: c
    for c in (
        Constituent("Sa", (0, 0, 1, 0, 0), 0.0, NODAL_NONE),
        Constituent("Ssa", (0, 0, 2, 0, 0), 0.0, NODAL_NONE),
        Constituent("Mm", (0, 1, 0, -1, 0), 0.0, NODAL_MM),
        Constituent("MSf", (0, 2, -2, 0, 0), 0.0, NODAL_M2),
        Constituent("Mf", (0, 2, 0, 0, 0), 0.0, NODAL_MF),
        Constituent("Q1", (1, -3, 1, 1, 0), -90.0, NODAL_O1),
        Constituent("O1", (1, -2, 1, 0, 0), -90.0, NODAL_O1),
        Constituent("P1", (1, 0, -1, 0, 0), -90.0, NODAL_NONE),
        Constituent("K1", (1, 0, 1, 0, 0), 90.0, NODAL_K1),
        Constituent("2N2", (2, -4, 2, 2, 0), 0.0, NODAL_M2),
        Constituent("mu2", (2, -4, 4, 0, 0), 0.0, NODAL_M2),
        Constituent("N2", (2, -3, 2, 1, 0), 0.0, NODAL_M2),
        Constituent("nu2", (2, -3, 4, -1, 0), 0.0, NODAL_M2),
        Constituent("M2", (2, -2, 2, 0, 0), 0.0, NODAL_M2),
        Constituent("L2", (2, -1, 2, -1, 0), 180.0, NODAL_M2),
        Constituent("T2", (2, 0, -1, 0, 1), 0.0, NODAL_NONE),
        Constituent("S2", (2, 0, 0, 0, 0), 0.0, NODAL_NONE),
        Constituent("K2", (2, 0, 2, 0, 0), 0.0, NODAL_K2),
        Constituent("MN4", (4, -5, 4, 1, 0), 0.0, NODAL_M2_SQUARED),
        Constituent("M4", (4, -4, 4, 0, 0), 0.0, NODAL_M2_SQUARED),
        Constituent("MS4", (4, -2, 2, 0, 0), 0.0, NODAL_M2),
        Constituent("M6", (6, -6, 6, 0, 0), 0.0, NODAL_M2_CUBED),
        Constituent("2MS6", (6, -4, 4, 0, 0), 0.0, NODAL_M2_SQUARED),
    )
}


def sun_elevation(moment: datetime) -> float:
    """Return the elevation of the sun at the pier in degrees, without refraction, to about 0.05."""
    days = (moment - J2000) / timedelta(days=1)
    mean_longitude = math.radians((280.460 + 0.9856474 * days) % 360.0)
    anomaly = math.radians((357.528 + 0.9856003 * days) % 360.0)
    ecliptic = mean_longitude + math.radians(1.915 * math.sin(anomaly) + 0.020 * math.sin(2 * anomaly))
    obliquity = math.radians(23.439 - 0.0000004 * days)
    declination = math.asin(math.sin(obliquity) * math.sin(ecliptic))
    right_ascension = math.atan2(math.cos(obliquity) * math.sin(ecliptic), math.cos(ecliptic))
    sidereal = math.radians((280.46062 + 360.98564737 * days + PIER_LONGITUDE) % 360.0)
    hour_angle = sidereal - right_ascension
    phi = math.radians(PIER_LATITUDE)
    sine = math.sin(phi) * math.sin(declination)
    sine += math.cos(phi) * math.cos(declination) * math.cos(hour_angle)
    return math.degrees(math.asin(max(-1.0, min(1.0, sine))))


# ----------------------------------------------------------------------------------------------------------
# Ports
# ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StandardPort:
    """A port with its own harmonic constants: amplitude in metres and phase lag g in degrees (UT)."""

    code: str
    name: str
    mean_level: float
    constants: dict[str, tuple[float, float]]


@dataclass(frozen=True)
class SecondaryPort:
    """A port whose tides are derived from a standard port by differences.

    Time differences are minutes to be added to the standard time, at springs and at neaps. Height ratios
    multiply the height above Chart Datum.
    """

    code: str
    name: str
    standard: str
    high_minutes: tuple[int, int]
    low_minutes: tuple[int, int]
    high_ratio: float
    low_ratio: float


# Analysis of 369 days of the pier gauge, 1 January 2022 to 4 January 2023.
KELMOUTH = StandardPort(
    code="KEL",
    name="Kelmouth Pier",
    mean_level=3.42,
    constants={
        "Sa": (0.084, 212.0),
        "Ssa": (0.021, 133.0),
        "Mm": (0.017, 201.0),
        "MSf": (0.012, 58.0),
        "Mf": (0.014, 176.0),
        "Q1": (0.052, 62.4),
        "O1": (0.163, 113.9),
        "P1": (0.049, 271.3),
        "K1": (0.147, 284.6),
        "2N2": (0.056, 118.7),
        "mu2": (0.078, 222.5),
        "N2": (0.441, 142.8),
        "nu2": (0.092, 139.0),
        "M2": (2.314, 164.2),
        "L2": (0.118, 171.6),
        "T2": (0.046, 201.9),
        "S2": (0.782, 208.5),
        "K2": (0.223, 206.1),
        "MN4": (0.019, 238.2),
        "M4": (0.061, 261.7),
        "MS4": (0.043, 317.4),
        "M6": (0.027, 88.3),
        "2MS6": (0.031, 132.6),
    },
)

KETTLE_BAR = SecondaryPort("BAR", "Kettle Bar", "KEL", (-14, -9), (-9, -6), 0.97, 0.95)
UPPER_LODE = SecondaryPort("LOD", "Upper Lode", "KEL", (26, 34), (71, 58), 0.93, 0.58)

# Mean ranges at the pier; a tide is interpolated between "neap" and "spring" differences by its range.
MEAN_SPRING_RANGE = 6.19
MEAN_NEAP_RANGE = 3.06


@dataclass(frozen=True)
class Extreme:
    """A high or low water."""

    moment: datetime
    height: float
    high: bool

    @property
    def label(self) -> str:
        """Two-letter label used in the tables."""
        return "HW" if self.high else "LW"


class Predictor(ABC):
    """Anything that can tell the height of tide at a time."""

    code: str
    name: str

    @abstractmethod
    def height(self, moment: datetime) -> float:
        """Height above Chart Datum in metres."""

    @abstractmethod
    def extremes(self, start: datetime, end: datetime) -> list[Extreme]:
        """High and low waters in the closed interval, in order of time."""

    def lowest(self, start: datetime, end: datetime) -> float:
        """Lowest height between two times, the ends included."""
        candidates = [self.height(start), self.height(end)]
        candidates += [e.height for e in self.extremes(start, end) if not e.high]
        return min(candidates)

    def nearest_high(self, moment: datetime) -> Extreme:
        """Return the high water closest to a time."""
        around = self.extremes(moment - timedelta(hours=14), moment + timedelta(hours=14))
        highs = [e for e in around if e.high]
        return min(highs, key=lambda e: abs(e.moment - moment))


class HarmonicPredictor(Predictor):
    """Predicts a standard port from its constants.

    Astronomical arguments and nodal factors are evaluated once per day, at midnight UT, and kept in a cache;
    within the day every constituent is a plain cosine.
    """

    SCAN_STEP = timedelta(minutes=10)
    # Two successive extremes that differ by less than this are a stand of the tide, not a second tide.
    STAND_LIMIT = 0.05

    def __init__(self, port: StandardPort) -> None:
        unknown = set(port.constants) - set(CONSTITUENTS)
        if unknown:
            raise UnknownNameError("constituent", sorted(unknown)[0], CONSTITUENTS)
        self.port = port
        self.code = port.code
        self.name = port.name
        self._days: dict[date, list[tuple[float, float, float]]] = {}

    def _terms(self, day: date) -> list[tuple[float, float, float]]:
        """Return (amplitude, speed in rad/h, phase in rad at midnight) for every constituent."""
        cached = self._days.get(day)
        if cached is not None:
            return cached
        astro = Astronomy.at(datetime.combine(day, time(0), tzinfo=UTC))
        terms = []
        for name, (amplitude, lag) in self.port.constants.items():
            constituent = CONSTITUENTS[name]
            factor, shift = constituent.nodal.evaluate(astro.node)
            phase = constituent.argument(astro) + shift - lag
            terms.append((amplitude * factor, math.radians(constituent.speed), math.radians(phase)))
        self._days[day] = terms
        return terms

    @staticmethod
    def _hours(moment: datetime) -> float:
        return moment.hour + moment.minute / 60 + (moment.second + moment.microsecond / 1e6) / 3600

    def height(self, moment: datetime) -> float:
        """Sum of the mean level and all constituents."""
        hours = self._hours(moment)
        total = self.port.mean_level
        for amplitude, speed, phase in self._terms(moment.date()):
            total += amplitude * math.cos(speed * hours + phase)
        return total

    def rate(self, moment: datetime) -> float:
        """Rate of rise in metres per hour."""
        hours = self._hours(moment)
        return -sum(a * w * math.sin(w * hours + p) for a, w, p in self._terms(moment.date()))

    def _turning_point(self, left: datetime, right: datetime) -> datetime:
        """Bisect the interval in which the rate changes its sign, to one second."""
        rising = self.rate(left) > 0
        while right - left > timedelta(seconds=1):
            middle = left + (right - left) / 2
            if (self.rate(middle) > 0) == rising:
                left = middle
            else:
                right = middle
        return left + (right - left) / 2

    def extremes(self, start: datetime, end: datetime) -> list[Extreme]:
        """Scan the rate of rise in steps of ten minutes and refine every change of sign."""
        found: list[Extreme] = []
        previous = start
        rising = self.rate(start) > 0
        for moment in frange(start + self.SCAN_STEP, end + self.SCAN_STEP, self.SCAN_STEP):
            now_rising = self.rate(moment) > 0
            if now_rising != rising:
                turn = self._turning_point(previous, moment)
                if turn <= end:
                    found.append(Extreme(turn, self.height(turn), high=rising))
            previous, rising = moment, now_rising
        return self._merge_stands(found)

    def _merge_stands(self, found: list[Extreme]) -> list[Extreme]:
        merged: list[Extreme] = []
        for extreme in found:
            if merged and abs(merged[-1].height - extreme.height) < self.STAND_LIMIT:
                merged.pop()
                continue
            merged.append(extreme)
        return merged


class SecondaryPredictor(Predictor):
    """Predicts a secondary port by shifting and scaling the extremes of its standard port.

    Between extremes the tide is taken to follow half a cosine wave, as in the paper method.
    """

    def __init__(self, port: SecondaryPort, standard: Predictor) -> None:
        self.port = port
        self.code = port.code
        self.name = port.name
        self._standard = standard
        self._days: dict[date, list[Extreme]] = {}

    @staticmethod
    def _interpolate(spring_neap: tuple[int, int], tidal_range: float) -> timedelta:
        spring, neap = spring_neap
        share = (tidal_range - MEAN_NEAP_RANGE) / (MEAN_SPRING_RANGE - MEAN_NEAP_RANGE)
        share = max(0.0, min(1.0, share))
        return timedelta(minutes=neap + (spring - neap) * share)

    def _convert(self, source: Sequence[Extreme]) -> list[Extreme]:
        result = []
        for before, extreme in pairwise(source):
            tidal_range = abs(extreme.height - before.height)
            differences = self.port.high_minutes if extreme.high else self.port.low_minutes
            ratio = self.port.high_ratio if extreme.high else self.port.low_ratio
            moment = extreme.moment + self._interpolate(differences, tidal_range)
            result.append(Extreme(moment, extreme.height * ratio, extreme.high))
        return result

    def _around(self, day: date) -> list[Extreme]:
        cached = self._days.get(day)
        if cached is None:
            midnight = datetime.combine(day, time(0), tzinfo=UTC)
            cached = self._convert(
                self._standard.extremes(midnight - timedelta(hours=30), midnight + timedelta(hours=42))
            )
            self._days[day] = cached
        return cached

    def height(self, moment: datetime) -> float:
        """Interpolate between the neighbouring extremes."""
        around = self._around(moment.date())
        index = bisect_right([e.moment for e in around], moment)
        if not 0 < index < len(around):
            raise TideError(f"no extremes around {moment.isoformat()} at {self.name}")
        left, right = around[index - 1], around[index]
        share = (moment - left.moment) / (right.moment - left.moment)
        return left.height + (right.height - left.height) * (1 - math.cos(math.pi * share)) / 2

    def extremes(self, start: datetime, end: datetime) -> list[Extreme]:
        """Convert the extremes of the standard port, with a margin of half a day on both sides."""
        margin = timedelta(hours=16)
        converted = self._convert(self._standard.extremes(start - margin, end + margin))
        return [e for e in converted if start <= e.moment <= end]


def build_predictors() -> dict[str, Predictor]:
    """Create the predictors of all ports, by code."""
    standard = HarmonicPredictor(KELMOUTH)
    predictors: dict[str, Predictor] = {standard.code: standard}
    for port in (KETTLE_BAR, UPPER_LODE):
        predictors[port.code] = SecondaryPredictor(port, predictors[port.standard])
    return predictors


def find_predictor(predictors: dict[str, Predictor], code: str) -> Predictor:
    """Look up a port code without regard to case."""
    try:
        return predictors[code.upper()]
    except KeyError:
        raise UnknownNameError("port", code, predictors) from None


# ----------------------------------------------------------------------------------------------------------
# Ships, berths and the passage
# ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Vessel:
    """Dimensions in metres; ``naabsa`` means "not always afloat but safely aground"."""

    name: str
    loa: float
    beam: float
    draught: float
    air_draught: float = 20.0
    gross_tonnage: int = 0
    naabsa: bool = False

    def __post_init__(self) -> None:
        for label in ("loa", "beam", "draught", "air_draught"):
            if getattr(self, label) <= 0:
                raise InputError(f"{self.name}: {label} must be positive")
        if self.draught > 15:
            raise InputError(f"{self.name}: a draught of {self.draught} m exceeds any channel of this port")

    @property
    def tugs(self) -> int:
        """Tugs required: two from 120 m, one from 85 m (Direction 7)."""
        if self.loa >= 120:
            return 2
        return 1 if self.loa >= 85 else 0


@dataclass(frozen=True)
class Berth:
    """A berth; ``depth`` is dredged below Chart Datum and negative where the bottom dries."""

    code: str
    name: str
    length: float
    max_beam: float
    depth: float
    soft_mud: bool
    port: str
    gated: bool = False
    above_bridge: bool = False
    dangerous_goods: bool = False

    def fits(self, vessel: Vessel) -> bool:
        """Check the dimensions that do not depend on the tide, with the mooring gap at the ends."""
        return vessel.loa + MOORING_GAP <= self.length and vessel.beam <= self.max_beam


BERTHS: dict[str, Berth] = {
    b.code: b
    for b in (
        Berth("GQ1", "Granary Quay 1", 168.0, 25.0, 7.8, False, "KEL", dangerous_goods=True),
        Berth("GQ2", "Granary Quay 2", 131.0, 22.0, 6.5, False, "KEL"),
        Berth("TIM", "Timber Wharf", 118.0, 19.5, 2.1, True, "KEL"),
        Berth("FSH", "Fish Dock", 64.0, 12.0, -0.4, True, "KEL"),
        Berth("LOD", "Lode Basin", 105.0, 15.2, 5.9, True, "LOD", gated=True, above_bridge=True),
    )
}


@dataclass(frozen=True)
class ControlPoint:
    """A shallow place that an inward ship reaches some minutes after the Fairway buoy."""

    name: str
    port: str
    depth: float
    minutes_in: int
    speed_knots: float
    confined: bool


# Soundings of the survey of 3 October 2025. Kettle Bar has lost 0.4 m since 2022 and is dredged every April.
PASSAGE: tuple[ControlPoint, ...] = (
    ControlPoint("Kettle Bar", "BAR", 4.1, 20, 8.0, False),
    ControlPoint("Ferry Reach", "KEL", 4.9, 45, 6.0, True),
)
LODE_APPROACH = ControlPoint("Sallow Bridge", "LOD", 3.3, 70, 4.0, True)
MINUTES_TO_BERTH = 75
BLOCK_COEFFICIENT = 0.78


def squat(speed_knots: float, confined: bool, block_coefficient: float = BLOCK_COEFFICIENT) -> float:
    """Sinkage under way by the simplified Barrass formula: Cb V^2 / 100, doubled in confined water."""
    value = block_coefficient * speed_knots**2 / 100.0
    return 2 * value if confined else value


def under_keel_clearance(draught: float, swell: float) -> float:
    """Static clearance required by Direction 4."""
    clearance = max(UKC_MINIMUM, UKC_FRACTION * draught)
    return clearance + (UKC_SWELL_EXTRA if swell >= SWELL_THRESHOLD else 0.0)


@dataclass(frozen=True)
class Window:
    """A period during which a movement may begin."""

    start: datetime
    end: datetime

    @property
    def duration(self) -> timedelta:
        """Length of the window."""
        return self.end - self.start


@dataclass(frozen=True)
class Conditions:
    """Forecast that applies to the whole planning period."""

    swell: float = 0.5
    pressure_hpa: float = MEAN_PRESSURE_HPA

    @property
    def pressure_correction(self) -> float:
        """Rise of the water level caused by low pressure (inverse barometer), in metres."""
        return (MEAN_PRESSURE_HPA - self.pressure_hpa) * METRES_PER_HPA


class MovementPlanner:
    """Decides whether a ship may move at a given time, and why not."""

    def __init__(self, predictors: dict[str, Predictor], conditions: Conditions) -> None:
        self.predictors = predictors
        self.conditions = conditions

    def level(self, port: str, moment: datetime) -> float:
        """Predicted height with the pressure correction, which is never counted in our favour.

        A rise caused by low pressure may come late; a fall caused by high pressure is always subtracted.
        """
        return self.predictors[port].height(moment) + min(0.0, self.conditions.pressure_correction)

    def _points(self, berth: Berth) -> list[ControlPoint]:
        return [*PASSAGE, LODE_APPROACH] if berth.above_bridge else list(PASSAGE)

    def _reach(self, point: ControlPoint, start: datetime, inward: bool) -> datetime:
        minutes = point.minutes_in if inward else MINUTES_TO_BERTH - point.minutes_in
        return start + timedelta(minutes=minutes)

    def gate_open(self, moment: datetime) -> bool:
        """Tell whether the gate of Lode Basin can be worked at this time."""
        high = self.predictors["LOD"].nearest_high(moment)
        if high.height < GATE_MINIMUM_HW:
            return False
        return high.moment - GATE_BEFORE_HW <= moment <= high.moment + GATE_AFTER_HW

    def objections(
        self, vessel: Vessel, berth: Berth, start: datetime, inward: bool, dangerous: bool = False
    ) -> list[str]:
        """Return all reasons against a movement that starts at ``start``; an empty list means go."""
        at_berth = start + timedelta(minutes=MINUTES_TO_BERTH) if inward else start
        reasons = [r for p in self._points(berth) if (r := self._depth_objection(p, vessel, start, inward))]
        if berth.above_bridge and (reason := self._bridge_objection(vessel, start, inward)):
            reasons.append(reason)
        if berth.gated:
            if not self.gate_open(at_berth):
                reasons.append("Lode Basin: gate closed")
        elif berth.depth + self.level(berth.port, at_berth) < vessel.draught + UKC_MINIMUM:
            reasons.append(f"{berth.name}: not enough water to come alongside or leave")
        if vessel.loa >= DAYLIGHT_LOA:
            finish = start + timedelta(minutes=MINUTES_TO_BERTH)
            if min(sun_elevation(start), sun_elevation(finish)) < CIVIL_TWILIGHT:
                reasons.append(f"ships of {DAYLIGHT_LOA:.0f} m or more move in daylight only")
        if dangerous and self._night_ban(start):
            reasons.append("dangerous goods are not moved between 22:00 and 06:00")
        return reasons

    def _depth_objection(
        self,
        point: ControlPoint,
        vessel: Vessel,
        start: datetime,
        inward: bool,
    ) -> str | None:
        """Compare the water at a control point with draught, squat and clearance."""
        available = point.depth + self.level(point.port, self._reach(point, start, inward))
        needed = (
            vessel.draught
            + squat(point.speed_knots, point.confined)
            + under_keel_clearance(vessel.draught, self.conditions.swell)
        )
        if available >= needed:
            return None
        return f"{point.name}: {available:.2f} m of water, {needed:.2f} m needed"

    def _bridge_objection(self, vessel: Vessel, start: datetime, inward: bool) -> str | None:
        """Check the headroom; here low pressure counts against us, because it raises the water."""
        moment = self._reach(LODE_APPROACH, start, inward)
        height = self.predictors["LOD"].height(moment) + max(0.0, self.conditions.pressure_correction)
        headroom = BRIDGE_SOFFIT - height - vessel.air_draught
        if headroom >= BRIDGE_MARGIN:
            return None
        return f"Sallow Bridge: headroom {headroom:.2f} m, {BRIDGE_MARGIN:.2f} m needed"

    @staticmethod
    def _night_ban(start: datetime) -> bool:
        finish = start + timedelta(minutes=MINUTES_TO_BERTH)
        for moment in (start, finish):
            local = moment.astimezone(HARBOUR).time()
            if local >= DANGEROUS_CLOSED_FROM or local < DANGEROUS_CLOSED_UNTIL:
                return True
        return False

    def windows(
        self,
        vessel: Vessel,
        berth: Berth,
        start: datetime,
        end: datetime,
        inward: bool = True,
        dangerous: bool = False,
    ) -> list[Window]:
        """Return the periods, on the five-minute grid, in which the movement may begin."""
        result: list[Window] = []
        opened: datetime | None = None
        last: datetime | None = None
        for moment in frange(ceil_to_grid(start), end, GRID):
            if not self.objections(vessel, berth, moment, inward, dangerous):
                opened = opened or moment
                last = moment
            elif opened and last:
                result.append(Window(opened, last))
                opened = None
        if opened and last:
            result.append(Window(opened, last))
        return result

    def stays_afloat(self, vessel: Vessel, berth: Berth, start: datetime, end: datetime) -> bool:
        """Check the berth at the lowest water of the stay; aground is fine on mud if the ship permits it.

        Lode Basin is impounded behind its gate, so its depth does not vary with the tide.
        """
        if berth.gated:
            return berth.depth >= vessel.draught + 0.3
        lowest = self.predictors[berth.port].lowest(start, end)
        lowest += min(0.0, self.conditions.pressure_correction)
        if berth.depth + lowest >= vessel.draught + 0.3:
            return True
        return berth.soft_mud and vessel.naabsa


# ----------------------------------------------------------------------------------------------------------
# Berth plan
# ----------------------------------------------------------------------------------------------------------

PRIORITIES = {"lifeboat": 0, "ferry": 1, "liner": 2, "tramp": 3, "layby": 4}


@dataclass(frozen=True)
class Call:
    """An announced call: the ship, when it reaches the Fairway buoy, and how long it works cargo."""

    vessel: Vessel
    eta: datetime
    cargo_hours: float
    priority: str = "tramp"
    dangerous: bool = False

    def __post_init__(self) -> None:
        if self.priority not in PRIORITIES:
            raise UnknownNameError("priority", self.priority, PRIORITIES)
        if not 0 < self.cargo_hours <= 240:
            raise InputError(f"{self.vessel.name}: cargo hours must lie between 0 and 240")

    @property
    def order(self) -> tuple[int, datetime]:
        """Sort key of the planner: class first, then time of arrival."""
        return PRIORITIES[self.priority], self.eta


@dataclass(frozen=True)
class Booking:
    """A planned stay. ``inward`` and ``outward`` are the times at which the movements begin."""

    call: Call
    berth: Berth
    inward: datetime
    outward: datetime

    @property
    def alongside(self) -> datetime:
        """Time at which the ship is moored."""
        return self.inward + timedelta(minutes=MINUTES_TO_BERTH)

    @property
    def waiting(self) -> timedelta:
        """Time spent at anchor before the inward movement."""
        return self.inward - self.call.eta

    def overlaps(self, other: Booking) -> bool:
        """Two bookings clash if they use the same berth with less than the clearing time between them."""
        if self.berth.code != other.berth.code:
            return False
        if self.alongside >= other.outward + BERTH_CLEAR_TIME:
            return False
        return other.alongside < self.outward + BERTH_CLEAR_TIME


@dataclass
class Resources:
    """Pilots and tugs, as lists of occupied periods with the number taken."""

    pilots: list[tuple[datetime, datetime, int]] = field(default_factory=list)
    tugs: list[tuple[datetime, datetime, int]] = field(default_factory=list)

    @staticmethod
    def _peak(periods: list[tuple[datetime, datetime, int]], start: datetime, end: datetime) -> int:
        """Largest number in use at the same time within [start, end)."""
        inside = [p for p in periods if p[0] < end and start < p[1]]
        instants = [start, *(max(p[0], start) for p in inside)]
        return max(sum(n for begin, stop, n in inside if begin <= t < stop) for t in instants)

    def available(self, vessel: Vessel, start: datetime) -> bool:
        """Check that a pilot and the required tugs are free for a movement."""
        if self._peak(self.pilots, start, start + PILOT_TURN) + 1 > PILOTS_ON_DUTY:
            return False
        if vessel.tugs == 0:
            return True
        return self._peak(self.tugs, start, start + TUG_TURN) + vessel.tugs <= TUGS_AVAILABLE

    def take(self, vessel: Vessel, start: datetime) -> None:
        """Reserve a pilot and tugs."""
        self.pilots.append((start, start + PILOT_TURN, 1))
        if vessel.tugs:
            self.tugs.append((start, start + TUG_TURN, vessel.tugs))


@dataclass
class Plan:
    """The result of scheduling: bookings in order of arrival, and refused calls with the reason."""

    bookings: list[Booking] = field(default_factory=list)
    refused: list[tuple[Call, str]] = field(default_factory=list)

    def to_json(self) -> str:
        """Serialise in the form that the ``check`` sub-command reads."""
        rows = [
            {
                "vessel": b.call.vessel.name,
                "loa": b.call.vessel.loa,
                "beam": b.call.vessel.beam,
                "draught": b.call.vessel.draught,
                "air_draught": b.call.vessel.air_draught,
                "naabsa": b.call.vessel.naabsa,
                "dangerous": b.call.dangerous,
                "eta": b.call.eta.isoformat(),
                "cargo_hours": b.call.cargo_hours,
                "priority": b.call.priority,
                "berth": b.berth.code,
                "inward": b.inward.isoformat(),
                "outward": b.outward.isoformat(),
            }
            for b in self.bookings
        ]
        return json.dumps({"bookings": rows}, indent=2)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Read a plan written by :meth:`to_json`, possibly edited by hand."""
        try:
            plan = cls()
            for row in json.loads(text)["bookings"]:
                vessel = Vessel(
                    row["vessel"],
                    row["loa"],
                    row["beam"],
                    row["draught"],
                    row["air_draught"],
                    naabsa=row["naabsa"],
                )
                eta = parse_local(row["eta"])
                call = Call(vessel, eta, row["cargo_hours"], row["priority"], row["dangerous"])
                berth = find_berth(row["berth"])
                booking = Booking(call, berth, parse_local(row["inward"]), parse_local(row["outward"]))
                plan.bookings.append(booking)
        except (ValueError, TypeError) as error:
            raise InputError(f"the plan is not valid: {error}") from error
        except KeyError as error:
            raise InputError(f"the plan lacks the field {error}") from error
        return plan

    def to_icalendar(self) -> str:
        """Export the stays as calendar events for the quay foremen."""
        lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//Port of Kelmouth//Berth plan//EN"]
        for number, b in enumerate(self.bookings, start=1):
            lines += [
                "BEGIN:VEVENT",
                f"UID:{b.inward:%Y%m%dT%H%M}-{number}@kelmouth.example",
                f"DTSTAMP:{b.call.eta:%Y%m%dT%H%M%SZ}",
                f"DTSTART:{b.alongside:%Y%m%dT%H%M%SZ}",
                f"DTEND:{b.outward:%Y%m%dT%H%M%SZ}",
                f"SUMMARY:{b.call.vessel.name} at {b.berth.name}",
                "END:VEVENT",
            ]
        lines.append("END:VCALENDAR")
        return "\r\n".join(lines) + "\r\n"


def find_berth(code: str) -> Berth:
    """Look up a berth code without regard to case."""
    try:
        return BERTHS[code.upper()]
    except KeyError:
        raise UnknownNameError("berth", code, BERTHS) from None


class Scheduler:
    """Greedy planner: calls in order of priority and arrival, each on the berth it can leave soonest."""

    # A call that cannot be berthed within this time of its arrival is refused and goes to the agent.
    MAX_WAIT = timedelta(days=4)
    MAX_EXTRA_STAY = timedelta(days=2)

    def __init__(self, planner: MovementPlanner) -> None:
        self.planner = planner
        self.resources = Resources()
        self.plan = Plan()

    def run(self, calls: Iterable[Call]) -> Plan:
        """Place all calls and return the plan."""
        for call in sorted(calls, key=lambda c: c.order):
            candidates = [b for b in BERTHS.values() if self._suitable(call, b)]
            if not candidates:
                self.plan.refused.append((call, "no berth of sufficient size or licence"))
                continue
            options = [option for berth in candidates if (option := self._place(call, berth))]
            if not options:
                self.plan.refused.append((call, "no tide, pilot, tug or berth within four days"))
                continue
            # Ties go to the shallower berth, which keeps deep water free for ships that need it.
            best = min(options, key=lambda b: (b.outward, b.berth.depth))
            self.plan.bookings.append(best)
            self.resources.take(call.vessel, best.inward)
            self.resources.take(call.vessel, best.outward)
        self.plan.bookings.sort(key=lambda b: b.inward)
        return self.plan

    @staticmethod
    def _suitable(call: Call, berth: Berth) -> bool:
        return berth.fits(call.vessel) and (berth.dangerous_goods or not call.dangerous)

    def _moments(
        self, call: Call, berth: Berth, start: datetime, limit: timedelta, inward: bool
    ) -> Iterator[datetime]:
        """Yield the allowed starting times of a movement, earliest first."""
        for moment in frange(ceil_to_grid(start), start + limit, GRID):
            if self.planner.objections(call.vessel, berth, moment, inward, call.dangerous):
                continue
            if self.resources.available(call.vessel, moment):
                yield moment

    def _place(self, call: Call, berth: Berth) -> Booking | None:
        """Find the earliest stay at one berth, or None."""
        for inward in self._moments(call, berth, call.eta, self.MAX_WAIT, inward=True):
            alongside = inward + timedelta(minutes=MINUTES_TO_BERTH)
            ready = alongside + timedelta(hours=call.cargo_hours)
            probe = Booking(call, berth, inward, ready)
            if any(probe.overlaps(other) for other in self.plan.bookings):
                continue
            outward = next(self._moments(call, berth, ready, self.MAX_EXTRA_STAY, inward=False), None)
            if outward is None:
                continue
            booking = Booking(call, berth, inward, outward)
            if any(booking.overlaps(other) for other in self.plan.bookings):
                continue
            if self.planner.stays_afloat(call.vessel, berth, alongside, outward):
                return booking
        return None


def check_booking(booking: Booking) -> list[str]:
    """Return the objections to a stay that concern neither the tide nor other ships."""
    call, name = booking.call, booking.call.vessel.name
    problems: list[str] = []
    if not booking.berth.fits(call.vessel):
        problems.append(f"{name}: does not fit {booking.berth.name}")
    if call.dangerous and not booking.berth.dangerous_goods:
        problems.append(f"{name}: {booking.berth.name} is not licensed for dangerous goods")
    if booking.inward < call.eta:
        problems.append(f"{name}: is to come in before its arrival at the Fairway buoy")
    if booking.outward < booking.alongside + timedelta(hours=call.cargo_hours):
        problems.append(f"{name}: sails before its cargo is finished")
    return problems


def check_plan(plan: Plan, planner: MovementPlanner) -> list[str]:
    """Validate a plan that may have been edited by hand; return one line per problem."""
    problems: list[str] = []
    resources = Resources()
    for index, booking in enumerate(plan.bookings):
        call, berth, name = booking.call, booking.berth, booking.call.vessel.name
        problems += check_booking(booking)
        for moment, inward in ((booking.inward, True), (booking.outward, False)):
            label = f"{name}, {'inward' if inward else 'outward'} {show(moment)}"
            reasons = planner.objections(call.vessel, berth, moment, inward, call.dangerous)
            problems += [f"{label}: {reason}" for reason in reasons]
            if not resources.available(call.vessel, moment):
                problems.append(f"{label}: no pilot or not enough tugs")
            resources.take(call.vessel, moment)
        if not planner.stays_afloat(call.vessel, berth, booking.alongside, booking.outward):
            problems.append(f"{name}: would take the ground at {berth.name}")
        clashes = [other for other in plan.bookings[index + 1 :] if booking.overlaps(other)]
        problems += [f"{name} and {other.call.vessel.name}: both at {berth.name}" for other in clashes]
    return problems


# ----------------------------------------------------------------------------------------------------------
# Dues
# ----------------------------------------------------------------------------------------------------------

# Tariff of 1 January 2026, in euros.
DUES_PER_GT = 0.42
DUES_MINIMUM = 185.00
BERTH_RATE_PER_METRE_DAY = 2.15
FREE_BERTH_HOURS = 12
TUG_FEE = 1240.00
PILOT_BASE = 310.00
PILOT_PER_METRE_DRAUGHT = 46.50
NIGHT_SURCHARGE = 0.25
LINER_REBATE = 0.30


def is_night(moment: datetime) -> bool:
    """The night tariff applies from 20:00 to 06:00 harbour time and all Sunday."""
    local = moment.astimezone(HARBOUR)
    return local.hour >= 20 or local.hour < 6 or local.weekday() == 6


def dues(booking: Booking) -> dict[str, float]:
    """Return the items of the invoice for a stay.

    The liner rebate applies to tonnage dues only. Berth rent is charged per commenced day after the first
    twelve hours. Pilot and tugs are paid for each of the two movements, with the surcharge where it is night.
    """
    vessel = booking.call.vessel
    tonnage = max(DUES_MINIMUM, DUES_PER_GT * vessel.gross_tonnage)
    if booking.call.priority == "liner":
        tonnage *= 1 - LINER_REBATE
    paid_hours = (booking.outward - booking.alongside) / timedelta(hours=1) - FREE_BERTH_HOURS
    days = max(0, math.ceil(paid_hours / 24))
    pilot = tugs = 0.0
    for moment in (booking.inward, booking.outward):
        factor = 1 + NIGHT_SURCHARGE if is_night(moment) else 1.0
        pilot += factor * (PILOT_BASE + PILOT_PER_METRE_DRAUGHT * vessel.draught)
        tugs += factor * TUG_FEE * vessel.tugs
    items = {
        "tonnage dues": tonnage,
        "berth rent": days * BERTH_RATE_PER_METRE_DAY * vessel.loa,
        "pilotage": pilot,
        "towage": tugs,
    }
    return {name: round(amount, 2) for name, amount in items.items()}


# ----------------------------------------------------------------------------------------------------------
# Observations and harmonic analysis
# ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Observation:
    """A reading of the tide gauge."""

    moment: datetime
    height: float


def open_text(path: str) -> str:
    """Read a UTF-8 file, or standard input if the path is a hyphen."""
    if path == "-":
        return sys.stdin.read()
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {error}") from error


def read_observations(text: str) -> list[Observation]:
    """Read ``time,height`` lines; the gauge writes 99.99 for a missing value."""
    result = []
    for number, row in enumerate(csv.reader(io.StringIO(text)), start=1):
        if not row or row[0].lstrip().startswith("#") or row[0].strip().lower() == "time":
            continue
        try:
            value = float(row[1])
            moment = parse_local(row[0])
        except (IndexError, ValueError, InputError) as error:
            raise InputError(f"line {number} of the observations: {error}") from error
        if value < 90:
            result.append(Observation(moment, value))
    return sorted(result, key=lambda o: o.moment)


def solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Solve a linear system by Gaussian elimination with partial pivoting."""
    size = len(right)
    rows = [[*line, value] for line, value in zip(matrix, right, strict=True)]
    for column in range(size):
        pivot = max(range(column, size), key=lambda r: abs(rows[r][column]))
        if abs(rows[pivot][column]) < 1e-9:
            raise AnalysisError("the constituents cannot be separated; use fewer or a longer series")
        rows[column], rows[pivot] = rows[pivot], rows[column]
        for r in range(column + 1, size):
            factor = rows[r][column] / rows[column][column]
            for c in range(column, size + 1):
                rows[r][c] -= factor * rows[column][c]
    solution = [0.0] * size
    for r in reversed(range(size)):
        known = sum(rows[r][c] * solution[c] for c in range(r + 1, size))
        solution[r] = (rows[r][size] - known) / rows[r][r]
    return solution


def separable(names: Sequence[str], hours: float) -> list[Constituent]:
    """Look up constituents and refuse any two that a series of this length cannot separate.

    By the Rayleigh criterion two constituents need a series of 360 degrees divided by the difference of their
    speeds; S2 and M2, for instance, need 355 hours.
    """
    chosen = []
    for name in names:
        if name not in CONSTITUENTS:
            raise UnknownNameError("constituent", name, CONSTITUENTS)
        chosen.append(CONSTITUENTS[name])
    for slow, fast in pairwise(sorted(chosen, key=lambda c: c.speed)):
        needed = 360.0 / (fast.speed - slow.speed) if fast.speed > slow.speed else math.inf
        if needed > hours:
            pair = f"{slow.name} and {fast.name}"
            raise AnalysisError(f"{pair} need {needed:.0f} hours, the series has {hours:.0f}")
    return chosen


def analyse(
    observations: Sequence[Observation], names: Sequence[str]
) -> tuple[float, dict[str, tuple[float, float]]]:
    """Fit mean level, amplitudes and phase lags by least squares."""
    if len(observations) < 2 * (2 * len(names) + 1):
        raise AnalysisError(f"{len(observations)} readings are not enough for {len(names)} constituents")
    hours = (observations[-1].moment - observations[0].moment) / timedelta(hours=1)
    chosen = separable(names, hours)
    size = 2 * len(chosen) + 1
    normal = [[0.0] * size for _ in range(size)]
    right = [0.0] * size
    for observation in observations:
        astro = Astronomy.at(observation.moment)
        row = [1.0]
        for constituent in chosen:
            factor, shift = constituent.nodal.evaluate(astro.node)
            angle = math.radians(constituent.argument(astro) + shift)
            row += [factor * math.cos(angle), factor * math.sin(angle)]
        for i, left_value in enumerate(row):
            right[i] += left_value * observation.height
            for j, right_value in enumerate(row):
                normal[i][j] += left_value * right_value
    solution = solve(normal, right)
    constants = {}
    for index, constituent in enumerate(chosen):
        a, b = solution[2 * index + 1 : 2 * index + 3]
        constants[constituent.name] = (math.hypot(a, b), math.degrees(math.atan2(b, a)) % 360.0)
    return solution[0], constants


def residual_summary(observations: Sequence[Observation], predictor: Predictor) -> dict[str, float | str]:
    """Compare readings with the prediction: mean, root mean square and the largest surge."""
    if not observations:
        raise AnalysisError("there are no readings")
    residuals = [(o.height - predictor.height(o.moment), o.moment) for o in observations]
    largest, moment = max(residuals, key=lambda item: abs(item[0]))
    return {
        "readings": len(residuals),
        "mean": sum(r for r, _ in residuals) / len(residuals),
        "rms": math.sqrt(sum(r * r for r, _ in residuals) / len(residuals)),
        "largest surge": largest,
        "at": show(moment, "%Y-%m-%d %H:%M"),
    }


# ----------------------------------------------------------------------------------------------------------
# Reading calls
# ----------------------------------------------------------------------------------------------------------

SAMPLE_CALLS = """\
name,loa,beam,draught,air_draught,gt,eta_hours,cargo_hours,priority,dangerous,naabsa
Anna Tolliver,148.0,21.5,7.2,34.0,9430,2,26,tramp,no,no
Brent Osprey,89.9,13.7,5.6,22.0,2990,5,14,liner,no,no
Corrie Lass,57.0,9.8,3.4,16.5,870,6,9,tramp,no,yes
Dagny Holt,112.3,17.2,6.4,29.0,5120,9,20,tramp,yes,no
Ebba Renmark,84.5,12.8,4.8,19.8,2440,11,18,tramp,no,no
Fjordrose,102.0,15.8,5.9,24.5,3860,14,30,layby,no,yes
"""


def read_flag(text: str) -> bool:
    """Read yes or no."""
    word = text.strip().lower()
    if word in ("yes", "y", "1", "true"):
        return True
    if word in ("no", "n", "0", "false", ""):
        return False
    raise ValueError(f"expected yes or no, not {text!r}")


def read_hours(text: str) -> timedelta:
    """Read a number of hours, which may have decimals."""
    return timedelta(hours=float(text))


def read_calls(text: str, base: datetime) -> list[Call]:
    """Read announced calls from CSV; ``eta`` is harbour time, or ``eta_hours`` counts from ``base``."""
    calls = []
    for number, row in enumerate(csv.DictReader(io.StringIO(text)), start=2):
        try:
            vessel = Vessel(
                name=row["name"],
                loa=float(row["loa"]),
                beam=float(row["beam"]),
                draught=float(row["draught"]),
                air_draught=float(row.get("air_draught") or 20.0),
                gross_tonnage=int(row.get("gt") or 0),
                naabsa=read_flag(row.get("naabsa") or ""),
            )
            eta = parse_local(row["eta"]) if row.get("eta") else base + read_hours(row["eta_hours"])
            calls.append(
                Call(
                    vessel,
                    eta,
                    float(row["cargo_hours"]),
                    row.get("priority") or "tramp",
                    read_flag(row.get("dangerous") or ""),
                )
            )
        except KeyError as error:
            raise InputError(f"the list of calls has no column {error}") from error
        except (ValueError, TypeError) as error:
            raise InputError(f"line {number} of the list of calls: {error}") from error
    return calls


# ----------------------------------------------------------------------------------------------------------
# Commands
# ----------------------------------------------------------------------------------------------------------


def span(args: argparse.Namespace) -> tuple[datetime, datetime]:
    """Return the period given by --date and --days."""
    if not 1 <= args.days <= MAX_SPAN_DAYS:
        raise InputError(f"--days must lie between 1 and {MAX_SPAN_DAYS}")
    start = parse_local(args.date)
    return start, start + timedelta(days=args.days)


def command_predict(args: argparse.Namespace) -> int:
    """Print heights at a fixed interval."""
    predictor = find_predictor(build_predictors(), args.port)
    start, end = span(args)
    for moment in frange(start, end, timedelta(minutes=args.every)):
        print(f"{show(moment, '%Y-%m-%d %H:%M %Z')}  {predictor.height(moment):6.2f}")
    return 0


def command_hilo(args: argparse.Namespace) -> int:
    """Print the times and heights of high and low water."""
    predictor = find_predictor(build_predictors(), args.port)
    start, end = span(args)
    print(f"{predictor.name}: heights in metres above Chart Datum, harbour time")
    for extreme in predictor.extremes(start, end):
        print(f"{show(extreme.moment, '%a %d %b %Y  %H:%M %Z'):28s} {extreme.label}  {extreme.height:5.2f}")
    return 0


def command_month(args: argparse.Namespace) -> int:
    """Print a tide table with one line per day; ``*`` marks springs, ``n`` neaps."""
    predictor = find_predictor(build_predictors(), args.port)
    first = parse_local(f"{args.month}-01").astimezone(HARBOUR)
    print(f"{predictor.name}, {first:%B %Y}")
    day = first.date()
    while day.month == first.month:
        begin = datetime.combine(day, time(0), tzinfo=HARBOUR).astimezone(UTC)
        end = datetime.combine(day + timedelta(days=1), time(0), tzinfo=HARBOUR).astimezone(UTC)
        extremes = predictor.extremes(begin, end - timedelta(seconds=1))
        heights = [e.height for e in extremes]
        tidal_range = max(heights) - min(heights) if heights else 0.0
        mark = "*" if tidal_range >= MEAN_SPRING_RANGE else "n" if tidal_range <= MEAN_NEAP_RANGE else " "
        cells = "  ".join(f"{show(e.moment, '%H:%M')} {e.height:4.1f}" for e in extremes)
        print(f"{day:%d %a} {mark} {cells}")
        day += timedelta(days=1)
    return 0


def planner_from(args: argparse.Namespace) -> MovementPlanner:
    """Create the planner with the forecast given on the command line."""
    return MovementPlanner(build_predictors(), Conditions(args.swell, args.pressure))


def command_window(args: argparse.Namespace) -> int:
    """Print the periods in which a ship may begin its passage; exit status 1 if there is none."""
    planner = planner_from(args)
    berth = find_berth(args.berth)
    vessel = Vessel("the ship", args.loa, args.beam, args.draught, args.air_draught)
    if not berth.fits(vessel):
        raise InputError(f"the ship does not fit {berth.name} ({berth.length} m by {berth.max_beam} m)")
    start, end = span(args)
    windows = planner.windows(vessel, berth, start, end, inward=not args.outward, dangerous=args.dangerous)
    direction = "outward from" if args.outward else "inward to"
    print(f"{direction} {berth.name}, draught {vessel.draught:.1f} m")
    for window in windows:
        print(f"  {show(window.start)} to {show(window.end, '%H:%M')}   ({window.duration})")
    if not windows:
        print("  none; objections at the first high water:")
        high = planner.predictors["BAR"].nearest_high(start + timedelta(hours=6))
        for reason in planner.objections(vessel, berth, high.moment, not args.outward, args.dangerous):
            print(f"    {reason}")
    return 0 if windows else 1


def command_schedule(args: argparse.Namespace) -> int:
    """Draw up the berth plan; exit status 1 if a call had to be refused."""
    base = parse_local(args.date)
    if args.sample == bool(args.calls):
        raise InputError("give either a file of calls or --sample")
    calls = read_calls(SAMPLE_CALLS if args.sample else open_text(args.calls), base)
    plan = Scheduler(planner_from(args)).run(calls)
    if args.format == "json":
        print(plan.to_json())
    elif args.format == "ical":
        sys.stdout.write(plan.to_icalendar())
    else:
        for b in plan.bookings:
            hours = b.waiting / timedelta(hours=1)
            print(
                f"{b.call.vessel.name:16s} {b.berth.code}  in {show(b.inward)}  out {show(b.outward)}"
                f"  waits {hours:4.1f} h  dues {sum(dues(b).values()):9.2f}"
            )
    for call, reason in plan.refused:
        print(f"refused: {call.vessel.name}: {reason}", file=sys.stderr)
    return 1 if plan.refused else 0


def command_check(args: argparse.Namespace) -> int:
    """Validate a plan in JSON; exit status 1 if it has problems."""
    problems = check_plan(Plan.from_json(open_text(args.plan)), planner_from(args))
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problem(s)")
    return 1 if problems else 0


def command_residuals(args: argparse.Namespace) -> int:
    """Compare gauge readings with the prediction."""
    predictor = find_predictor(build_predictors(), args.port)
    for name, value in residual_summary(read_observations(open_text(args.readings)), predictor).items():
        print(f"{name:14s} {value:.3f}" if isinstance(value, float) else f"{name:14s} {value}")
    return 0


def command_analyse(args: argparse.Namespace) -> int:
    """Fit harmonic constants to gauge readings."""
    level, constants = analyse(read_observations(open_text(args.readings)), args.constituents.split(","))
    print(f"mean level {level:.3f} m")
    for name, (amplitude, lag) in constants.items():
        print(f"{name:5s} {amplitude:6.3f} m  {lag:6.1f} deg")
    return 0


def command_selftest(_: argparse.Namespace) -> int:
    """Check the program against itself: analyse 40 days of predictions and compare the constants."""
    chosen = {name: KELMOUTH.constants[name] for name in ("M2", "S2", "O1", "K1", "M4")}
    port = StandardPort("TST", "Test", 3.0, chosen)
    predictor = HarmonicPredictor(port)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    times = frange(start, start + timedelta(days=40), timedelta(hours=1))
    level, constants = analyse([Observation(t, predictor.height(t)) for t in times], list(port.constants))
    worst = max(abs(constants[n][0] - port.constants[n][0]) for n in port.constants)
    print(f"mean level {level:.4f} (expected 3.0000), worst amplitude error {worst:.5f} m")
    return 0 if worst < 0.002 and abs(level - 3.0) < 0.002 else 1


def build_parser() -> argparse.ArgumentParser:
    """Create the command-line parser."""
    parser = argparse.ArgumentParser(prog="tide_tables.py", description="Tides and berths at Kelmouth.")
    commands = parser.add_subparsers(dest="command", required=True)

    def add(
        name: str, handler: Callable[[argparse.Namespace], int], dated: bool, port: bool
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=(handler.__doc__ or "").splitlines()[0])
        sub.set_defaults(handler=handler)
        if dated:
            sub.add_argument("--date", required=True, help="first day, harbour time (YYYY-MM-DD)")
            sub.add_argument("--days", type=int, default=1, help="number of days (default 1)")
        if port:
            sub.add_argument("--port", default="KEL", help="KEL, BAR or LOD (default KEL)")
        return sub

    def add_forecast(sub: argparse.ArgumentParser) -> None:
        sub.add_argument("--swell", type=float, default=0.5, help="significant wave height in metres")
        sub.add_argument("--pressure", type=float, default=MEAN_PRESSURE_HPA, help="air pressure in hPa")

    predict = add("predict", command_predict, dated=True, port=True)
    predict.add_argument("--every", type=int, default=60, help="interval in minutes (default 60)")
    add("hilo", command_hilo, dated=True, port=True)
    month = add("month", command_month, dated=False, port=True)
    month.add_argument("month", help="YYYY-MM")
    window = add("window", command_window, dated=True, port=False)
    window.add_argument("--draught", type=float, required=True)
    window.add_argument("--loa", type=float, required=True)
    window.add_argument("--beam", type=float, required=True)
    window.add_argument("--air-draught", type=float, default=20.0)
    window.add_argument("--berth", required=True, help=", ".join(BERTHS))
    window.add_argument("--outward", action="store_true")
    window.add_argument("--dangerous", action="store_true")
    add_forecast(window)
    schedule = add("schedule", command_schedule, dated=True, port=False)
    schedule.add_argument("calls", nargs="?", help="CSV file, or - for standard input")
    schedule.add_argument("--sample", action="store_true", help="use six built-in calls")
    schedule.add_argument("--format", choices=("text", "json", "ical"), default="text")
    add_forecast(schedule)
    check = add("check", command_check, dated=False, port=False)
    check.add_argument("plan", help="JSON file, or - for standard input")
    add_forecast(check)
    residuals = add("residuals", command_residuals, dated=False, port=True)
    residuals.add_argument("readings", help="CSV file of time,height")
    fit = add("analyse", command_analyse, dated=False, port=False)
    fit.add_argument("readings", help="CSV file of time,height")
    fit.add_argument("--constituents", default="M2,S2,O1,K1,M4", help="comma-separated names")
    add("selftest", command_selftest, dated=False, port=False)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; exit status 2 means that the input was wrong."""
    args = build_parser().parse_args(argv)
    try:
        status: int = args.handler(args)
    except TideError as error:
        print(f"tide_tables.py: {error}", file=sys.stderr)
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main())
