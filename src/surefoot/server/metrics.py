"""`GET /metrics`: counters in Prometheus' text format."""

from collections.abc import Iterable

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
        totals = status.totals
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
            ("rounds", "Rounds played", status.rounds),
            ("passes", "Forward passes", status.passes),
            ("worker_restarts", "Times that the worker was started again", status.restarts),
        ):
            yield CounterMetricFamily(f"surefoot_{name}", text, value=value)
        yield GaugeMetricFamily("surefoot_slots_busy", "Slots in use", value=status.busy)
        yield GaugeMetricFamily(
            "surefoot_requests_waiting", "Requests waiting", value=status.waiting
        )
        agreement = status.agreement
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
