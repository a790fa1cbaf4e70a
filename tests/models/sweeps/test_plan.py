"""Plans: what they say, and what they must not."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from support.cases import check_each
from support.sweeps import write_plan

from kmip_data.errors import UsageError
from kmip_data.models.sweeps.plan import read_plan


def test_seeds_are_a_range_or_a_list(tmp_path):
    assert read_plan(str(write_plan(tmp_path / "a.toml", seeds="2..4"))).seeds == (2, 3, 4)
    assert read_plan(str(write_plan(tmp_path / "a.toml", seeds=[5, 1]))).seeds == (5, 1)


def test_what_is_wrong_in_a_plan_is_named(tmp_path):
    def check(case, base=tmp_path):
        keys, said = case
        tmp_path = Path(tempfile.mkdtemp(dir=base))
        with pytest.raises(UsageError) as error:
            read_plan(str(write_plan(tmp_path / "wrong.toml", **keys)))
        assert said in str(error.value)
        assert "docs/sweeps.md" in str(error.value)

    twice = [{"name": "a"}, {"name": "a"}]
    cases = [
        ({"modelz": ["gcn"]}, "modelz: Extra inputs"),
        ({"changes": [{"name": "a", "sets": []}]}, "changes.0.sets: Extra inputs"),
        ({"changes": twice}, "two changes have one name"),
        ({"set_of": {"gin": []}}, "set_of has gin, which the plan has not"),
        (
            {"then": "best-of-each", "changes": [{"name": "a", "variant": "text"}]},
            "then takes changes of keys",
        ),
        ({"changes": [{"name": "a", "models": ["gin"]}]}, "a is for gin, which the plan has not"),
        ({"changes": [{"name": "a/b"}]}, "changes.0.name"),
        ({"seeds": "3..1"}, "seeds"),
        ({"seeds": "many"}, "seeds"),
        ({"seeds": [-1]}, "seeds.0"),
        ({"epochs": 0}, "epochs"),
        ({"choose": "test"}, "choose"),
    ]
    check_each(check, cases)


def test_a_file_that_is_no_plan(tmp_path: Path):
    (tmp_path / "no.toml").write_text("about = ")
    for path in (tmp_path / "no.toml", tmp_path / "absent.toml"):
        with pytest.raises(UsageError, match="cannot be used"):
            read_plan(str(path))
