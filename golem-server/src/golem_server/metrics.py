"""What is counted, as Prometheus reads it; each server has a registry of its own.

Sums over tokens come from the engines, so they count answers whose client has left as well; times
are what passes on the event loop, so they are what a client sees but for the network.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from golem_core.engine import Engine, Result, Token
from golem_core.engine.stats import Stats
from golem_server import logs

__all__ = ["Metrics", "SpeechWatch", "Watch"]

MODEL = "model_name"
# Seconds: between two tokens of a small model on a card, and the first of a long prompt.
SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5, 5, 10)
LONG = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)

TIMES = {
    "time_to_first_token_seconds": ("From a request until its first token.", LONG),
    "inter_token_latency_seconds": ("Between two tokens of an answer.", SHORT),
    "e2e_request_latency_seconds": ("From a request until the end of its answer.", LONG),
    "request_queue_time_seconds": ("From a request until its prompt was begun.", LONG),
    "request_prefill_time_seconds": ("Reading a prompt.", LONG),
    "request_decode_time_seconds": ("From the first token until the end.", LONG),
}
FIRST_SOUND = ("time_to_first_sound_seconds", "From a request until its first sound.")

# Of an engine's Stats: what it only ever adds to.
SUMS = {
    "prompt_tokens": "Tokens of prompts, read or known already.",
    "prompt_tokens_cached": "Tokens of prompts that were known already and were not read.",
    "generation_tokens": "Tokens drawn.",
    "spec_decode_num_draft_tokens": "Tokens guessed.",
    "spec_decode_num_accepted_tokens": "Tokens guessed that were drawn as well.",
    "engine_passes": "Passes of the model.",
    "engine_pass_seconds": "Seconds spent in passes.",
    "num_preemptions": "Times that an answer was set aside for want of memory.",
}


@dataclass
class _Times:
    """The histograms of one model."""

    first: Histogram
    between: Histogram
    whole: Histogram
    queue: Histogram
    prefill: Histogram
    decode: Histogram


class Watch:
    """Counts one answer: every `Token` and the `Result`, as they reach the event loop."""

    def __init__(self, name: str, times: _Times, ended: Counter) -> None:
        self._name = name
        self._times = times
        self._ended = ended
        self._log = logs.current()
        self._begun = time.perf_counter()
        self._last: float | None = None

    def event(self, event: Token | Result) -> None:
        """Counts a token or the end."""
        now = time.perf_counter()
        if isinstance(event, Token):
            if event.id is None:
                return
            if self._last is None:
                self._times.first.observe(now - self._begun)
            else:
                self._times.between.observe(now - self._last)
            self._last = now
            return
        timings = event.timings
        self._times.whole.observe(now - self._begun)
        self._times.queue.observe(timings["queued_seconds"])
        self._times.prefill.observe(timings["prompt_seconds"])
        self._times.decode.observe(timings["generate_seconds"])
        self._ended.labels(self._name, event.finish_reason).inc()
        if self._log is not None:
            self._log.add(self._name, event)


class SpeechWatch:
    """Counts one text that is spoken: its sound as it reaches the event loop, and its end."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        self._metrics, self._name = metrics, name
        self._begun = time.perf_counter()
        self._first = True
        self._ended = False
        log = logs.current()
        if log is not None:
            log.model = name

    def sound(self, seconds: float) -> None:
        """So much sound has come."""
        if self._first:
            self._first = False
            self._metrics.first_sound.labels(self._name).observe(time.perf_counter() - self._begun)
        self._metrics.spoken.labels(self._name).inc(seconds)

    def end(self, reason: str) -> None:
        """It was spoken to its end (``stop``), or its client has left (``cancelled``).

        Or it was hung up on, since it took nothing any more (``stalled``).
        """
        if not self._ended:
            self._ended = True
            self._metrics.ended_speech(self._name, reason)


class Metrics(Collector):
    """All counts of a server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._histograms = {
            name: Histogram(f"golem:{name}", text, [MODEL], buckets=buckets, registry=self.registry)
            for name, (text, buckets) in TIMES.items()
        }
        self._ended = Counter(
            "golem:request_success",
            "Answers by how they ended.",
            [MODEL, "finished_reason"],
            registry=self.registry,
        )
        self.refused = Counter(
            "golem:requests_refused",
            "Requests that were answered with an error, by its code.",
            ["code"],
            registry=self.registry,
        )
        self.first_sound = Histogram(
            f"golem:{FIRST_SOUND[0]}", FIRST_SOUND[1], [MODEL], buckets=LONG,
            registry=self.registry,
        )  # fmt: skip
        self.spoken = Counter(
            "golem:speech_seconds", "Seconds of sound that were made.", [MODEL],
            registry=self.registry,
        )  # fmt: skip
        self.embedded = {
            what: Counter(
                f"golem:embedded_{what}", f"{what.capitalize()} that became vectors or scores.",
                [MODEL], registry=self.registry,
            )
            for what in ("texts", "tokens")
        }  # fmt: skip
        self._speaking: dict[str, int] = {}  # texts that are being spoken
        self._speakers: set[str] = set()
        self._embedders: dict[str, Callable[[], int]] = {}  # and how many requests each answers
        self._engines: dict[str, Engine] = {}
        self._kept: dict[str, dict[str, float]] = {}  # of models that were unloaded
        self._times: dict[str, _Times] = {}
        self.registry.register(self)

    def add(self, name: str, engine: Engine) -> None:
        """Counts a model that was loaded."""
        self._engines[name] = engine

    def remove(self, name: str) -> None:
        """Keeps what was counted of a model that is about to be unloaded: sums never fall."""
        self._kept[name] = self._sums(name)
        del self._engines[name]

    def watch(self, name: str) -> Watch:
        """Counts one answer of a model."""
        times = self._times.get(name)
        if times is None:
            times = _Times(*(histogram.labels(name) for histogram in self._histograms.values()))
            self._times[name] = times
        return Watch(name, times, self._ended)

    def add_speaker(self, name: str) -> None:
        """Counts a model that speaks and was loaded."""
        self._speakers.add(name)

    def remove_speaker(self, name: str) -> None:
        """Counts it as loaded no longer; what was counted of it stays."""
        self._speakers.discard(name)

    def watch_speech(self, name: str) -> SpeechWatch:
        """Counts one text that a model speaks."""
        self._speaking[name] = self.speaking(name) + 1
        return SpeechWatch(self, name)

    def add_embedder(self, name: str, running: Callable[[], int]) -> None:
        """Counts a model that embeds and was loaded; `running` says what it is answering."""
        self._embedders[name] = running

    def remove_embedder(self, name: str) -> None:
        """Counts it as loaded no longer; what was counted of it stays."""
        self._embedders.pop(name, None)

    def ended_embedding(self, name: str, tokens: Sequence[int], seconds: float) -> None:
        """Counts a request whose texts have become vectors or scores: the tokens of each."""
        self.embedded["texts"].labels(name).inc(len(tokens))
        self.embedded["tokens"].labels(name).inc(sum(tokens))
        self._histograms["e2e_request_latency_seconds"].labels(name).observe(seconds)
        self._ended.labels(name, "stop").inc()

    def ended_speech(self, name: str, reason: str) -> None:
        """Counts the end of one."""
        self._speaking[name] -= 1
        self._ended.labels(name, reason).inc()

    def speaking(self, name: str) -> int:
        """Texts that a model is speaking."""
        return self._speaking.get(name, 0)

    def totals(self) -> dict[str, float]:
        """The sums over all models, by the names of `SUMS`."""
        found = dict.fromkeys(SUMS, 0.0)
        for name in {*self._engines, *self._kept}:
            for key, value in self._sums(name).items():
                found[key] += value
        return found

    def _sums(self, name: str) -> dict[str, float]:
        sums = dict(self._kept.get(name, dict.fromkeys(SUMS, 0.0)))
        if name in self._engines:
            for key, value in _of(self._engines[name].stats()).items():
                sums[key] += value
        return sums

    def collect(self) -> Iterator[Metric]:
        """What the engines say now; Prometheus's side calls this."""
        for key, text in SUMS.items():
            family = CounterMetricFamily(f"golem:{key}", text, labels=[MODEL])
            for name in sorted({*self._engines, *self._kept}):
                family.add_metric([name], self._sums(name)[key])
            yield family
        running = GaugeMetricFamily("golem:num_requests_running", "Being answered.", labels=[MODEL])
        waiting = GaugeMetricFamily(
            "golem:num_requests_waiting", "Not begun, or set aside.", labels=[MODEL]
        )
        usage = GaugeMetricFamily(
            "golem:kv_cache_usage_perc",
            "The share of the pages in use, of the group that has the fewest left; 1 is all.",
            labels=[MODEL],
        )
        pages = GaugeMetricFamily(
            "golem:kv_cache_pages",
            "Pages by what they are doing; idle ones are kept for who comes with their beginning.",
            labels=[MODEL, "window", "state"],
        )
        for name, engine in sorted(self._engines.items()):
            stats = engine.stats()
            running.add_metric([name], stats.running)
            waiting.add_metric([name], stats.waiting)
            used = [1 - (group.free + group.idle) / group.pages for group in stats.groups]
            usage.add_metric([name], max(used, default=0.0))
            for group in stats.groups:
                window = "all" if group.window is None else str(group.window)
                busy = group.pages - group.free - group.idle
                for state, count in (("used", busy), ("idle", group.idle), ("free", group.free)):
                    pages.add_metric([name, window, state], count)
        for name, count in sorted(self._speaking.items()):
            running.add_metric([name], count)
        for name, asked in sorted(self._embedders.items()):
            running.add_metric([name], asked())
        yield from (running, waiting, usage, pages)
        loaded = GaugeMetricFamily("golem:models_loaded", "Models in memory.")
        loaded.add_metric([], len(self._engines) + len(self._speakers) + len(self._embedders))
        yield loaded


def _of(stats: Stats) -> dict[str, float]:
    return {
        "prompt_tokens": stats.read_tokens + stats.cached_tokens,
        "prompt_tokens_cached": stats.cached_tokens,
        "generation_tokens": stats.generated_tokens,
        "spec_decode_num_draft_tokens": stats.drafted_tokens,
        "spec_decode_num_accepted_tokens": stats.accepted_tokens,
        "engine_passes": stats.passes,
        "engine_pass_seconds": stats.pass_seconds,
        "num_preemptions": stats.set_aside,
    }
