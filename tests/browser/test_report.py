"""Pages in a real headless Chromium. Run by `make test-browser`, which installs it if it can."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ropewalk.blocks import Cell, Code, Page, Section, Table
from ropewalk.reports.page.html import document
from tests.reports.page.pages import largest, page_of
from tests.reports.page.payloads import PAYLOADS

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
LIGHT, DARK = "1", "0"

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium; see make test-browser"),
]


def browse(file: Path, *arguments: str, scheme: str = LIGHT) -> tuple[str, list[str]]:
    """What Chromium prints of a page, and what it says on its console."""
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *("--enable-logging=stderr", f"--blink-settings=preferredColorScheme={scheme}"),
            *(f"--user-data-dir={file.parent / 'profile'}", *arguments, file.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def written(folder: Path, content: bytes) -> Path:
    file = folder / "report.html"
    file.write_bytes(content)
    return file


def with_probe(content: bytes, probe: str) -> bytes:
    """The page with a script of the test's own, and without the policy that would forbid it."""
    policy_from = content.index(b'<meta http-equiv="Content-Security-Policy"')
    policy_to = content.index(b"/>", policy_from) + 2
    loosened = content[:policy_from] + content[policy_to:]
    return loosened.replace(b"</body>", f"<script>{probe}</script></body>".encode())


@pytest.mark.parametrize("with_policy", [True, False])
def test_hostile_texts_do_nothing(tmp_path: Path, with_policy: bool) -> None:
    """Also without the policy, which is the second line of defence."""
    content = document(page_of(["a harmless title", *PAYLOADS]))
    file = written(tmp_path, content if with_policy else with_probe(content, ""))
    page, console = browse(file, "--dump-dom", "--virtual-time-budget=2000")
    assert "<title>a harmless title</title>" in page
    assert console == []


@pytest.mark.parametrize("scheme", [LIGHT, DARK])
@pytest.mark.parametrize("width", [1200, 500])
def test_nothing_is_said_on_the_console_and_nothing_is_wider_than_the_window(
    tmp_path: Path, scheme: str, width: int
) -> None:
    probe = (
        "document.title = [document.documentElement.scrollWidth, innerWidth,"
        " getComputedStyle(document.body).backgroundColor].join(' ')"
    )
    content = document(page_of(["a page", "x" * 300]))
    _, console = browse(written(tmp_path, content), "--dump-dom", scheme=scheme)
    assert console == []
    file = written(tmp_path, with_probe(content, probe))
    page, _ = browse(file, "--dump-dom", f"--window-size={width},900", scheme=scheme)
    title = page.partition("<title>")[2].partition("</title>")[0]
    wide, window, paper = title.split(" ", 2)
    assert int(wide) <= int(window)
    assert (paper == "rgb(255, 255, 255)") == (scheme == LIGHT)


def test_tables_sort_by_number_and_by_text_from_the_keyboard(tmp_path: Path) -> None:
    probe = """
      const table = [...document.querySelectorAll("section > .scroll > table")][0];
      const rows = () => [...table.tBodies[0].rows];
      const column = (i) => rows().map((row) => row.cells[i].textContent).join();
      const button = table.querySelectorAll("th button")[1];
      button.focus();
      const found = [document.activeElement === button, column(0)];
      button.click(); found.push(column(0), button.parentNode.ariaSort);
      button.click(); found.push(column(0), button.parentNode.ariaSort);
      document.title = found.join(" ");
    """
    file = written(tmp_path, with_probe(document(page_of(["z"])), probe))
    page, _ = browse(file, "--dump-dom")
    assert "<title>true z,b b,z ascending z,b descending</title>" in page


def test_commands_wrap_in_their_box_on_a_phone_and_are_copied_unchanged(tmp_path: Path) -> None:
    probe = """
      const [pre, button] = document.querySelector(".paste").children;
      const copied = [];
      const clipboard = {writeText: async (text) => copied.push(text)};
      Object.defineProperty(navigator, "clipboard", {value: clipboard});
      button.click();
      document.title = [pre.scrollWidth > pre.clientWidth, button.textContent, ...copied].join();
    """
    command = Code("", f"{'x' * 300}; y")
    content = document(Page("a page", "", (), (Section("s", (command,)),)))
    file = written(tmp_path, with_probe(content, probe))
    page, _ = browse(file, "--dump-dom", "--window-size=500,900")
    assert page.partition("<title>")[2].startswith(f"false,Copy,{command.text}</title>")


def test_the_largest_page_opens(tmp_path: Path) -> None:
    file, picture = written(tmp_path, document(largest())), tmp_path / "page.png"
    _, console = browse(file, f"--screenshot={picture}", "--window-size=1200,2000")
    assert console == []
    assert picture.stat().st_size > 10_000


@pytest.mark.parametrize(("width", "shown"), [(1200, "table-cell"), (500, "block")])
def test_rows_of_a_wide_table_are_lists_on_a_phone(tmp_path: Path, width: int, shown: str) -> None:
    probe = """
      const cell = document.querySelector("section > .scroll > table").rows[1].cells[1];
      const name = getComputedStyle(cell, "::before").content.replaceAll('"', "");
      document.title = [getComputedStyle(cell).display, name].join();
    """
    row = tuple(Cell(f"a long text of cell {i}") for i in range(6))
    table = Table("", tuple(f"column {i}" for i in range(6)), (row,))
    content = document(Page("a page", "", (), (Section("s", (table,)),)))
    file = written(tmp_path, with_probe(content, probe))
    page, _ = browse(file, "--dump-dom", f"--window-size={width},900")
    told = page.partition("<title>")[2].partition("</title>")[0]
    assert told == f"{shown},{'column 1: ' if shown == 'block' else 'none'}"
