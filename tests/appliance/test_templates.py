"""Chat templates: what they expect to find, what they must not get, and a helper process that may die at any time."""

import asyncio
import copy
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from appliance.templates import Renderer, check, plain_messages, render_now
from engine.errors import InvalidParameter, TemplateError
from scripts.house import ROOT

HI = [{"role": "user", "content": "Hi"}]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CALL = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": '{"a": "<5>"}'}}]}
PARTS = [{"role": "user", "content": [{"type": "text", "text": "Hello "}, {"type": "text", "text": "there"}]}]
WALKS = (
    "{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}"
    "{{ p.text }}{% endfor %}{% endif %};{% endfor %}"
)
LISTS = (
    "{% for m in messages %}{% for p in m.content %}{% if p.type == 'text' %}[{{ p.text }}]{% endif %}"
    "{% endfor %}{% endfor %}"
)


@pytest.fixture(scope="module")
def renderer() -> Iterator[Renderer]:
    with Renderer() as made:
        yield made


def show(renderer: Renderer, template: str, messages: list[dict[str, Any]] = HI, **options: Any) -> str:
    return renderer.render_now(template, messages, bos_token="<s>", eos_token="</s>", **options)


@pytest.mark.parametrize(
    ("template", "messages", "expected"),
    [
        (CHATML, HI, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"),
        ("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", HI, "<s>Hi</s>"),
        # white space as transformers sets it: trim_blocks and lstrip_blocks, no newline at the end
        ("{%- for m in messages %}\n    {%- if true %}\n  {{- '<u>' }}\n {%- endif %}\n{%- endfor %}\n    tail\n", HI,
         "<u>    tail"),
        ("{% for m in messages %}{% if m.role == 't' %}{% continue %}{% endif %}{{ m.content }}{% break %}{% endfor %}",
         [{"role": "t", "content": "t"}, *HI, *HI], "Hi"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
         HI * 3, "3"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", HI * 2, "2"),
        ("{{ messages[-1].content.split('</think>')[-1].lstrip('\\n') }}",
         [{"role": "user", "content": "a</think>\n\nb"}], "b"),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", HI, "Hi!"),
        ("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(messages[0].content) }}", HI, "<Hi>"),
        ("{{ tools is none }} {{ documents is none }} {{ unknown is defined }}", HI, "True True False"),
        ("{{ raise_exception('no') if messages | length > 1 else 'ok' }}", HI, "ok"),
        ("{{ messages[0].content }}", [{"role": "user", "content": "\ud800\x00😀"}], "\ud800\x00😀"),
    ],
)  # fmt: skip
def test_what_templates_expect_is_there(
    renderer: Renderer, template: str, messages: list[dict[str, Any]], expected: str
) -> None:
    assert show(renderer, template, messages) == expected


def test_tojson_keeps_letters_order_and_marks(renderer: Renderer) -> None:
    """jinja2's own filter escapes <, >, & and ' and sorts the keys, which spoils tool schemas."""
    tools = [{"type": "function", "b": "<b>Ü & 'x'</b>", "a": {"n": None, "t": True}}]
    assert show(renderer, "{{ tools[0] | tojson }}", tools=tools) == (
        '{"type": "function", "b": "<b>Ü & \'x\'</b>", "a": {"n": null, "t": true}}'
    )
    assert show(renderer, "{{ tools[0].a | tojson(indent=2) }}", tools=tools) == '{\n  "n": null,\n  "t": true\n}'


def test_the_clock_is_the_callers(renderer: Renderer) -> None:
    when = datetime(2026, 1, 2, 3, 4, 5)
    template = "{{ strftime_now('%d %b %Y %H:%M') }}"
    assert show(renderer, template, now=when) == "02 Jan 2026 03:04"
    assert show(renderer, template, now=datetime(2027, 1, 2)) == "02 Jan 2027 00:00"
    assert show(renderer, "{{ strftime_now('%Y') }}") == str(datetime.now().year)


def test_extra_variables_reach_the_template_and_replace_none_of_ours(renderer: Renderer) -> None:
    template = "{{ enable_thinking }} {{ messages[0].content }} {{ bos_token }}"
    assert (
        show(renderer, template, extra={"enable_thinking": False, "messages": [], "bos_token": "x"}) == "False Hi <s>"
    )


@pytest.mark.parametrize(
    ("template", "messages", "expected"),
    [
        ("{{ messages[0].content }}", PARTS, "Hello there"),
        ("{{ messages[0].role + ':' + messages[0].content }}", PARTS, "user:Hello there"),
        (WALKS, [*HI, CALL], "user:Hi;assistant:;"),
        ("{% for m in messages %}{{ m.role + ':' + m.content + ';' }}{% endfor %}", [*HI, CALL, *HI],
         "user:Hi;assistant:;user:Hi;"),
        ("{% for m in messages %}{{ m['content'] + ';' }}{% endfor %}", [{"role": "user"}], ";"),
        # a template that shows parts only gets parts
        (LISTS, [*HI, *PARTS], "[Hi][Hello there]"),
    ],
)  # fmt: skip
def test_content_is_one_text_for_templates_that_take_text(
    renderer: Renderer, template: str, messages: list[dict[str, Any]], expected: str
) -> None:
    """Lists were printed into prompts or dropped in silence; null became the word None."""
    assert show(renderer, template, messages) == expected


def test_parts_that_are_no_text_are_named() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    with pytest.raises(InvalidParameter, match=r"messages\[1\]\.content\[1\] is of type 'image_url'") as caught:
        plain_messages([*HI, {"role": "user", "content": [{"type": "text", "text": "x"}, image]}])
    assert caught.value.param == "messages[1].content[1]"
    for content in (5, {"type": "text"}, [5], [{"type": "text"}]):
        with pytest.raises(InvalidParameter):
            plain_messages([{"role": "user", "content": content}])


def test_messages_are_not_changed(renderer: Renderer) -> None:
    messages = copy.deepcopy([*PARTS, CALL])
    show(renderer, CHATML, messages)
    with pytest.raises(TemplateError):
        show(renderer, "{{ messages.append({'role': 'user'}) }}", messages)
    assert messages == [*PARTS, CALL]


@pytest.mark.parametrize(
    "template",
    [
        "{{ lipsum.__globals__ }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ '{0.__class__.__init__.__globals__}'.format(messages) }}",
        "{% set f = '{x.__class__}'.format_map %}{{ f({'x': messages}) }}",
        "{{ messages | attr('__class__') }}",
        "{{ messages | map(attribute='__class__') | list }}",
        "{{ strftime_now.__self__.__class__ }}",
        "{{ raise_exception.__globals__ }}",
        "{{ self._TemplateReference__context.environment.loader }}",
        "{% include '/etc/hostname' %}",
        "{% import '/etc/hostname' as x %}{{ x }}",
        "{% extends '/etc/hostname' %}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'content': 'x'}) }}",
        "{{ namespace.__init__.__globals__['os'].popen('id').read() }}",
    ],
)
def test_no_escape_gives_anything(renderer: Renderer, template: str) -> None:
    try:
        out = show(renderer, template)
    except TemplateError as error:
        assert (error.status, error.exit_code) == (400, 3)
        assert "\n" not in str(error)
    else:
        assert out.strip() in ("", "[]", "[, ]", "None") or "Undefined" in out, out


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(10**9) %}{% endfor %}",
        "{{ 'a' * (10**10) }}",
        "{{ ('a' * (10**8)) ~ 'b' }}",
        "{% for i in range(9999) %}{% for j in range(9999) %}xy{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set ns.s = ns.s * 9 %}{% endfor %}{{ ns.s }}",
        "{{ 10 ** (10 ** 10) }}",
        "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{{ [[]] | map('batch', 10**9) | list }}{{ 'x' | center(10**10) }}",
    ],
)
def test_work_without_end_is_ended_and_the_next_one_is_served(renderer: Renderer, template: str) -> None:
    started = time.monotonic()
    with pytest.raises(TemplateError) as caught:
        show(renderer, template)
    assert time.monotonic() - started < 10
    assert len(str(caught.value)) < 700
    assert show(renderer, CHATML).startswith("<|im_start|>user\nHi")


def test_output_over_the_cap_is_refused(renderer: Renderer) -> None:
    with pytest.raises(TemplateError, match="more than 4 MB"):
        show(renderer, "{{ 'ä' * 3000000 }}")
    assert len(show(renderer, "{{ 'a' * 4000000 }}")) == 4_000_000


def test_a_template_that_refuses_is_quoted(renderer: Renderer) -> None:
    with pytest.raises(TemplateError, match="roles must alternate") as caught:
        show(renderer, "{{ raise_exception('roles must\n alternate') }}")
    assert "(" not in str(caught.value)


def test_a_broken_template_is_found_at_load() -> None:
    with pytest.raises(TemplateError, match="line 2"):
        check("{% for m in messages %}\n{{ m.content ")
    with pytest.raises(TemplateError, match="did not finish"):
        check("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}")
    check(CHATML)
    check("{{ raise_exception('only pairs') }}")


def test_render_now_serves_the_command_line() -> None:
    assert render_now("{{ messages[0].content }}{{ bos_token }}", HI, bos_token="<s>") == "Hi<s>"


async def test_several_at_once_are_served_while_one_hangs() -> None:
    """They wait for the one that hangs and for nothing else; the event loop is free meanwhile."""
    renderer = Renderer()
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            await asyncio.sleep(0.01)
            beats += 1

    beating = asyncio.create_task(beat())
    hang = asyncio.create_task(
        renderer.render("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", HI)
    )
    many = [renderer.render(f"{{{{ messages[0].content }}}}{i}", HI) for i in range(20)]
    found = await asyncio.gather(hang, *many, return_exceptions=True)
    beating.cancel()
    assert isinstance(found[0], TemplateError)
    assert found[1:] == [f"Hi{i}" for i in range(20)]
    assert beats > 20
    await renderer.close()


def test_a_helper_that_was_killed_is_replaced() -> None:
    with Renderer() as renderer:
        show(renderer, CHATML)
        for number in (signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM):
            assert renderer._helper is not None
            os.kill(renderer._helper.pid, number)
            os.waitid(os.P_PID, renderer._helper.pid, os.WEXITED | os.WNOWAIT)
            assert show(renderer, "{{ messages[0].content }}") == "Hi"


def test_a_reply_that_an_interrupt_left_unread_is_not_taken_for_the_next_one(renderer: Renderer) -> None:
    slow = "{% for i in range(300) %}{% for j in range(1000) %}{% endfor %}{% endfor %}late"
    assert renderer.render_now(CHATML, HI).endswith("assistant\n")
    timer = threading.Timer(0.005, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        for _ in range(1000):
            renderer.render_now(slow, HI)
    timer.join()
    assert renderer.render_now("next", HI) == "next"


def test_a_terminal_s_ctrl_c_does_not_reach_the_helper(renderer: Renderer) -> None:
    renderer.render_now("a", HI)
    assert renderer._helper is not None
    assert os.getpgid(renderer._helper.pid) != os.getpgid(0)


def test_the_helper_keeps_small_and_knows_its_limits() -> None:
    with Renderer() as renderer:
        show(renderer, CHATML)
        assert renderer._helper is not None
        pid = renderer._helper.pid
        with open(f"/proc/{pid}/status") as status:
            anon = next(int(line.split()[1]) for line in status if line.startswith("RssAnon"))
        with open(f"/proc/{pid}/limits") as limits:
            rows = {line[:26].strip(): line.split()[-3] for line in limits}
        with open(f"/proc/{pid}/environ") as environ:
            names = {line.split("=")[0] for line in environ.read().split("\0") if line}
        assert anon < 40_000
        assert rows["Max address space"] == str(256 << 20)
        assert rows["Max file size"] == "0"
        assert not [name for name in names if "COLIBRI" in name or "KEY" in name]


def test_no_helper_outlives_its_parent() -> None:
    code = (
        "import os\nfrom appliance.templates import Renderer\nr = Renderer()\n"
        "r.render_now('x', [])\nprint(r._helper.pid, flush=True)\nos._exit(0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    pid = int(done.stdout)
    for _ in range(500):
        try:
            if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                return
        except OSError:
            return
        time.sleep(0.02)
    raise AssertionError("the helper still runs 10 s after its parent's end")


def test_a_closed_renderer_says_so() -> None:
    renderer = Renderer()
    renderer.close_now()
    with pytest.raises(Exception, match="closed"):
        show(renderer, CHATML)
    renderer.close_now()


def test_templates_alone_load_no_jinja2() -> None:
    code = "import sys, appliance.templates; print('jinja2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr
