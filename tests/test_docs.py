"""What the documents say is true: their examples run, their links lead somewhere, their tables are complete."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


@pytest.mark.parametrize("document", ["README.md", "docs/guide.md"])
def test_the_examples_run(document: str, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    assert blocks
    namespace: dict[str, object] = {}
    for block in blocks:
        exec(compile(block.replace("/tmp/shop", str(tmp_path)), document, "exec"), namespace)
    assert namespace["table"].to_arrow().num_rows >= 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_and_named_files_exist(document: Path) -> None:
    text = document.read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    missing = [link for link in links if not (document.parent / link).exists()]
    named = re.findall(r"`((?:tests|docs|src|models|bench)/[\w./-]+)`", text)
    missing += [name for name in named if not (ROOT / name).exists()]
    assert not missing


def test_every_safeguard_stands_in_the_table_of_promises() -> None:
    sys.path.insert(0, str(ROOT / "tests" / "simulation"))
    from safeguards import SWITCHES

    text = (ROOT / "docs" / "promises.md").read_text()
    assert [name for name in SWITCHES if f"`{name}`" not in text] == []


def test_the_project_speaks_only_of_itself() -> None:
    """No path of a machine, no registry, in anything that ships."""
    words = re.compile("/" + r"work/|/" + r"root/|\.py" + r"pi\.|registry\.np" + "m")
    for path in [*ROOT.glob("src/**/*.py"), *ROOT.glob("tests/**/*.py"), *ROOT.glob("models/*"), *DOCUMENTS,
                 ROOT / "pyproject.toml", ROOT / "Makefile", ROOT / "requirements" / "constraints.txt"]:  # fmt: skip
        if path.is_file():
            assert not words.search(path.read_text()), path
