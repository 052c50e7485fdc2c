"""The tracer by itself: what is current, what travels, what a lot is."""

import threading

import pytest

from feedstore.tracing import UNTRACED
from feedstore.tracing.otel import LINKS_MAX
from tests.tracing.recorded import Spans, id_of, linked, names, trace_of


def context(number: int, flags: str = "01") -> str:
    return f"00-{number:032x}-{number:016x}-{flags}"


def test_a_part_belongs_to_what_is_current_and_is_nothing_without_it(spans: Spans):
    tracer = spans.tracer
    with tracer.part("alone"), tracer.trace("whole"), tracer.part("part"):
        pass
    assert spans.tree(spans.one("whole")) == ["whole", "  part"]
    assert spans.named("alone") == []
    assert tracer.context() is None
    assert tracer.ids() == {}


def test_a_call_on_another_thread_is_part_of_the_span_that_it_was_bound_in(spans: Spans):
    tracer = spans.tracer

    def work() -> None:
        with tracer.part("elsewhere"):
            pass

    with tracer.trace("whole"):
        thread = threading.Thread(target=tracer.bound(work))
        thread.start()
        thread.join()
    assert spans.tree(spans.one("whole")) == ["whole", "  elsewhere"]


def test_what_is_not_sampled_has_no_context():
    spans = Spans(sample=0)
    with spans.tracer.trace("whole") as span:
        assert not span.is_recorded
        assert spans.tracer.context() is None
        with spans.tracer.part("part"):
            pass
    with spans.tracer.lot("lot", {}, 5):
        assert spans.tracer.context() is None
    assert spans.all() == []


def test_a_trace_is_chosen_once_for_all_of_its_parts():
    drawn = iter([0.5, 0.1, 0.9, 0.7])
    spans = Spans(sample=0.2)
    spans.tracer._draw = lambda: next(drawn)
    for name in ("first", "second", "third"):
        with spans.tracer.trace(name), spans.tracer.trace("part"):
            pass
    assert names(spans.all()) == ["second", "part"]
    assert next(drawn) == 0.7


def test_what_a_caller_samples_is_recorded_whatever_the_share():
    spans = Spans(sample=0)
    with spans.tracer.trace("whole", parent=context(7)):
        pass
    assert trace_of(spans.one("whole")) == 7


def test_an_error_is_noted_by_its_kind_and_not_by_its_text(spans: Spans):
    with pytest.raises(ValueError, match="secret"), spans.tracer.trace("whole"):
        raise ValueError("a secret")
    span = spans.one("whole")
    assert span.attributes["error.type"] == "ValueError"
    assert not span.status.is_ok
    assert "secret" not in span.to_json()


def test_a_lot_with_one_context_is_a_step_of_its_trace(spans: Spans):
    tracer = spans.tracer
    with tracer.lot("lot", {"x": context(7), "y": context(7)}, 9):
        onward = tracer.onward()
        assert onward["x"] == onward["y"] == tracer.context()
    span = spans.one("lot")
    assert (trace_of(span), span.parent.span_id, len(span.links)) == (7, 7, 0)
    assert span.attributes["messaging.batch.message_count"] == 9
    assert tracer.onward() == {}


def test_a_lot_of_several_links_to_each_and_fails_in_each_trace(spans: Spans):
    tracer = spans.tracer
    onward = {}

    def work() -> None:
        with tracer.lot("lot", {key: context(key) for key in (1, 2)}, 2):
            onward.update(tracer.onward())
            raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        work()
    assert [span.attributes["error.type"] for span in spans.all()] == ["OSError"] * 3
    [whole] = [span for span in spans.all() if span.parent is None]
    assert linked(whole) == {1, 2}
    for key, carried in onward.items():
        [mine] = [span for span in spans.all() if trace_of(span) == key]
        assert linked(mine) == {id_of(whole)}
        assert carried.split("-")[1:3] == [f"{key:032x}", f"{id_of(mine):016x}"]


def test_the_id_of_a_request_travels_with_its_contexts_and_stays_with_its_spans(spans: Spans):
    tracer = spans.tracer
    with tracer.trace("request", request_id="asked-1"), tracer.trace("record"):
        first = tracer.context()
        assert tracer.ids()["request_id"] == "asked-1"
    assert first is not None
    assert first.endswith(" asked-1")
    assert list(tracer.carried([b'{"trace":"%s"}' % first.encode()])) == [first]
    with tracer.lot("alone", {1: first}, 1):
        assert tracer.onward()[1].endswith(" asked-1")
        assert tracer.context() == tracer.onward()[1]
    with tracer.lot("several", {1: first, 2: context(7)}, 2):
        onward = tracer.onward()
        assert [onward[1].endswith(" asked-1"), " " in onward[2], " " in (tracer.context() or "")] == [
            True,
            False,
            False,
        ]
    told = [(span.name, span.attributes.get("feedstore.request_id")) for span in spans.all()]
    assert sorted(told, key=str) == [
        ("alone", "asked-1"),
        ("record", None),
        ("request", "asked-1"),
        ("several", "asked-1"),
        ("several", None),
        ("several", None),
    ]
    with tracer.trace("next"):
        assert "request_id" not in tracer.ids()


def test_what_is_beyond_the_links_of_a_lot_is_passed_on(spans: Spans):
    tracer = spans.tracer
    contexts = {key: context(key) for key in range(1, LINKS_MAX + 6)}
    with tracer.lot("lot", contexts, len(contexts)):
        onward = tracer.onward()
        assert set(onward) == set(contexts)
        assert [key for key in contexts if onward[key] == contexts[key]] == list(range(LINKS_MAX + 1, LINKS_MAX + 6))
    assert len(spans.all()) == LINKS_MAX + 1


@pytest.mark.parametrize("carried", ["", "7", "00-" + "z" * 52, context(0), context(7, "00")])
def test_a_context_that_means_nothing_makes_no_lot(spans: Spans, carried: str):
    with spans.tracer.trace("around"), spans.tracer.lot("lot", {"x": carried}, 1):
        pass
    assert names(spans.all()) == ["around"]


def test_contexts_are_found_in_messages_whatever_they_are(spans: Spans):
    messages = [b'{"trace":"%s"}[7,"%s"]' % (context(1).encode(), context(2).encode()), b'{"text":"00-1"}']
    assert list(spans.tracer.carried(messages)) == [context(1), context(2)]
    many = [b'"%s"' % context(number).encode() for number in range(1, 1_000)]
    assert len(spans.tracer.carried(many)) == LINKS_MAX + 1


def test_where_traces_are_off_nothing_is_kept():
    with UNTRACED.trace("whole", parent=context(7)) as span, UNTRACED.lot("lot", {"x": context(7)}, 1):
        span.note({"x": 1})
        span.failed("OSError")
        assert not span.is_recorded
        assert UNTRACED.context() is None
        assert UNTRACED.onward() == {}
    assert UNTRACED.carried([b'"%s"' % context(1).encode()]) == {}
    assert UNTRACED.ids() == {}

    def call() -> None: ...

    assert UNTRACED.bound(call) is call
