from __future__ import annotations

import time
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from trtspec.checkpoints.chat import render
from trtspec.errors import RequestError

MESSAGES = [
    {"role": "system", "content": "Be  brief."},
    {"role": "user", "content": 'Hi <there> & "you"'},
    {"role": "assistant", "content": " hello\n"},
    {"role": "user", "content": "日本語 🤗"},
]
CHATML = """{% for message in messages %}
    {%- if loop.first and message.role != 'system' %}
<|im_start|>system
You are helpful.<|im_end|>
    {% endif %}
{{- '<|im_start|>' + message['role'] + '\n' + message['content'] | trim + '<|im_end|>' + '\n' }}
{%- endfor %}
{% if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}"""
LLAMA = (
    "{{ bos_token }}{% if tools is not none %}TOOLS{% endif %}{% set loop_messages = messages %}"
    "{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 1) %}"
    "{{ message.role ~ ':' ~ loop.index ~ message.content.strip() }}{% endif %}{% endfor %}"
)
VARIED = (
    "{% macro say(m) %}[{{ m.role | upper }}] {{ m.content.split() | join('-') }}{% endmacro %}"
    "{% set ns = namespace(last='', n=0) %}"
    "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}"
    "{% set ns.last = m.content %}{% set ns.n = ns.n + 1 %}{{ say(m) }}\n"
    "{% if ns.n > 5 %}{% break %}{% endif %}{% endfor %}"
    "{% generation %}{{ ns.last | replace('🤗', ':)') }}{% endgeneration %}"
    "{{ messages | tojson }}{{ messages[0] | tojson(indent=2) }}{{ messages[-1].content[:2] * 3 }}"
    "{{ '%s has %d' % (ns.last, ns.n) }}{{ '{}-{}'.format(1, 'x') }}{{ ['a', 'b'] + ['c'] }}"
    "{{ messages | map(attribute='role') | join(', ') }}"
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
    "{{ 'abc'.replace('b', 'x').center(9) }}{{ 'a' ~ 1 ~ none }}{{ 7 // 2 ** 2 }}"
)


@pytest.mark.parametrize("template", [CHATML, LLAMA, VARIED])
@pytest.mark.parametrize("prompt", [True, False])
def test_renders_as_transformers_does(template: str, prompt: bool) -> None:
    named = {"bos_token": "<s>", "eos_token": "</s>"}
    expected, _ = render_jinja_template([MESSAGES], chat_template=template, add_generation_prompt=prompt, **named)
    assert render(template, MESSAGES, add_generation_prompt=prompt, special_tokens=named) == expected[0]


def refused(template: str, messages: Any = MESSAGES) -> RequestError:
    began = time.monotonic()
    with pytest.raises(RequestError) as caught:
        render(template, messages)
    assert caught.value.field == "messages"
    assert time.monotonic() - began < 60  # a guard against hanging, not a measurement
    return caught.value


def test_what_the_template_refuses_is_told() -> None:
    error = refused("{{ raise_exception('Conversation roles must alternate') }}")
    assert "refuses these messages: Conversation roles must alternate" in error.message


@pytest.mark.parametrize("messages", [[1], [{}], "text", [{"role": "user", "content": None}]])
def test_messages_of_the_wrong_shape(messages: Any) -> None:
    assert (
        "cannot render"
        in refused("{% for m in messages %}{{ m['role'] + m['content'] }}{% endfor %}", messages).message
    )


def test_half_a_surrogate_pair_is_no_text() -> None:
    assert "cannot render" in refused("{{ messages[0].content }}", [{"role": "user", "content": "a\ud800"}]).message


@pytest.mark.parametrize("template", ["{% for %}", "{{ messages | nothing }}", "{% include 'x' %}", "{{ 1 / 0 }}"])
def test_templates_that_are_wrong(template: str) -> None:
    assert "cannot render" in refused(template).message


@pytest.mark.parametrize(
    "template",
    [
        "{{ messages.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''.__class__.__base__ }}",
        "{{ strftime_now.__globals__['sys'].exit() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ '{0.__class__.__mro__}'.format(messages) }}",
        "{{ self.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.system('true') }}",
        "{{ lipsum() }}",
        "{{ messages | map(attribute='__class__') | list | first | attr('__mro__') | list | first | attr('mro') }}"
        "{{ x.y }}",
    ],
)
def test_no_way_out_of_the_sandbox(template: str) -> None:
    refused(template)


def test_undefined_attributes_print_nothing_of_the_inside() -> None:
    assert render("{{ messages.__class__ }}{{ ''.__class__ }}{{ raise_exception.__globals__ }}", []) == ""


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(1000000000) %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
        "{{ 'x' * 10000000000 }}",
        "{{ 10000000000 * 'x' }}",
        "{{ [1] * 10000000000 }}",
        "{{ 9 ** (9 ** 9) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:{}}'.format(1, 1000000000) }}",
        "{{ 'x'.center(1000000000) }}",
        "{{ 'x'.zfill(1000000000) }}",
        "{{ 'x' | center(1000000000) }}",
        "{{ ['x'] | map('center', 1000000000) | list }}",
        "{{ 'x' | indent(1000000000, true) }}",
        "{{ [1] | batch(1000000000, 1) | list }}",
        "{{ [1] | slice(1000000000) | list }}",
        "{{ messages | tojson(indent=1000000000) }}",
        "{{ ('x' * 1000000).replace('x', 'y' * 1000000) }}",
        "{{ ('x' * 1000000) | replace('x', 'y' * 1000000) }}",
        "{{ range(99999) | join('x' * 1000000) }}",
        "{{ ('x' * 1000000).join('y' * 1000000) }}",
        "{% set n = namespace(t='x') %}{% for a in range(99) %}{% set n.t = n.t + n.t %}{% endfor %}",
        "{% set n = namespace(t='x') %}{% for a in range(99) %}{% set n.t = n.t ~ n.t %}{% endfor %}",
        "{% set n = namespace(t=[1]) %}{% for a in range(99) %}{% set n.t = n.t + n.t %}{% endfor %}",
        "{% set n = namespace(t=9) %}{% for a in range(99) %}{% set n.t = n.t * n.t %}{% endfor %}",
        "{% macro d(t) %}{{ t }}{{ t }}{% endmacro %}{% set n = namespace(t='x') %}"
        "{% for a in range(99) %}{% set n.t = d(n.t) %}{% endfor %}",
        "{% set n = namespace(t='x') %}{% for a in range(99) %}{% set n.t %}{{ n.t }}{{ n.t }}{% endset %}{% endfor %}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ strftime_now('%A' * 100000) }}",
        "{{ 1.5 | round(1000000000, 'floor') }}",
    ],
)
def test_no_template_hangs_or_eats_the_memory(template: str) -> None:
    error = refused(template)
    assert "too much work or text" in error.message or "Range too big" in error.message, error.message


def test_a_long_conversation_is_within_the_budget() -> None:
    messages = [{"role": ("user", "assistant")[i % 2], "content": "word " * 200} for i in range(2000)]
    assert len(render(CHATML, messages)) > 2_000_000
