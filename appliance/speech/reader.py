"""Reads an answer as it comes: thoughts, text, calls, however it is cut into pieces. Not here: one form's grammar.

Whatever may still turn out to be a mark is held back, and no more than that: white space before a call belongs to the
call, white space at the end of an answer without one to the text.
"""

from appliance.speech.events import BadCall, Event, NotACall, Said, Thought, no_call
from appliance.speech.forms import Calls, Form, partial
from appliance.speech.speech import Speech


class Reader:
    """One answer. `is_thinking` while its reasoning goes on; `was_broken_off`: its last call was cut."""

    def __init__(self, speech: Speech) -> None:
        self._speech = speech
        self._text = speech.begun
        self._state = self._begin
        self._calls = Calls(speech.most_calls)
        self._form: Form | None = None
        self._raw = ""
        self._opener = ""
        self._space = ""
        self._n_before = 0
        self.was_broken_off = False
        self._has_thought = self._has_said = self._is_final = self._was_cut = False
        if speech.is_thinking and speech.thought:
            self._state = self._think

    @property
    def is_thinking(self) -> bool:
        return self._state == self._think

    def feed(self, text: str) -> list[Event]:
        """What `text` settles. BadCall when a call cannot be what the model meant."""
        self._text += text
        while self._state():
            pass
        events, self._calls.events = self._calls.events, []
        return events

    def finish(self, was_cut: bool) -> list[Event]:
        """The rest. `was_cut`: the answer ended at a limit, so a call may be half there."""
        self._is_final, self._was_cut = True, was_cut
        events = self.feed("")
        if self._form is not None:
            try:
                self._form.finish(self._calls)
            except NotACall:
                if self._calls.n == self._n_before and not (was_cut and self._opener):
                    self._say(self._space + self._opener + self._raw)
            except BadCall:
                if not was_cut:
                    raise
                self.was_broken_off = True
        elif self._space:
            self._say(self._space)
        if self._speech.must and not self._calls.n and not was_cut:
            raise no_call()
        return events + self._calls.events

    # The states: each takes what it can of self._text and says whether another one goes on with it.

    def _begin(self) -> bool:
        if self._speech.thought:
            opener, stripped = self._speech.thought[0], self._text.lstrip()
            if stripped.startswith(opener):
                self._text, self._state = stripped[len(opener) :], self._think
                return True
            if opener.startswith(stripped) and not self._is_final:
                return False
        self._state = self._speak
        return True

    def _think(self) -> bool:
        assert self._speech.thought is not None
        closer = self._speech.thought[1]
        text, found, rest = self._text.partition(closer)
        n_held = 0 if found or self._is_final else partial(text, (closer,))
        text, held = text[: len(text) - n_held], text[len(text) - n_held :]
        if not self._has_thought:
            text = text.lstrip()
        shown = text.rstrip()
        if shown:
            self._has_thought = True
            self._calls.events.append(Thought(shown))
        self._text = rest if found else text[len(shown) :] + held
        if found:
            self._state = self._wake
        elif self._is_final:
            self._text = ""
        return bool(found)

    def _wake(self) -> bool:
        """Line breaks behind thoughts and calls belong to nothing."""
        self._text = self._text.lstrip()
        if self._text:
            self._state = self._speak
        return bool(self._text)

    def _speak(self) -> bool:
        form = self._speech.form
        if form is None:
            self._say(self._text)
            self._text = ""
            return False
        at, opener = self._found(form)
        n_held = 0 if at >= 0 or (self._is_final and not self._was_cut) else partial(self._text, form.openers)
        end = at if at >= 0 else len(self._text) - n_held
        text = self._space + self._text[:end]
        shown = text.rstrip()
        self._space = text[len(shown) :]
        self._say(shown)
        self._text = self._text[end:]
        if at < 0:
            return False
        self._text, self._opener, self._raw = self._text[len(opener) :], opener, ""
        self._form, self._state, self._n_before = form(self._speech.tools), self._call, self._calls.n
        return True

    def _found(self, form: type[Form]) -> tuple[int, str]:
        """Where a block of calls begins, and the mark that says so; (-1, "") where none does."""
        if form.is_bare and not self._has_said and (stripped := self._text.lstrip())[:1] == "{":
            return len(self._text) - len(stripped), ""
        found = [(at, opener) for opener in form.openers if (at := self._text.find(opener)) >= 0]
        return min(found, default=(-1, ""))

    def _call(self) -> bool:
        assert self._form is not None
        text, self._text = self._text, ""
        if not text:
            return False
        try:
            rest = self._form.feed(text, self._calls)
        except NotACall:
            if self._speech.must and not self._calls.n:
                raise no_call() from None
            self._form = None
            if self._calls.n > self._n_before:
                self._state = self._drop
                return False
            # The mark is text, and what stands behind it is looked at again; a bare object has only its bracket.
            raw, cut = self._raw + text, 0 if self._opener else 1
            self._say(self._space + self._opener + raw[:cut])
            self._text, self._space, self._state = raw[cut:], "", self._speak
            return True
        if self._calls.n > self._n_before:
            self._raw = self._space = ""
        else:
            self._raw += text
        if rest is None:
            return False
        self._text, self._form, self._state = rest, None, self._wake
        return True

    def _drop(self) -> bool:
        """A list whose later part is no call: nobody is shown its markup."""
        self._text = ""
        return False

    def _say(self, text: str) -> None:
        if text:
            self._has_said = True
            self._calls.events.append(Said(text))
