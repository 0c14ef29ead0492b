"""Settings: every default can be read, and words that mean nothing are refused."""

from __future__ import annotations

import pytest

from anymetal import settings


@pytest.mark.parametrize("setting", settings.ALL, ids=lambda setting: setting.variable)
def test_default_is_a_value(
    setting: settings.Setting[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(setting.variable, raising=False)
    default = setting.value()
    assert default is not None
    assert setting.meaning
    monkeypatch.setenv(setting.variable, "")  # set to nothing is not set
    assert setting.value() == default


@pytest.mark.parametrize(
    ("setting", "text", "expected"),
    [
        (settings.CHECK, "true", "0 or 1"),
        (settings.CHECK_LEVEL, "4", "0, 1, 2 or 3"),
        (settings.TIME_LIMIT, "long", "a number"),
        (settings.TIME_LIMIT, "-1", "a number, 0 or more"),
        (settings.TIME_LIMIT, "nan", "a number, 0 or more"),
        (settings.COMPILE_LIMIT, "inf", "a number, 1 or more"),
        (settings.DEVICE_MISSING, "ignore", "run, warn or error"),
    ],
)
def test_other_words_are_refused(
    setting: settings.Setting[object],
    text: str,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(setting.variable, text)
    with pytest.raises(ValueError, match=f"{setting.variable}='{text}': expected {expected}"):
        setting.value()
