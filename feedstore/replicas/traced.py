"""Replicas whose reads are traced. Apart from the others, so that a page costs nothing if traces are off."""

from feedstore.replicas.race import Answer, Replicas


class TracedReplicas(Replicas):
    def read(self, table: str, row: bytes, after: bytes | None, limit: int, deadline_s: float | None = None) -> Answer:
        with self._tracer.trace(f"read {table}", {"db.operation.name": "read", "db.collection.name": table}) as span:
            if not span.is_recorded:
                return super().read(table, row, after, limit, deadline_s)
            answer = self._race(table, row, after, limit, deadline_s)
            span.note({"feedstore.cluster": answer.served_by})
            if answer.behind_ms is not None:
                span.note({"feedstore.behind_ms": answer.behind_ms})
            return answer
