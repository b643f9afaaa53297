"""Train landmark models: label-free distillation of any encoder into one that speaks at its landmarks."""

from lmk_embed.training.corpus import CorpusError, Facts, TextCorpus, read_corpus
from lmk_embed.training.distill import Outcome, Schedule, Source, distill
from lmk_embed.training.questions import Question, Questions, read_questions
from lmk_embed.training.sampling import Batch, Recipe, Sampler
from lmk_embed.training.teacher import Targets, Teacher

__all__ = [
    "Batch",
    "CorpusError",
    "Facts",
    "Outcome",
    "Question",
    "Questions",
    "Recipe",
    "Sampler",
    "Schedule",
    "Source",
    "Targets",
    "Teacher",
    "TextCorpus",
    "distill",
    "read_corpus",
    "read_questions",
]
