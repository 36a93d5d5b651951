"""The built site in Chromium: `make site-test`. Not part of `make test`, which needs neither the site nor a browser."""

import functools
import os
import re
import shutil
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Request, sync_playwright

REPOSITORY = Path(__file__).parents[2]
SITE = REPOSITORY / "build" / "site"
TO_START, SEARCH = "index.html", "search.html"
"""A page that leads to another one at once, and one whose heading is in the theme's hands."""
PAGES = sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html") if "_static" not in path.parts)
SCREENSHOTS = REPOSITORY / "build" / "screenshots"
SEEN = ["docs/index.html", "docs/tutorials/two_machines.html", "docs/observe.html", "docs/errors/data-differs.html"]
SEEN += ["docs/api/paceline.launch.html"]
NARROW = {"width": 360, "height": 740}
RULES = ["color-contrast", "document-title", "empty-heading", "heading-order", "html-has-lang", "image-alt"]
RULES += ["duplicate-id-aria", "label", "link-name", "page-has-heading-one"]

_ROW = re.compile(r"^\| .+ \| `(.+)` \| \[.+\]\((\S+)\.md(?:#(\S+))?\) \|$", re.MULTILINE)
"""The words typed and the page, of a row of docs/questions.md."""


def _asked_by_a_reader() -> dict[str, str]:
    """The tables of docs/questions.md. The site has a page for each code of docs/troubleshooting.md."""
    rows = _ROW.findall((REPOSITORY / "docs" / "questions.md").read_text(encoding="utf-8"))
    return {words: f"docs/errors/{code}" if code else f"docs/{page}" for words, page, code in rows}


QUESTIONS = {
    "resume after failure": "docs/snapshots",
    "data-differs": "docs/errors/data-differs",
    "Horovod": "docs/migration",
    "Kubernetes manifest": "docs/render",
    "TF_CONFIG": "docs/tf_config",
    "paceline.launch": "docs/api/paceline.launch",
    "embedding larger than worker": "docs/parameter_servers",
    "max-restarts": "docs/snapshots",
    "BatchNormalization own rows": "docs/step_costs",
    **_asked_by_a_reader(),
}
"""What somebody types, and the page that must be among the first results."""
AMONG = 5

pytestmark = pytest.mark.timeout(300)


class _Links(HTMLParser):
    """The anchors of a page, and what its links and pictures lead to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.anchors = {""}
        self.targets: list[str] = []
        self.feed((SITE / page).read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.anchors |= {name for name in (given.get("id"), given.get("name")) if name}
        target = given.get("src") or (given.get("href") if tag in ("a", "link") else None)
        self.targets += [target] if target else []


@functools.cache
def links(page: str) -> _Links:
    return _Links(page)


def test_no_link_is_dead() -> None:
    dead = []
    for page in PAGES:
        for target in links(page).targets:
            if urlsplit(target).scheme or target.startswith("//"):
                continue
            parts = urlsplit(urljoin(f"/{page}", target))
            there = unquote(parts.path).lstrip("/")
            if not (SITE / there).is_file():
                dead.append(f"{page}: {target}")
            elif there.endswith(".html") and unquote(parts.fragment) not in links(there).anchors:
                dead.append(f"{page}: {target}: no such anchor")
    assert not dead


def test_each_code_has_its_page() -> None:
    """Its name is the code, so who has the code has the address."""
    sections = (
        (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text(encoding="utf-8").split("\n### ")[1:]
    )
    assert {f"docs/errors/{section.splitlines()[0]}.html" for section in sections} <= set(PAGES)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where the site is served, as on any web server, on this machine alone."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            """The console of the browser says what failed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which(os.environ.get("CHROMIUM", "chromium"))
    assert program, "Chromium is missing. On Debian: apt install chromium"
    with sync_playwright() as playwright:
        # Debian's Chromium has no sandbox for root, in which containers run.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"], timeout=120_000)
        yield browser
        browser.close()


class Visit:
    """A page in the browser, and what went wrong on it."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.address = address
        self.faults: list[str] = []
        self.page: Page = context.new_page()
        self.page.set_default_timeout(120_000)
        self.page.on("console", lambda said: self._fault(said.text) if said.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self._fault(str(error)))
        self.page.on("requestfailed", lambda request: self._failed(request))
        self.page.on("response", lambda got: self._fault(f"{got.status}: {got.url}") if got.status >= 400 else None)
        self.page.on("request", lambda request: self._check(request.url))

    def _fault(self, text: str) -> None:
        self.faults.append(text)

    def _failed(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # that of the page before, which was left while its icon was loading
            self._fault(f"failed: {request.url}")

    def _check(self, url: str) -> None:
        if not url.startswith((f"{self.address}/", "data:", "blob:")):
            self._fault(f"foreign: {url}")

    def open(self, path: str) -> None:
        self.page.goto(f"{self.address}/{path}")


@pytest.fixture(scope="module")
def shared_visit(browser: Browser, address: str) -> Iterator[Visit]:
    context = browser.new_context(viewport=NARROW)
    yield Visit(context, address)
    context.close()


@pytest.fixture
def visit(shared_visit: Visit) -> Visit:
    shared_visit.faults.clear()
    return shared_visit


def _violations(page: Page) -> list[str]:
    found = Axe().run(page, options={"runOnly": {"type": "rule", "values": RULES}, "resultTypes": ["violations"]})
    violations = found.response["violations"]
    return [f"{one['id']}: {node['target']} {node['failureSummary']}" for one in violations for node in one["nodes"]]


def test_the_root_leads_to_the_first_page(visit: Visit) -> None:
    visit.open(TO_START)
    visit.page.wait_for_url("**/docs/index.html")
    assert not visit.faults


@pytest.mark.parametrize("path", [path for path in PAGES if path != TO_START])
def test_a_page_loads_on_a_phone(path: str, visit: Visit) -> None:
    """No error, no request to another host, nothing beside the screen."""
    visit.open(path)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= NARROW["width"], "scrolls sideways"
    assert not visit.faults


@pytest.mark.parametrize("path", [path for path in PAGES if path not in (TO_START, SEARCH)])
def test_a_page_can_be_read_by_day_and_by_night(path: str, visit: Visit) -> None:
    visit.page.emulate_media(color_scheme="light")
    visit.open(path)
    assert not _violations(visit.page), "by day"
    visit.page.emulate_media(color_scheme="dark")
    assert not _violations(visit.page), "by night"


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", SEEN)
def test_pages_are_there_to_be_looked_at(name: str, width: int, visit: Visit) -> None:
    """A reviewer looks at build/screenshots; here, that each picture shows something."""
    visit.page.set_viewport_size({"width": width, "height": 900})
    visit.open(name)
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    path = SCREENSHOTS / f"{Path(name).stem}-{width}.png"
    visit.page.screenshot(path=path)
    assert path.stat().st_size > 10_000


@pytest.mark.parametrize(("question", "answer"), QUESTIONS.items())
def test_search_finds(question: str, answer: str, visit: Visit) -> None:
    visit.open("docs/index.html")
    field = visit.page.locator("input[name=q]").first
    field.evaluate("(field, text) => { field.value = text; field.form.submit() }", question)
    visit.page.wait_for_selector("#search-results .search-summary:not(:empty)")
    visit.page.wait_for_selector("#search-results ul.search li a")
    visit.page.wait_for_function("document.querySelector('#search-results h2')?.textContent !== 'Searching'")
    found = visit.page.eval_on_selector_all("#search-results ul.search > li > a", "all => all.map(one => one.href)")
    paths = [urlsplit(one).path.lstrip("/").removesuffix(".html") for one in found]
    assert answer in paths[:AMONG]
    assert not visit.faults
