"""Plans for chosen models and machines stay what was reviewed, or the change is seen."""

import plancc_golden_plans
import pytest
from plancc_golden_plans import PAGES, QUESTIONS, Question


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_a_plan_is_the_reviewed_one(question: Question) -> None:
    """After a look at the difference: python tests/support/plancc_golden_plans.py"""
    assert plancc_golden_plans.page(question) == (PAGES / f"{question.name}.txt").read_text()


def test_every_page_answers_a_question() -> None:
    names = [question.name for question in QUESTIONS]
    assert len(names) == len(set(names))
    assert sorted(path.stem for path in PAGES.glob("*.txt")) == sorted(names)
