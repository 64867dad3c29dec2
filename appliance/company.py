"""The sessions that step together: they join and leave between two steps of one engine. Not here: what a session says.

One pass over the weights serves all of them, and no number of one depends on the others (engine.generate), so that
whoever is alone and whoever has company get the same answer.
"""

import threading

from appliance.session import EngineLike, Session
from engine.errors import Busy, ColibriError, ModelFileChanged


class Company:
    """Up to `room` sessions on one engine. The engine thread calls `join` and `step`; any thread may `interrupt`, and
    look at `sessions`, a list that is replaced and never changed."""

    def __init__(self, engine: EngineLike) -> None:
        self.room = max(1, int(getattr(engine.info, "n_parallel", 1)))
        self.sessions: list[Session] = []
        self._engine = engine
        self._lock = threading.Lock()
        self._is_stepping = False

    def join(self, session: Session) -> None:
        """From the next step on; what is wrong with its request ends it here."""
        assert len(self.sessions) < self.room, "there is no room"
        if session.begin(self._engine):
            self.sessions = [*self.sessions, session]

    def step(self) -> None:
        """One step of all but those who are cancelled, who leave. A ColibriError ends whom it is about.
        ModelFileChanged ends them all and passes, since no other request would fare better. Any other exception passes
        at once: the engine cannot be trusted after it, and the process's end tells all requests."""
        for session in self.sessions:
            if session.cancelled.is_set():
                session.leave()
                self._forget(session)
        going = self.sessions
        if not going:
            return
        with self._lock:
            self._is_stepping = True
        try:
            outs = self._engine.step_many([session.sequence for session in going])
        except ColibriError as error:
            self._failed(going, error)
            return
        finally:
            with self._lock:
                self._is_stepping = False
        for session, out in zip(going, outs, strict=True):
            # A cancelled step counts for nobody. Who is not meant has met the cancel of one that had just left.
            if not out.cancelled and not session.take(out):
                self._forget(session)

    def interrupt(self) -> None:
        """Make the step return that nobody waits for any more. Repeat it until they have left: one that comes before
        the engine has begun is forgotten. While one of them is still wanted, the others leave behind its step."""
        with self._lock:
            if self._is_stepping and all(session.cancelled.is_set() for session in self.sessions):
                self._engine.cancel()

    def _failed(self, going: list[Session], error: ColibriError) -> None:
        """The step counts for nobody: end those whose numbers were none, the last who came if there was no room."""
        about = [s for s in going if s.sequence in getattr(error, "sequences", ())]
        if not about:
            about = going[-1:] if isinstance(error, Busy) else going
        for session in about:
            session.fail(error)
            self._forget(session)
        if isinstance(error, ModelFileChanged):
            raise error

    def _forget(self, session: Session) -> None:
        self.sessions = [other for other in self.sessions if other is not session]
