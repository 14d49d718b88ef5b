"""``/``: the page, a small chat client, and its files below ``/ui/``.

They are the files in ``golem_server/ui``, sent as they are. The page may load nothing from anywhere
else and talk to nobody but this server.
"""

from __future__ import annotations

from importlib.resources import files

from aiohttp import web

from golem_server.errors import ApiError

__all__ = ["POLICY", "add"]

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
KINDS = {
    "html": "text/html",
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
}
FOLDER = files("golem_server") / "ui"


def add(app: web.Application) -> None:
    """Adds the page and its files."""
    app.router.add_get("/", page)
    app.router.add_get("/ui/{name}", file)


async def page(request: web.Request) -> web.Response:
    """The page."""
    return _sent("index.html")


async def file(request: web.Request) -> web.Response:
    """One of the page's files, or 404."""
    return _sent(request.match_info["name"])


def _sent(name: str) -> web.Response:
    # Only a plain name of what is in the folder: nothing leads out of it.
    path = next((one for one in FOLDER.iterdir() if one.name == name), None)
    if path is None or name.rpartition(".")[2] not in KINDS:
        raise ApiError(404, f"the page has no file {name!r}", code="not_found")
    return web.Response(
        text=path.read_text(encoding="utf-8"),
        content_type=KINDS[name.rpartition(".")[2]],
        charset="utf-8",
        headers={
            "Content-Security-Policy": POLICY,
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Cache-Control": "no-cache",
        },
    )
