"""`GET /metrics`: counters in Prometheus' text format."""

from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.responses import Response

from surefoot.engine import GenerationState
from surefoot.server.service import Service

TEXT = "text/plain; version=0.0.4; charset=utf-8"


class EngineCollector(Collector):
    """Reads the engine's figures when they are asked for."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def collect(self) -> Iterable[Metric]:
        """The figures now."""
        status = self._service.engine.status()
        totals, figures, health = status.totals, status.figures, status.health
        ended = CounterMetricFamily("surefoot_requests", "Requests that ended", labels=["state"])
        for state in GenerationState:
            if state.over:
                ended.add_metric([state.value], totals.ended[state.value])
        yield ended
        for name, text, value in (
            ("prompt_tokens", "Tokens of prompts", totals.prompt_tokens),
            ("cached_tokens", "Tokens of prompts that memory still held", totals.cached_tokens),
            ("generated_tokens", "Tokens generated", totals.generated_tokens),
            ("drafted_tokens", "Draft tokens verified", totals.drafted),
            ("accepted_tokens", "Draft tokens accepted", totals.accepted),
            ("near_ties", "Committed tokens that logit noise might change", totals.near_ties),
            ("recoveries", "Memories absorbed again after a failure", totals.recoveries),
            ("rounds", "Rounds played", figures.rounds),
            ("passes", "Forward passes", figures.passes),
            ("graph_runs", "Graph runs of those passes", figures.graph_runs),
            ("queue_refused", "Requests that found the queue full", status.refused),
            ("queue_timeouts", "Requests that waited too long", figures.timed_out),
            ("worker_restarts", "Times that the worker was started again", status.restarts),
        ):
            yield CounterMetricFamily(f"surefoot_{name}", text, value=value)
        yield from _cache(figures.cache)
        for name, text, value in (
            ("slots_busy", "Slots in use, strict requests left out", health.slots_busy),
            ("strict_busy", "Strict requests in lanes of their own", health.strict_busy),
            ("requests_waiting", "Requests waiting", health.waiting),
            ("slots_stalled", "Slots that do not move", len(health.stalled)),
        ):
            yield GaugeMetricFamily(f"surefoot_{name}", text, value=value)
        for name, text, label, counted in (
            (
                "speculation_off",
                "Requests that the watchdog took speculation from",
                "cause",
                figures.speculation_off,
            ),
            (
                "memories_rebuilt",
                "Suspected memories built again, by the next choice",
                "outcome",
                figures.rebuilds,
            ),
        ):
            family = CounterMetricFamily(f"surefoot_{name}", text, labels=[label])
            for cause, count in sorted(counted.items()):
                family.add_metric([cause], count)
            yield family
        agreement = figures.agreement
        if agreement is not None:
            checked = CounterMetricFamily(
                "surefoot_self_check_tokens", "Tokens scored again", labels=["agreement"]
            )
            checked.add_metric(["equal"], agreement.equal)
            checked.add_metric(["near tie"], agreement.near_ties)
            checked.add_metric(["wrong"], agreement.wrong)
            yield checked
            answers = CounterMetricFamily(
                "surefoot_self_check_answers", "Answers scored again", labels=["outcome"]
            )
            answers.add_metric(["checked"], agreement.answers - agreement.failed)
            answers.add_metric(["failed"], agreement.failed)
            yield answers


def _cache(facts: dict[str, Any]) -> Iterable[Metric]:
    """The prompt cache's figures, by tier, and where reused tokens came from."""
    for figure, name, text in (
        ("budget", "cache_budget_bytes", "Bytes that the prompt cache may take"),
        ("bytes", "cache_bytes", "Bytes that it takes"),
        ("entries", "cache_entries", "States that it holds"),
    ):
        gauge = GaugeMetricFamily(f"surefoot_{name}", text, labels=["tier"])
        for tier, figures in facts["tiers"].items():
            gauge.add_metric([tier], figures[figure])
        yield gauge
    hits = CounterMetricFamily("surefoot_cache_hits", "Requests that reused", labels=["origin"])
    tokens = CounterMetricFamily("surefoot_reused_tokens", "Tokens reused", labels=["origin"])
    for origin, count in facts["hits"].items():
        hits.add_metric([origin], count)
        tokens.add_metric([origin], facts["reused_tokens"][origin])
    yield hits
    yield tokens
    yield CounterMetricFamily(
        "surefoot_cache_misses", "Requests that reused nothing", value=facts["misses"]
    )


def metrics_router(service: Service) -> APIRouter:
    """The endpoint."""
    router = APIRouter()
    registry = CollectorRegistry()
    registry.register(EngineCollector(service))

    @router.get("/metrics")
    def metrics() -> Response:
        """Tell the engine's figures."""
        return Response(generate_latest(registry), media_type=TEXT)

    return router
