"""The markup of every page, as Jinja2 templates; all that comes from data is text, never markup.

Autoescaping is on in every template, and an unknown name is an error. A block of `apps.pages.page`
has the template of its class's name and is ``block`` there; ``report``, ``titled`` and ``index``
fill the gaps of ``layout``. Templates are text in a module because a Flower bundle carries .py,
.toml, .md and .json files only, and a ServerApp writes its report from inside the bundle.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from trellis.apps.pages.style import CSS
from trellis.apps.pages.wording import number
from trellis.install import pip_install

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

TEMPLATES = {
    "Section": """\
<section id="{{ block.anchor }}">
<h2>{{ block.title }}</h2>
{% for part in block.blocks %}
{{ part }}
{% endfor %}
</section>""",
    "Paragraph": "<p>{{ block.text }}</p>",
    "Heading": "<h3>{{ block.text }}</h3>",
    "Notice": '<div class="notice" role="note"><p>{{ block.text }}</p></div>',
    "Code": "<pre><code>{{ block.text }}</code></pre>",
    "Link": '<a href="{{ block.address }}">{{ block.text }}</a>',
    "Badge": '<span class="badge {{ block.kind }}">{{ block.text }}</span>',
    "Facts": """\
<dl class="facts">
{% for term, value in block.items.items() %}
<div><dt>{{ term }}</dt><dd>{{ value | cell }}</dd></div>
{% endfor %}
</dl>""",
    # A region that scrolls must be reachable by keyboard and have a name.
    "Table": """\
<div class="scroll{% if block.tall %} tall{% endif %}" tabindex="0" role="region" \
aria-label="{{ block.name }}"><table{% if block.stack %} class="stack"{% endif %}>
{% if block.caption %}
<caption><span>{{ block.caption }}</span></caption>
{% endif %}
<thead><tr>
{% for name, style in block.columns %}
{% if name %}
<th scope="col"{{ {"class": style} | xmlattr }}>{{ name }}</th>
{% else %}
<td></td>
{% endif %}
{% endfor %}
</tr></thead>
<tbody>
{% for line in block.lines %}
<tr>
{% for (name, style), value in line %}
{% if loop.first %}
<th scope="row"{{ {"class": style} | xmlattr }}>{{ value | cell }}</th>
{% else %}
<td{{ {"class": style, "data-label": name if block.stack else none} | xmlattr }}>
{{- value | cell }}</td>
{% endif %}
{% endfor %}
</tr>
{% endfor %}
</tbody></table></div>""",
    "FigureBlock": """\
<figure><div class="sheet">{{ block.svg }}</div>
{% if block.title or block.caption %}
<figcaption>
{% if block.title %}
<strong>{{ block.title }}.</strong>
{% endif %}
{{ block.caption }}</figcaption>
{% endif %}
</figure>""",
    "Picture": """\
<figure><a class="sheet" href="{{ block.address }}"><img src="{{ block.source }}" \
alt="{{ block.shows }}"></a>
<figcaption>{{ block.title }}</figcaption></figure>""",
    "Gallery": """\
<div class="gallery">
{% for figure in block.figures %}
{{ figure }}
{% endfor %}
</div>""",
    "layout": """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" \
content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="generator" content="Trellis">
<title>{{ title }}</title>
<style>{% include "style" %}</style>
</head>
<body>
<header>
<p class="kicker">Trellis, federated graph learning under privacy</p>
{% block header required %}{% endblock %}
</header>
{% block warnings %}{% endblock %}
<main>
{% for block in blocks %}
{{ block }}
{% endfor %}
</main>
{% block footer %}{% endblock %}
</body>
</html>
""",
    "style": CSS,
    "report": """\
{% extends "layout" %}
{% block header %}
<h1>{{ result.study }}</h1>
<p class="lead">{{ badge }} {{ summary }}</p>
<dl class="numbers">
{% for name, value in numbers.items() %}
<div><dt>{{ name }}</dt><dd>{{ value | cell }}</dd></div>
{% endfor %}
</dl>
<nav aria-label="Contents"><ul>
{% for section in blocks %}
<li><a href="#{{ section.anchor }}">{{ section.title }}</a></li>
{% endfor %}
</ul></nav>
{% endblock %}
{% block warnings %}
{% if notes %}
{% set failed = result.status == "failed" %}
<aside class="notice">
<h2>{{ "What went wrong" if failed else "To know before using this result" }}</h2>
<ul>
{% for note in notes %}
<li>{{ note }}</li>
{% endfor %}
</ul></aside>
{% endif %}
{% endblock %}
{% block footer %}
<footer>Written by Trellis. This file loads nothing from the network.</footer>
{% endblock %}
""",
    "titled": """\
{% extends "layout" %}
{% block header %}
<h1>{{ title }}</h1>
<p class="lead">{{ summary }}.</p>
{% if numbers %}
<dl class="numbers">
{% for name, value in numbers.items() %}
<div><dt>{{ name }}</dt><dd>{{ value | cell }}</dd></div>
{% endfor %}
</dl>
{% endif %}
{% endblock %}
{% block footer %}
<footer>Written by Trellis. This file loads nothing from the network.</footer>
{% endblock %}
""",
    "index": """\
{% extends "layout" %}
{% block header %}
<h1>Studies</h1>
<p class="lead">{{ summary }}.</p>
{% endblock %}
""",
}


def render(template: str, **values: object) -> str:
    """Return a template's text with the values in it, all escaped but what is markup of ours."""
    return environment().get_template(template).render(values)


def own_markup(text: str) -> Markup:
    """Return text that a page takes as it stands: for what we drew ourselves, never for data."""
    environment()  # names the package to install where there is none
    from markupsafe import Markup

    return Markup(text)


@cache
def environment() -> Environment:
    """Return the templates as Jinja2 reads them. Late: a report can be imported without it."""
    try:
        import jinja2
    except ImportError as error:
        raise ImportError(f"reports need jinja2: {pip_install('laptop')}") from error
    made = jinja2.Environment(
        loader=jinja2.DictLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    made.filters["cell"] = _cell
    return made


def _cell(value: object) -> object:
    """Return a link or a badge as it is, anything else as people read it."""
    return value if hasattr(value, "__html__") else number(value)
