"""Requests to GitHub's REST API: authenticated, patient with limits and outages for a bounded time, and discreet.

When to wait, and how long, is GitHub's own rule ("Best practices for using the REST API", docs.github.com): Retry-After
first, else the reset of an exhausted limit, else a minute and then longer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2

from harness.github.clock import Clock, SystemClock
from harness.model.errors import ConfigurationError, FasttrackError

API_URL = "https://api.github.com"
API_VERSION = "2022-11-28"
MAX_ATTEMPTS = 6
MAX_WAIT_S = 900.0
"""Over all the waits of one request."""
SECONDARY_WAIT_S = 60.0
MAX_PAGES = 100
MAX_MESSAGE = 300
PER_PAGE = 100
_CHUNK = 1 << 16
_LOOPBACK = ("127.0.0.1", "localhost")


class GitHubError(FasttrackError):
    """GitHub did not do what was asked; `status` is None where it did not answer."""

    def __init__(self, slug: str, message: str, advice: str = "", status: int | None = None) -> None:
        super().__init__(slug, message, advice)
        self.status = status


class Transport:
    """Sends requests under one token, which no error names."""

    def __init__(self, token: str, *, url: str = API_URL, clock: Clock | None = None) -> None:
        self._token = token
        self._origin = _origin(url)
        if self._origin[0] != "https" and self._origin[1] not in _LOOPBACK:
            raise ConfigurationError("api-url", f"{url} is not https: the token would be read on the way.")
        self._clock = clock or SystemClock()
        self._headers = {
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": API_VERSION,
            "User-Agent": "fasttrack",
            **({"Authorization": f"Bearer {token}"} if token else {}),
        }
        self._http = httpx2.Client(base_url=url, timeout=60)

    def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> httpx2.Response:
        """The answer, of a status below 400, to a request that may be sent again without harm.

        Raises:
            GitHubError: refused, or still no answer after all attempts.
        """
        answer: httpx2.Response = self._patiently(method, path, params, body, lambda: None)
        return answer

    def send_once(self, method: str, path: str, body: Mapping[str, Any], done: Callable[[], Any]) -> Any:
        """The JSON value of the answer to a request whose repetition would do its work twice.

        Args:
            method: Of the request.
            path: Below the API's URL.
            body: JSON.
            done: Asked before the request is sent again after an answer that leaves open whether GitHub did it: the
                value that the request would have been answered with when it was done, None when it was not.

        Raises:
            GitHubError: refused, or still no answer after all attempts.
        """
        answer = self._patiently(method, path, None, body, done)
        return self.value(answer) if isinstance(answer, httpx2.Response) else answer

    def _patiently(
        self,
        method: str,
        path: str,
        params: Mapping[str, str | int] | None,
        body: Mapping[str, Any] | None,
        done: Callable[[], Any],
    ) -> Any:
        waited, attempt = 0.0, 1
        while True:
            response = self._attempt(method, path, params, body)
            if isinstance(response, httpx2.Response) and response.status_code < 400:
                return response
            wait = self._wait_s(response, attempt)
            if wait is None or attempt >= MAX_ATTEMPTS or waited + wait > MAX_WAIT_S:
                raise self._error(method, path, response, wait)
            self._clock.sleep(wait)
            if _is_unclear(response) and (found := done()) is not None:
                return found
            waited, attempt = waited + wait, attempt + 1

    def pages(self, path: str, params: Mapping[str, str | int] | None = None, key: str = "") -> Iterator[Any]:
        """Every item of a list over all its pages, as the Link headers chain them.

        Args:
            path: Below the API's URL.
            params: Of the query; `per_page` is added.
            key: The property of the answer that holds the items; empty: the answer is the list.
        """
        response = self.send("GET", path, params={**(params or {}), "per_page": PER_PAGE})
        for _ in range(MAX_PAGES):
            value = self.value(response)
            items = value.get(key) if key and isinstance(value, dict) else value
            if not isinstance(items, list):
                raise self._unexpected(path, "a list")
            yield from items
            following = response.links.get("next", {}).get("url")
            if not following:
                return
            if _origin(following) != self._origin:
                raise self._unexpected(path, "a next page of the same host")
            response = self.send("GET", following)
        raise self._unexpected(path, f"at most {MAX_PAGES} pages")

    def value(self, response: httpx2.Response) -> Any:
        """The JSON value of an answer."""
        try:
            return response.json()
        except ValueError:
            raise self._unexpected(response.request.url.path, "JSON") from None

    def download(self, path: str, target: Path, max_bytes: int) -> None:
        """Writes the file that GitHub redirects to. Its store is another host, which the token does not concern.

        Raises:
            GitHubError: refused, too large, or no redirect to a place that may be asked.
        """
        location = self.send("GET", path).headers.get("location", "")
        if not location.startswith("https://") and _origin(location) != self._origin:
            raise self._unexpected(path, "a redirect to https")
        num_bytes = 0
        try:
            with self._http.stream("GET", location) as response, target.open("wb") as file:
                if response.status_code != 200:
                    raise self._unexpected(path, f"a file, and its store answered {response.status_code}")
                for chunk in response.iter_bytes(_CHUNK):
                    num_bytes += len(chunk)
                    if num_bytes > max_bytes:
                        raise self._unexpected(path, f"at most {max_bytes} bytes")
                    file.write(chunk)
        except httpx2.TransportError as error:
            raise self._error("GET", path, error, None) from None

    def _attempt(
        self,
        method: str,
        path: str,
        params: Mapping[str, str | int] | None,
        body: Mapping[str, Any] | None,
    ) -> httpx2.Response | httpx2.TransportError:
        try:
            return self._http.request(method, path, params=params, json=body, headers=self._headers)
        except httpx2.TransportError as error:
            return error

    def _wait_s(self, response: httpx2.Response | httpx2.TransportError, attempt: int) -> float | None:
        """Seconds until it makes sense to ask again; None when it never will."""
        backoff = 2.0 ** (attempt - 1)
        if not isinstance(response, httpx2.Response):
            return backoff
        if response.status_code >= 500:
            return max(backoff, _seconds(response, "retry-after") or 0.0)
        if response.status_code not in (403, 429):
            return None
        after = _seconds(response, "retry-after")
        if after is not None:
            return after
        reset = _seconds(response, "x-ratelimit-reset")
        if response.headers.get("x-ratelimit-remaining") == "0" and reset is not None:
            return max(1.0, reset - self._clock.now() + 1.0)
        is_limit = response.status_code == 429 or "rate limit" in self._said(response).lower()
        return SECONDARY_WAIT_S * backoff if is_limit else None

    def _error(
        self,
        method: str,
        path: str,
        response: httpx2.Response | httpx2.TransportError,
        wait: float | None,
    ) -> GitHubError:
        asked = f"{method} {path.partition('?')[0]}"
        if not isinstance(response, httpx2.Response):
            message = self._discreet(f"{asked}: no answer ({type(response).__name__}).")
            return GitHubError("github-unreachable", message, "Run it again.")
        status = response.status_code
        message = self._discreet(f"{asked} answered {status}: {self._said(response)}")
        if status >= 500:
            return GitHubError("github-outage", message, "Run it again when GitHub is well.", status)
        if wait is not None:
            advice = f"GitHub asks to wait {wait:.0f} s; run it again then."
            return GitHubError("github-rate-limit", message, advice, status)
        if status in (401, 403, 404):
            advice = (
                "The token may not do this. The job must grant it (docs/github.md lists the permissions); a"
                " pull_request run of a fork never has them."
            )
            return GitHubError("github-refused", message, advice, status)
        return GitHubError("github-rejected", message, "", status)

    def _unexpected(self, path: str, expected: str) -> GitHubError:
        message = self._discreet(f"{path.partition('?')[0]}: GitHub's answer is not {expected}.")
        return GitHubError("github-unexpected", message)

    def _said(self, response: httpx2.Response) -> str:
        """GitHub's own message, cut, printable."""
        try:
            value = response.json()
        except ValueError:
            value = None
        text = str(value.get("message", "")) if isinstance(value, dict) else ""
        return "".join(c for c in text if c.isprintable())[:MAX_MESSAGE] or "no message"

    def _discreet(self, text: str) -> str:
        return text.replace(self._token, "***") if self._token else text


def _origin(url: str) -> tuple[str, str, int | None]:
    parsed = httpx2.URL(url)
    return parsed.scheme, parsed.host, parsed.port


def _is_unclear(answer: httpx2.Response | httpx2.TransportError) -> bool:
    """Whether GitHub may have done what was asked, whatever it answered."""
    return not isinstance(answer, httpx2.Response) or answer.status_code >= 500


def _seconds(response: httpx2.Response, header: str) -> float | None:
    text = response.headers.get(header, "")
    return float(text) if text.isdecimal() and len(text) < 12 else None
