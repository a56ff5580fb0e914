"""The look of every HTML report: one style sheet, inline, for screen, phone and paper."""

CSS = """
:root {
  color-scheme: light dark;
  --ink: #1f2328; --quiet: #5b6470; --line: #dde1e6; --page: #ffffff; --card: #f6f7f9;
  --accent: #005f96; --good: #00694d; --bad: #a33a00; --warn-page: #fff6e5; --warn-line: #e69f00;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e6e8eb; --quiet: #a2abb6; --line: #363c44; --page: #15181c; --card: #1e2227;
    --accent: #6cbcec; --good: #4cc9a0; --bad: #ff9a62; --warn-page: #33290f; --warn-line: #e69f00;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; max-width: 62rem; padding: 2rem 1.25rem 4rem; background: var(--page);
  color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Helvetica, Arial,
  sans-serif; overflow-wrap: break-word;
}
a { color: var(--accent); text-underline-offset: .15em; }
p, .notice li { max-width: 46rem; }
h1 { font-size: 2rem; line-height: 1.15; margin: .1em 0 .35em; letter-spacing: -.01em; }
h2 { font-size: 1.35rem; margin: 3rem 0 .8rem; padding-top: 1.2rem;
  border-top: 1px solid var(--line); }
h3 { font-size: 1.02rem; margin: 1.9rem 0 .5rem; }
.kicker { margin: 0; color: var(--quiet); font-size: .85rem; letter-spacing: .02em; }
.lead { margin: 0 0 1.3rem; max-width: none; color: var(--quiet); }
.badge { display: inline-block; padding: .05em .6em; margin-right: .35em; border-radius: 1em;
  border: 1px solid currentColor; font-size: .85rem; font-weight: 600; color: var(--quiet);
  white-space: nowrap; }
.badge.good { color: var(--good); }
.badge.bad { color: var(--bad); }
.numbers { display: grid; grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr));
  gap: .7rem; margin: 0 0 1.2rem; }
.numbers div { background: var(--card); border-radius: 8px; padding: .7rem .9rem; }
.numbers dt { color: var(--quiet); font-size: .8rem; line-height: 1.3; }
.numbers dd { margin: .15rem 0 0; font-size: 1.3rem; font-weight: 600;
  font-variant-numeric: tabular-nums; line-height: 1.25; }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; padding: 0;
  margin: 0; font-size: .92rem; }
.notice { background: var(--warn-page); border-left: 4px solid var(--warn-line);
  border-radius: 0 8px 8px 0; padding: .8rem 1.1rem; margin: 1.2rem 0; }
.notice > :first-child { margin-top: 0; }
.notice > :last-child { margin-bottom: 0; }
.notice h2 { border: 0; padding: 0; font-size: 1rem; margin-bottom: .3rem; }
.notice ul { margin: 0; padding-left: 1.2rem; }
.facts { margin: 1rem 0; }
.facts div { display: grid; grid-template-columns: 11rem 1fr; gap: 0 1.2rem; padding: .45rem 0;
  border-bottom: 1px solid var(--line); }
.facts dt { color: var(--quiet); }
.facts dd { margin: 0; }
.scroll { overflow: auto; margin: 1rem 0; border-radius: 6px; }
.scroll.tall { max-height: 36rem; }
.scroll:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
table { border-collapse: collapse; min-width: min(100%, 32rem); font-size: .9rem;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--quiet); padding: 0 0 .5rem; font-size: .9rem; }
caption span { display: block; position: sticky; left: 0;
  max-width: min(46rem, calc(100vw - 2.5rem)); }
th, td { padding: .38rem 1.4rem .38rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line); }
thead th { position: sticky; top: 0; background: var(--page); font-size: .82rem; line-height: 1.3;
  color: var(--quiet); font-weight: 600; vertical-align: bottom; }
tbody th { font-weight: 500; }
tbody th { min-width: 7rem; }
.num { text-align: right; }
td.num, tbody .short { white-space: nowrap; }
.long { min-width: 14rem; }
figure { margin: 1.2rem 0; }
figure .sheet { background: #fff; border: 1px solid var(--line); border-radius: 8px;
  padding: .6rem; text-align: center; }
figure a.sheet { display: block; }
figure img { width: 100%; height: 15rem; object-fit: contain; vertical-align: top; }
figure svg { max-width: 100%; height: auto; display: inline-block; vertical-align: top; }
figure svg text { font-family: inherit !important; }
@media screen and (prefers-color-scheme: dark) {
  /* Drawn on white: turned to dark by lightness only, hues stay what captions call them. */
  figure .sheet { background: transparent; }
  figure .sheet > svg, figure .sheet > img { filter: invert(.91) hue-rotate(180deg); }
}
figcaption { color: var(--quiet); font-size: .9rem; margin-top: .5rem; max-width: 46rem; }
figcaption strong { color: var(--ink); }
.gallery { display: grid; gap: 1.2rem 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr));
  margin: 1.2rem 0; }
.gallery figure { margin: 0; }
pre { background: var(--card); border-radius: 8px; padding: .8rem 1rem; font-size: .85rem;
  line-height: 1.5; white-space: pre-wrap; overflow-wrap: anywhere; }
code, pre { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
footer { margin-top: 3rem; color: var(--quiet); font-size: .85rem; }
@media (max-width: 40rem) {
  body { padding: 1.2rem 1rem 3rem; }
  h1 { font-size: 1.6rem; }
  .numbers { grid-template-columns: 1fr 1fr; }
  .facts div { grid-template-columns: 1fr; }
  .stack thead { position: absolute; width: 1px; height: 1px; overflow: hidden;
    clip-path: inset(50%); }
  .stack, .stack tbody, .stack tr, .stack th, .stack td { display: block; }
  .stack tr { padding: .7rem 0; border-bottom: 1px solid var(--line); }
  .stack th, .stack td { border: 0; padding: .12rem 0; }
  .stack td { display: grid; grid-template-columns: 6rem 1fr; gap: .8rem; text-align: left;
    white-space: normal; }
  .stack td > * { justify-self: start; }
  .stack td::before { content: attr(data-label); color: var(--quiet); }
  .stack tbody th { font-size: 1.1rem; font-weight: 600; }
}
@media print {
  :root { --ink: #000; --quiet: #444; --line: #bbb; --page: #fff; --card: #f4f4f4;
    --accent: #000; --good: #000; --bad: #000; --warn-page: #fff; --warn-line: #000; }
  body { max-width: none; padding: 0; font-size: 10.5pt; }
  nav { display: none; }
  h2, h3 { break-after: avoid; }
  figure, tr, .notice, .numbers { break-inside: avoid; }
  .scroll, .scroll.tall { max-height: none; overflow: visible; }
  thead th { position: static; }
}
"""
