"""Writes golden.json: templates, values, and the texts that Jinja2 renders; and products.json: expressions of values.

Run in this folder with jinja2 installed: python generate.py > golden.json
The environment is that of Hugging Face's tokenizers for chat templates.
A case without "want" is an error in Jinja2; tests do not compare the text of "error".
"""
import datetime
import json
import re
import sys

import jinja2
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime(2026, 7, 4, 5, 6, 7).strftime(f)
    return env


VARS = {
    "none_value": None, "yes": True, "no": False, "zero": 0, "three": 3, "pi": 3.14159, "big": 1e22, "tiny": 0.00001,
    "text": "  Hello, Wörld!\n", "word": "sparrow", "quote": "it's \"so\"", "lines": "one\n\ntwo\nthree", "empty": "",
    "list": [3, 1, 2], "words": ["b", "A", "c", "a"], "nested": [[1, 2], [3, 4]], "nothing": [],
    "map": {"z": 1, "a": [1, {"k": None}], "ö": "ü<&>"}, "items_key": {"items": 5, "b": 2},
    "people": [{"name": "Ann", "age": 41, "pet": {"kind": "cat"}}, {"name": "bob", "age": 7, "pet": {"kind": "dog"}},
               {"name": "Cy", "age": 41, "pet": None}],
    "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}, {"role": "assistant", "content": "A"}],
    "huge": 123456789012345678901234567890,
}

CASES = {
    "literals": [
        "{{ 'a' 'b' }}|{{ \"x\\ty\" }}|{{ '\\u00e9\\x41\\101\\q' }}|{{ 1_000 }}|{{ 0x1f }}|{{ 1.5e3 }}",
        "{{ 1.50 }}|{{ 1e3 }}|{{ 0b101 + 0o17 }}",
        "{{ true }} {{ True }} {{ false }} {{ none }} {{ None }}",
        "{{ [1, 'a', 2.0, none, true] }} {{ (1,) }} {{ (1, 2) }} {{ () }} {{ {'a': 1, 'b': [2]} }} {{ {} }}",
        "{{ quote }} {{ [quote] }} {{ ['it\\'s'] }} {{ ['a\\nb\\\\'] }}",
        "{{ big }} {{ tiny }} {{ pi }} {{ 100000.0 }} {{ 1e16 }} {{ 123456789.125 }} {{ huge }}",
        "{{ {'a': {'b': {}}} }}",
    ],
    "operators": [
        "{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }}",
        "{{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ (1 + 2) * 3 }} {{ 7.5 // 2 }} {{ 7.5 % 2 }}",
        "{{ 'a' + 'b' ~ 1 ~ none }} {{ 'ab' * 3 }} {{ [1] * 2 + [3] }} {{ 3 * 'x' }}",
        "{{ 1 ~ 2 + 3 }}", "{{ 1 + 2 ~ 3 }}",
        "{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 == true }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }}",
        "{{ 2 in list }} {{ 5 not in list }} {{ 'ell' in text }} {{ 'z' in map }} {{ not 'q' in map }}",
        "{{ yes and no or three }} {{ no or '' }} {{ not yes == no }} {{ none_value and 1 }}",
        "{{ 'y' if yes else 'n' }}{{ 'y' if no }}|{{ 'a' if no else 'b' if no else 'c' }}",
        "{{ -three }} {{ +three }} {{ -three|abs }} {{ - -3 }}",
        "{{ '%s is %d and %.2f%%' % ('x', 3, 2.5) }} {{ '%05d' % 42 }} {{ '%-4s|' % 'a' }}",
        "{{ 1 / 0 }}", "{{ 'a' + 1 }}", "{{ list + 1 }}", "{{ 1 < 'a' }}", "{{ 1 in 2 }}",
    ],
    "lookups": [
        "{{ map.z }} {{ map['z'] }} {{ map.a.1.k }} {{ map.a[1]['k'] }} {{ map.missing }}|{{ map['missing'] is defined }}",
        "{{ items_key.items is callable }} {{ items_key['items'] }} {{ items_key.b }}",
        "{{ list[0] }} {{ list[-1] }} {{ list[9] }}| {{ list.0 }} {{ nested.1.0 }} {{ word[1] }} {{ word[-1] }} {{ text[3] }}",
        "{{ list[1:] }} {{ list[:-1] }} {{ list[::-1] }} {{ word[1:4] }} {{ word[::2] }} {{ word[:2] }} {{ list[5:] }} {{ list[-2:] }}",
        "{{ word[10:] }}|{{ word[-100:3] }}|{{ list[2:0:-1] }}|{{ (1, 2, 3)[1:] }}",
        "{{ messages[0].role }} {{ messages[1:] | length }} {{ messages[-1]['content'] }}",
        "{{ nope }}|{{ nope is undefined }}|{{ nope.x }}", "{{ nope['x'] }}", "{{ map.missing.deeper }}", "{{ none_value.x is defined }}",
        "{{ none_value.strip() }}", "{{ (word ~ '!').upper() }} {{ 'a,b'.split(',')[1] }}",
    ],
    "strings": [
        "[{{ text.strip() }}] [{{ text.lstrip() }}] [{{ text.rstrip() }}] [{{ 'xxaxx'.strip('x') }}] [{{ '\n\na\n'.lstrip('\n') }}]",
        "{{ 'a b  c'.split() }} {{ 'a b  c'.split(' ') }} {{ 'a-b-c'.split('-', 1) }} {{ 'a-b-c'.rsplit('-', 1) }} {{ ' a b c '.split(none, 1) }}",
        "{{ 'a b c'.rsplit() }} {{ ' a b c '.rsplit(none, 1) }} {{ ''.split() }} {{ ''.split(',') }}",
        "{{ word.startswith('sp') }} {{ word.endswith(('x', 'ow')) }} {{ word.find('r') }} {{ word.find('zz') }} {{ word.rfind('r') }} {{ 'ää-b'.find('b') }}",
        "{{ 'aaa'.replace('a', 'b', 2) }} {{ word.upper() }} {{ 'ABC'.lower() }} {{ 'hello wORLD it\\'s'.title() }} {{ 'hELLO'.capitalize() }}",
        "{{ ', '.join(words) }} {{ 'x'.join('abc') }} {{ 'banana'.count('an') }} {{ 'a=b=c'.partition('=') }} {{ 'ab'.partition('=') }}",
        "{{ 'v1.0'.removeprefix('v') }} {{ 'a.py'.removesuffix('.py') }} {{ '12'.isdigit() }} {{ ''.isdigit() }} {{ 'ab'.isalpha() }} {{ ' \t'.isspace() }}",
        "{{ 'a\nb\r\nc'.splitlines() }} {{ '{} and {} {x} {{}}'.format(1, 'two', x=3) }} {{ '{0}{1}{0}'.format('a', 'b') }}",
        "{{ ','.join([1, 2]) }}", "{{ word.nosuch() }}", "{{ word.split('') }}",
    ],
    "filters": [
        "{{ text | trim }}|{{ word | upper | lower | capitalize }}|{{ 'hello big-world (of) x' | title }}|{{ 'xxaxx' | trim('x') }}",
        "{{ list | length }} {{ word | count }} {{ map | length }} {{ 'é' | length }}",
        "{{ list | join(', ') }} {{ people | join('/', attribute='name') }} {{ people | map(attribute='pet.kind', default='-') | join(',') }}",
        "{{ nope | default('d') }} {{ empty | default('d') }}|{{ empty | default('d', true) }} {{ none_value | default('x') }} {{ none_value | d('x', boolean=true) }}",
        "{{ word | replace('r', 'R') }} {{ 'aaa' | replace('a', 'b', 1) }} {{ list | first }} {{ list | last }} {{ nothing | first }}|{{ word | last }}",
        "{{ 'abc' | list }} {{ map | list }} {{ map | items | list }} {{ map | dictsort }} {{ nope | items | list }}",
        "{{ words | sort }} {{ words | sort(case_sensitive=true) }} {{ list | sort(reverse=true) }} {{ people | sort(attribute='age') | map(attribute='name') | list }}",
        "{{ people | sort(attribute='age,name', reverse=true) | map(attribute='name') | list }} {{ {'b': 1, 'A': 2} | dictsort(true) }} {{ {'b': 1, 'a': 2} | dictsort(by='value') }}",
        "{{ words | unique | list }} {{ [1, 1, 2, 'A', 'a'] | unique(case_sensitive=true) | list }}",
        "{{ words | map('upper') | list }} {{ words | map('replace', 'a', 'x') | list }} {{ list | map('string') | join }}",
        "{{ list | select('gt', 1) | list }} {{ list | reject('odd') | list }} {{ [0, 1, '', 'a', none] | select | list }} {{ nothing | select | list }}",
        "{{ people | selectattr('age', 'equalto', 41) | map(attribute='name') | list }} {{ people | rejectattr('pet') | map(attribute='name') | list }} {{ people | selectattr('pet.kind', 'in', ['cat']) | list | length }}",
        "{{ none_value | selectattr('x') | list }} {{ people | selectattr('nope', 'defined') | list }}",
        "{{ '42' | int }} {{ '3.9' | int }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ '0x1f' | int(base=16) }} {{ 3.99 | int }} {{ '2.5' | float }} {{ 'x' | float }} {{ 3 | float }}",
        "{{ 2.5 | round }} {{ 3.5 | round }} {{ pi | round(2) }} {{ 2.1 | round(method='ceil') }} {{ 2.19 | round(1, 'floor') }} {{ 5 | round }} {{ 0.125 | round(2) }}",
        "{{ '<a href=\"x\">\\'&' | escape }} {{ '<' | e }} {{ word | safe }} {{ 5 | string + 'x' }} {{ -5 | abs }}",
        "{{ lines | indent }}|{{ lines | indent(2, true) }}|{{ lines | indent(width=1, blank=true) }}|{{ lines | indent('> ') }}",
        "{{ list | sum }} {{ people | sum(attribute='age') }} {{ list | max }} {{ words | min }} {{ people | max(attribute='age') }}",
        "{{ word | reverse }} {{ list | reverse | list }} {{ '%s-%s' | format('a', 1) }}",
        "{{ 5 | length }}", "{{ word | nosuchfilter }}", "{{ 5 | items | list }}", "{{ [1, 'a'] | sort }}",
    ],
    "tojson": [
        "{{ map | tojson }}", "{{ map | tojson(indent=2) }}", "{{ map | tojson(ensure_ascii=true) }}", "{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}",
        "{{ map | tojson(separators=(',', ':')) }}", "{{ [1, 2.0, 1e100, none, true, 'a\"\\\\\\n\\t\\x01'] | tojson }} {{ huge | tojson }}",
        "{{ nothing | tojson(indent=4) }} {{ {} | tojson(indent=4) }} {{ [[], {}] | tojson(indent=1) }} {{ '😀' | tojson(ensure_ascii=true) }}",
        "{{ (1, 2) | tojson }} {{ {1: 2, none: 3, true: 4} | tojson }} {{ 'x' | tojson }}", "{{ nope | tojson }}",
    ],
    "tests": [
        "{{ nope is defined }} {{ word is defined }} {{ none_value is none }} {{ word is string }} {{ map is mapping }} {{ list is iterable }} {{ 3 is iterable }}",
        "{{ 3 is number }} {{ true is number }} {{ 3 is integer }} {{ true is integer }} {{ 3.0 is float }} {{ yes is boolean }} {{ yes is true }} {{ no is false }} {{ 1 is true }}",
        "{{ 3 is eq 3 }} {{ 3 is equalto(4) }} {{ 2 is in list }} {{ 9 is not in list }} {{ list is sequence }} {{ map is sequence }} {{ 3 is odd }} {{ 4 is divisibleby 2 }}",
        "{{ word is not none and word is string }} {{ word is lower }} {{ 'A' is upper }} {{ 3 is ne 4 }} {{ 3 is gt 2 }} {{ 3 is le 2 }}",
        "{{ 'yes' if word is defined else 'no' }} {{ 'yes' if nope is defined and nope else 'no' }} {{ not nope is defined }}",
        "{{ word is nosuchtest }}",
    ],
    "control": [
        "{% if zero %}a{% elif nothing %}b{% elif three %}c{% else %}d{% endif %}",
        "{% for x in list %}{{ loop.index }}/{{ loop.length }}:{{ x }}{% if not loop.last %}, {% endif %}{% endfor %}",
        "{% for x in list %}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }};{% endfor %}",
        "{% for x in list %}[{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }}]{% endfor %}",
        "{% for x in nothing %}x{% else %}none{% endfor %}{% for x in list %}{{ x }}{% else %}none{% endfor %}",
        "{% for k, v in map.items() %}{{ k }}={{ v }};{% endfor %}{% for k in map %}{{ k }}{% endfor %}{% for (a, b) in nested %}{{ a + b }} {% endfor %}",
        "{% for p in people if p.age > 10 %}{{ loop.index }}{{ p.name }}{% endfor %}{% for c in 'añb' %}<{{ c }}>{% endfor %}",
        "{% for x in range(3) %}{% for y in range(x) %}{{ x }}{{ y }}({{ loop.index }}) {% endfor %}{% endfor %}",
        "{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}{{ x }}{% endfor %}",
        "{% for x in range(2, 10, 3) %}{{ x }} {% endfor %}{{ range(5, 0, -2) | list }}{{ loop is defined }}",
        "{% for x in list %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% endfor %}",
        "{% for x in 5 %}{% endfor %}", "{% for a, b in list %}{% endfor %}", "{% break %}", "{% for x in nope %}x{% endfor %}ok",
        "{% if yes %}{% set q = 1 %}{% endif %}{{ q }}{% for x in list %}{% set q = x %}{% endfor %}{{ q }}",
        "{% for x in list %}{{ seen is defined }}{% set seen = x %}{% endfor %}",
        "{% with a = 1, b = word %}{{ a }}{{ b }}{% set c = 2 %}{% endwith %}{{ a is defined }}{{ c is defined }}",
        "{% filter upper | replace('L', '1') %}hello {{ word }}{% endfilter %}",
        "{% generation %}x{{ word }}{% endgeneration %}",
    ],
    "set": [
        "{% set a = 1 %}{% set b, c = 2, 3 %}{{ a }}{{ b }}{{ c }}{% set t = 1, 2 %}{{ t }}",
        "{% set ns = namespace(n=0, s='') %}{% for x in list %}{% set ns.n = ns.n + x %}{% set ns.s = ns.s ~ x %}{% endfor %}{{ ns.n }} {{ ns.s }} {{ ns.none }}",
        "{% set block %}a{{ word }}{% set inner = 1 %}{% endset %}{{ block }}|{{ inner is defined }}",
        "{% set up | upper | trim %} {{ word }} {% endset %}[{{ up }}]{% set ns = namespace() %}{% set ns.x %}y{% endset %}{{ ns.x }}",
        "{% set word = 'shadow' %}{{ word }}", "{% set x.y = 1 %}", "{% set x = map %}{{ x.z }}{% set x.z = 2 %}", "{{ dict(a=1, b='x') }} {{ dict([('k', 2)], z=3) }}",
    ],
    "macros": [
        "{% macro m(a, b=2, c='x') %}[{{ a }}{{ b }}{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, c='z') }}{{ m(b=5, a=0) }}{{ m() }}",
        "{% macro f(n) %}{{ n }}{% if n > 0 %},{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(4) }}",
        "{% macro outer() %}{{ later() }}{{ word }}{{ top }}{% endmacro %}{% macro later() %}L{% endmacro %}{% set top = 'T' %}{{ outer() }}",
        "{% macro wrap(tag) %}<{{ tag }}>{{ caller() }}</{{ tag }}>{% endmacro %}{% call wrap('b') %}in {{ word }}{% endcall %}",
        "{% macro each(xs) %}{% for x in xs %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(v, i) each(list) %}({{ i }}:{{ v }}){% endcall %}",
        "{% macro va() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ va(1, 2, k=3) }}", "{% macro t() %} x {% endmacro %}{{ t() | trim | length }}{{ t().strip() + 'y' }}{{ t.name }}",
        "{% macro few(a) %}{{ a }}{% endmacro %}{{ few(1, 2) }}", "{% macro few(a) %}{{ a }}{% endmacro %}{{ few(b=2) }}", "{% macro kw(a) %}{{ a }}{{ kwargs }}{% endmacro %}{{ kw(1, b=2) }}",
        "{% macro args(a) %}{{ a }}{% endmacro %}{{ args(*[7]) }}{{ args(**{'a': 8}) }}", "{% macro bad(a) %}{{ a.b.c }}{% endmacro %}{{ bad() }}",
        "{% macro is_empty(x) %}{% if not x %}1{% endif %}{% endmacro %}{{ 'e' if is_empty('') else 'f' }}{{ 'e' if is_empty('a') else 'f' }}",
    ],
    "whitespace": [
        "a\n{% if yes %}\nb\n{% endif %}\nc\n", "a\n  {% if yes %}  \n  b\n  {% endif %}\nc", "a\n  {%- if yes -%}  \n  b\n  {%- endif -%}\nc",
        "a \n {{- ' b ' -}} \n c", "a\n  {{ word }}\n  b\n\n", "a {# note #} b\n{# line #}\nc", "a\n   {#- note -#}   \nb", "  {% set x = 1 %}\n  {{ x }}\n",
        "a\n  {%+ if yes %}x{% endif +%}\nb", "x {% if yes %} y {% endif %} z", "{% raw %}{{ not }} {% this %}{% endraw %}!", "a\n  {%- raw -%}  {{ x }}  {%- endraw -%}  b",
        "{% raw %}\n {{ x }}\n{% endraw %}\ny", "a\r\nb\rc\n", "line\n\n\n", "{% if yes %}\n\n  two\n{% endif %}", "\t{% if yes %}x{% endif %}\t\n", "{{ word }}\n{% if yes %}x{% endif %}",
        "  {{ word }}  {% if yes %}  {% endif %}  ", "{%- for m in messages %}\n  {%- if m.role == 'user' %}\n    {{- m.content }}\n  {%- endif %}\n{%- endfor %}\n.",
        "{%if yes%}tight{%endif%}{{word}}{{-word-}} x",
        "a{% if yes -%}\n\n  {% if yes %}b{% endif %}\n{% endif %}", "{# {{ x }} {% y %} #}ok", "{{ '{{ x }}' }}{{ '%}' }}{% if '%}' == '%}' %}eq{% endif %}",
    ],
    "whole templates": [
        "{%- macro dump(o) -%}\n  {%- set ns = namespace(first=true) -%}\n  {{ '{' -}}\n  {%- for k, v in o.items() -%}\n    {%- if k != 'skip' -%}\n      {%- if not ns.first -%}{{- ', ' -}}{%- endif -%}\n      {%- set ns.first = false -%}\n      \"{{ k }}\": {{ v | tojson(ensure_ascii=False) }}\n    {%- endif -%}\n  {%- endfor -%}\n  {{- '}' -}}\n{%- endmacro -%}\n<tools>\n{% for p in people %}\n{%- if 'pet' in p and p.pet -%}\n    {%- set p = p['pet'] -%}\n{%- endif -%}\n{% if p.defer is not defined or not p.defer %}\n{{ dump(p) }}\n{% endif %}\n{% endfor %}\n</tools>\n",
        "{%- macro found(xs, x) -%}{%- set ns = namespace(f=false) -%}{%- for y in xs -%}{%- if y == x -%}{%- set ns.f = true -%}{%- break -%}{%- endif -%}{%- endfor -%}{%- if ns.f -%}1{%- endif -%}{%- endmacro -%}{%- for q in [1, 5] -%}{{ q }}{{ 'yes' if found(list, q) else 'no' }};{%- endfor -%}",
        "{%- set ns = namespace(last=-1) -%}{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 -%}{%- endif %}{%- endfor %}\n{%- for m in messages -%}\n{%- if m.role == 'user' -%}<|user|>{{ m.content }}\n{%- elif m.role == 'assistant' -%}\n<|assistant|>\n{%- set content = m.content %}\n{%- if m.reasoning is string %}{%- set r = m.reasoning %}{%- elif '</think>' in content %}{%- set r = content.split('</think>')[0].split('<think>')[-1] %}{%- endif %}\n{%- if loop.index0 > ns.last and r is defined -%}{{ '<think>' + r + '</think>' }}{%- else -%}{{ '<think></think>' }}{%- endif -%}\n{{ content.strip() }}\n{%- elif m.role == 'system' -%}<|system|>{{ m.content }}{%- endif -%}\n{%- endfor -%}\n{%- if add_generation_prompt is not defined or add_generation_prompt -%}\n    <|assistant|>{{- '<think>' -}}\n{%- endif -%}\n",
        "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}{% if loop.index0 == 0 and system_message is defined %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{{ '[' + message['role'] | upper + '] ' + content | trim }}{% endfor %}",
    ],
    "edges": [
        "{% for x in list %}{% macro m() %}a{% endmacro %}{{ m() }}{% break %}{% endfor %}", "{##}a{# b #}", "{{ dict(1) }}",
        "{% for x in list %}{% macro m() %}{% break %}{% endmacro %}{{ m() }}{% endfor %}", "{{ map == map }}{{ list == list }}",
        "{{ {'a': [1]} == {'a': [1]} }}{{ {'a': 1} == {'a': 2} }}{{ {'a': 1} == {'b': 1} }}{{ {} == {} }}{{ {'a': 1} == {} }}",
        "{{ dict([('k', 1)], [2]) }}", "{% if yes +%}\n  x\n{%- raw %}\n  y\n{% endraw +%}\n z{% endif %}", "{{ 'a' < 1 }}",
        "{{ [1, 'a'] < [1, 'b'] }}{{ [2] > [1, 5] }}{{ (1, 2) <= (1, 2) }}", "{{ '\\ud83d\\ude00' | length }}{{ '\U0001F600' | tojson(ensure_ascii=true) }}",
        "{{ '\uffff\U00010000' | tojson(ensure_ascii=true) }}", "{{ 1 if }}", "{{ '{{' }}{{ '}}' }}", "{{ word }", "{% if yes }}",
    ],
    "globals": [
        "{{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %b %Y, %H:%M:%S %A %B %j %y %I %p %%') }}", "{{ raise_exception('no way') }}",
        "{% if messages[0].role != 'user' %}{{ raise_exception('first must be user, not ' ~ messages[0].role) }}{% endif %}",
    ],
    "syntax errors": [
        "{{ 1 +", "{% if x %}", "{% endif %}", "{{ }}", "{{ (1, }}", "{% for x %}{% endfor %}", "{{ 'abc }}", "{# abc", "{% unknown %}", "{{ a b }}", "{{ [1, 2 }}",
        "{% raw %} x", "{% macro (a) %}{% endmacro %}", "{{ x | }}", "{{ x is }}", "{% set 1 = 2 %}", "{% set true = 2 %}", "{{ {1} }}", "{{ a.b. }}", "{% if yes %}{% else %}{% else %}{% endif %}",
    ],
}

# Each row has an expression in which every value takes the place of @: operators between values, and tests, filters and
# methods after a value. An expression that fails has the result null, one that is left out "?".
RIGHTS = ["none", "true", "0", "3", "2.5", "'a b'", "'b'", "[3, 1, 2]", "{'b': 1, 'a': [2]}", "missing"]
VALUES = ["none", "true", "0", "3", "-7", "2.5", "''", "'a b'", "'Zz9'", "'é\\n<'", "[]", "[3, 1, 2]", "['b', 'A', 'a']",
          "(1, 'x')", "{}", "{'b': 1, 'a': [2]}", "missing"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]
AFTER = [
    " is defined", " is undefined", " is none", " is string", " is mapping", " is boolean", " is true", " is false",
    " is integer", " is float", " is number", " is iterable", " is sequence", " is odd", " is even", " is not even",
    " is divisibleby(3)", " is sameas(none)", " is in('a b')", " is eq(3)", " is ne(3)", " is lt(3)", " is le(3)",
    " is gt(3)", " is ge(3)",
    "|abs", "|capitalize", "|count", "|default('d')", "|default('d', true)", "|dictsort", "|dictsort(reverse=true)",
    "|dictsort(by='value')", "|e", "|first", "|float", "|float(9)", "|string|indent", "|string|indent(2, true)", "|int", "|int(9)",
    "|int(9, 16)", "|items|list", "|join", "|join('-')", "|last", "|length", "|list", "|lower", "|map('string')|list",
    "|map('upper')|list", "|max", "|min", "|reject('odd')|list", "|replace('a', 'xy')", "|replace('a', 'xy', 1)",
    "|reverse|list", "|safe", "|select|list", "|select('string')|list", "|sort", "|sort(reverse=true)",
    "|sort(case_sensitive=true)", "|string", "|sum", "|sum(start=5)", "|title", "|tojson", "|tojson(indent=2)", "|trim",
    "|trim('a')", "|unique|list", "|unique(true)|list", "|upper",
    ".strip()", ".upper()", ".title()", ".startswith('a')", ".endswith(('b', '9'))", ".split()", ".split(' ', 1)",
    ".rsplit('b')", ".find('b')", ".rfind('z')", ".replace('a', '')", ".isdigit()", ".isalpha()", ".isspace()",
    ".isalnum()", ".count('a')", ".join(['x', 'y'])", ".removeprefix('a ')", ".removesuffix('b')", ".splitlines()",
    ".partition(' ')", ".items()|list", ".keys()|list", ".values()|list", ".get('a')", ".get('c', 4)", ".index(1)",
    "[0]", "[-1]", "['a']", "[1:]", "[:-1]", "[::-1]", "[5:1]", "[::2]", ".a", ".copy()"]
NUMBERS = ["0", "1", "2", "3", "7", "-1", "-2", "-7", "0.5", "2.5", "-2.5", "1.25", "99.95", "1e3"]
ARITHMETIC = ["(@) ** 2", "2 ** (@)", "-(@)", "+(@)", "(@)|abs", "(@)|round(1)|float", "(@)|round(0, 'ceil')",
              "(@)|round(1, 'floor')|float", "(@) // 2", "(@) % 3", "(@) // -2", "(@) % -3", "7 // (@)", "7 % (@)",
              "'%d %5.1f|%-6s|%x' % (@, @, @, @|abs|int)", "range((@)|int)|list", "range(0, 9, (@)|int)|list",
              "'abcdefg'[(@)|int:]", "'abcdefg'[:(@)|int]", "[1, 2, 3][(@)|int]"]
# Left out: formats without conversions, keys that are lists, remainders of fractions in tests, undefined numbers,
# copies of tuples (this package is not as strict), and powers, whose last bit depends on the library.
DIFFERENT = re.compile(r"^\('.*'\) % |^\([\[{].*\) (not )?in \(\{|^\(2\.5\) is (odd|even|not even|div)|"
                       r"^\(missing\)\|(int|float)|^\(\(.*\.copy|^2 \*\* \(.*\.")


def products():
    rows = [(f"({left}) {op} (@)", "rights") for op in OPERATORS for left in VALUES]
    rows += [(f"(@){after}", "values") for after in AFTER]
    return rows + [(expression, "numbers") for expression in ARITHMETIC]


lists = {"rights": RIGHTS, "values": VALUES, "numbers": NUMBERS}
rows = []
for expression, name in products():
    row = {"expression": expression, "with": name, "want": []}
    for value in lists[name]:
        whole = expression.replace("@", value)
        try:
            want = environment().from_string("{{ " + whole + " }}").render(**VARS)
        except Exception:
            want = None
        row["want"].append("?" if DIFFERENT.search(whole) else want)
    rows.append(row)

out = []
for group, templates in CASES.items():
    for i, template in enumerate(templates):
        case = {"name": f"{group} {i + 1}", "template": template}
        try:
            case["want"] = environment().from_string(template).render(**VARS)
        except Exception as problem:
            case["error"] = f"{type(problem).__name__}: {problem}"
        out.append(case)
json.dump({"origin": f"generate.py, jinja2 {jinja2.__version__}", "vars": VARS, "cases": out}, sys.stdout, ensure_ascii=False, indent=1)
print()
with open("products.json", "w") as file:
    file.write(json.dumps({"lists": lists})[:-1] + ', "rows": [\n')
    file.write(",\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n]}\n")

