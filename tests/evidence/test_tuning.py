"""Tuning: candidates, what is kept, when it is used, and when it must not be."""

from __future__ import annotations

import json
import logging
import multiprocessing
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

import anymetal.ops  # noqa: F401  (declares operators)
from anymetal.evidence import tuning
from anymetal.evidence.sweep import Prepared, Subject, candidates, exported, sweep
from anymetal.evidence.tuning import plans, subjects
from anymetal.ops.declare import OPERATORS
from anymetal.policy import policy, tuning_cache
from anymetal.policy.policy import choose, row_for
from anymetal.policy.policy_file import parse_policies
from anymetal.policy.tuning_cache import Key, Trial, Tuned, keep, key_for, look_up, read
from anymetal.store.cache import default_store

CPU = torch.device("cpu")


@pytest.fixture
def subject(
    sample: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Subject]:
    """The forward question of the sample operator, and a cache of its own."""
    found = subjects([sample.square], [torch.float32], CPU)
    monkeypatch.setenv("ANYMETAL_CACHE_DIR", str(tmp_path / "cache"))
    policy.forget()
    yield next(one for one in found if one.question.operator == "sample_square")


def chosen(dtype: str = "fp32", device: str = "cpu") -> tuple[int, str]:
    choice = choose("sample_square", dtype, "any", device, "elementwise")
    return choice.group_size, choice.origin


def tuned_to(key: Key, size: int) -> Tuned:
    trial = Trial(size, {}, 10.0)
    return Tuned(key, trial, (trial,))


def test_questions_of_an_operator_and_its_gradient(sample: ModuleType) -> None:
    found = subjects([sample.square], [torch.float32, torch.float16], CPU)
    asked = {(one.question.operator, one.question.dtype) for one in found}
    both = ("sample_square", "sample_square_backward")
    assert asked >= {(name, dtype) for name in both for dtype in ("fp32", "fp16")}


def test_a_question_is_tuned_by_a_call_that_it_decides() -> None:
    with policy.as_if_on("cuda"):
        found = plans([OPERATORS["softmax"]], [torch.float32], CPU)
    by = {
        (plan.question.operator, plan.question.strategy): plan.asker.exercise.case.name
        for plan in found
    }
    assert by["softmax", "single_simdgroup"].startswith("8x512")
    assert by["softmax", "single_group"].startswith("256x8192")
    assert by["softmax_backward", "two_phase"].startswith("2x262144")
    assert by["softmax", "columns"].startswith("1024x512 dim=0")
    # What a row of 8192 elements is launched by depends on the steps with small groups alone.
    (group,) = [one for one in found if one.question.strategy == "single_group"][-1:]
    assert len(group.candidates) < len(candidates(row_for(group.question)))


def test_a_gpu_is_planned_for_with_tensors_of_the_cpu(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "key_for", lambda question: subject.key)
    found = subjects([OPERATORS["sample_square"]], [torch.float32], torch.device("cuda"))
    assert {(one.question.operator, one.question.device) for one in found} == {
        ("sample_square", "cuda"),
        ("sample_square_backward", "cuda"),
    }
    prepared_on = [one.prepare.args[0].exercise.device.type for one in found]  # type: ignore[attr-defined]
    assert prepared_on == ["cuda", "cuda"]


def test_without_what_was_tuned(subject: Subject) -> None:
    keep(tuned_to(subject.key, 64))
    with policy.untuned():
        assert chosen()[0] == 128
        keep(tuned_to(subject.key, 32))
        assert chosen()[0] == 128
    assert chosen() == (32, "tuned")


def test_call_that_cannot_be_made_is_a_failure(subject: Subject) -> None:
    def prepare() -> Prepared:
        raise RuntimeError("no tensors")

    tuned = sweep(replace(subject, prepare=prepare), CPU, 0.01)
    assert tuned.best is None and len(tuned.trials) == 3
    assert {trial.failure for trial in tuned.trials} == {"RuntimeError: no tensors"}


def test_candidates_start_with_the_policys_own(subject: Subject) -> None:
    assert candidates(row_for(subject.question)) == [(128, ()), (32, ()), (64, ())]


def test_candidates_of_several_values() -> None:
    text = (
        'version = 1\n[[policy]]\noperator = "f"\nstrategy = "looped"\ngroup_size = 64\n'
        "values = { rows = 2, fixed = 7 }\ncandidates = { group_size = [32, 64], rows = [1, 2] }\n"
    )
    words = policy._package_file().words
    (row,) = parse_policies(text, Path("x.toml"), words).rows
    found = candidates(row)
    assert found[0] == (64, (("fixed", 7), ("rows", 2)))
    assert len(found) == 4 and all(dict(values)["fixed"] == 7 for _, values in found)


def test_sweep_times_what_is_right(subject: Subject) -> None:
    tuned = sweep(subject, CPU, 0.01)
    assert [trial.group_size for trial in tuned.trials] == [128, 32, 64]
    assert all(trial.failure is None and trial.microseconds for trial in tuned.trials)
    assert tuned.best in tuned.trials


def test_wrong_candidates_are_failures(sample: ModuleType, subject: Subject) -> None:
    sample.Mistakes.only_group_size = 64
    tuned = sweep(subject, CPU, 0.01)
    failed = {trial.group_size: trial for trial in tuned.trials if trial.failure}
    assert set(failed) == {128, 32}
    assert all(trial.microseconds is None for trial in failed.values())
    assert tuned.best is not None and tuned.best.group_size == 64


def test_question_without_a_working_candidate(sample: ModuleType, subject: Subject) -> None:
    sample.Mistakes.raises = "no luck"
    tuned = sweep(subject, CPU, 0.01)
    assert tuned.best is None
    assert {trial.failure for trial in tuned.trials} == {"RuntimeError: no luck"}
    keep(tuned)
    assert read(subject.key) == tuned
    assert look_up(subject.question) is None
    assert chosen() == (128, chosen()[1])


def test_tuned_value_is_used_where_its_key_matches(subject: Subject) -> None:
    assert chosen()[0] == 128
    keep(tuned_to(subject.key, 64))
    assert chosen() == (64, "tuned")
    assert chosen("fp16")[0] == 128


@pytest.mark.parametrize(
    "change",
    [
        {"device": "another processor"},
        {"engine": "gpu"},
        {"system": "Plan 9"},
        {"torch": "0.1"},
        {"kernel": "00"},
        {"policy": "00"},
        {"shape_class": "large"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_tuned_value_of_another_key_is_not_used(subject: Subject, change: dict[str, str]) -> None:
    keep(tuned_to(replace(subject.key, **change), 64))
    assert chosen()[0] == 128


def test_value_tuned_on_the_cpu_never_reaches_a_gpu(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tuned_to(subject.key, 64))
    monkeypatch.setattr(
        policy, "device_families", lambda d: ("mps-m3", "mps") if d == "mps" else (d,)
    )
    policy.forget()
    assert chosen(device="cpu") == (64, "tuned")
    assert chosen(device="mps")[0] == 128
    key = key_for(replace(subject.question, device="mps"))
    assert key is not None and (key.engine, subject.key.engine) == ("gpu", "cpu")


def test_changed_kernel_is_tuned_anew(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(tuned_to(subject.key, 64))
    monkeypatch.setitem(tuning_cache._sources, "sample_square", lambda: "other text")
    policy.forget()
    assert chosen()[0] == 128


def test_users_file_and_override_go_before_tuned_values(
    subject: Subject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keep(tuned_to(subject.key, 64))
    path = tmp_path / "mine.toml"
    path.write_text(exported([(subject.question, tuned_to(subject.key, 32))], "mine"))
    monkeypatch.setenv("ANYMETAL_POLICY", str(path))
    assert chosen() == (32, "mine.toml:5")
    with policy.override("sample_square", group_size=96):
        assert chosen()[0] == 96


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 99},
        {"best": {"group_size": 5000, "values": {}, "microseconds": 1.0, "failure": None}},
        {"best": {"group_size": "64", "values": {}, "microseconds": 1.0, "failure": None}},
        {"best": {"group_size": 64, "values": {"a": -1}, "microseconds": 1.0, "failure": None}},
        {"best": {"size": 64}},
        {"trials": None},
        {"key": {}},
    ],
    ids=str,
)
def test_unsound_entry_is_reported_and_not_used(
    subject: Subject, caplog: pytest.LogCaptureFixture, change: dict[str, object]
) -> None:
    note = {"schema": tuning_cache.SCHEMA, **asdict(tuned_to(subject.key, 64)), **change}
    default_store().put("tuning", subject.key.digest(), json.loads(json.dumps(note)))
    with caplog.at_level(logging.WARNING, "anymetal.launch.tuning"):
        assert look_up(subject.question) is None
    assert "is not used" in caplog.text


def _keep_many(key: Key, sizes: list[int]) -> None:
    for size in sizes:
        keep(tuned_to(key, size))


def test_processes_may_tune_at_once(subject: Subject) -> None:
    context = multiprocessing.get_context("fork")
    processes = [
        context.Process(target=_keep_many, args=(subject.key, [32 * (i + 1)] * 50))
        for i in range(3)
    ]
    for process in processes:
        process.start()
    for _ in range(100):
        tuned = read(subject.key)
        assert tuned is None or tuned.best is not None
    for process in processes:
        process.join()
    tuned = read(subject.key)
    assert tuned is not None and tuned.best is not None and tuned.best.group_size in (32, 64, 96)


def test_export_is_a_policy_file(subject: Subject) -> None:
    failed = Tuned(subject.key, None, ())
    best = Trial(64, {"rows": 3}, 1.0)
    text = exported(
        [(subject.question, Tuned(subject.key, best, (best,))), (subject.question, failed)], "title"
    )
    (row,) = parse_policies(text, Path("x.toml"), policy._package_file().words).rows
    assert (row.group_size, row.values, row.device) == (64, {"rows": 3}, "cpu")
    assert row.candidates == row_for(subject.question).candidates


def test_export_has_what_differs_from_the_package_and_operators_together(subject: Subject) -> None:
    gradient = replace(subject.question, operator="sample_square_backward")
    other = replace(subject.question, dtype="fp16")
    results = [
        (subject.question, tuned_to(subject.key, 64)),
        (other, tuned_to(subject.key, 128)),  # the package's own
        (gradient, tuned_to(subject.key, 64)),
    ]
    text = exported(results, "title")
    (row,) = parse_policies(text, Path("x.toml"), policy._package_file().words).rows
    assert row.operators == {"sample_square", "sample_square_backward"}
    together = policy.PACKAGE_FILE.read_text() + text.partition("version = 1")[2]
    parsed = parse_policies(together, Path("x.toml"), policy._package_file().words)
    assert len(parsed.rows) == len(policy._package_file().rows) + 1
