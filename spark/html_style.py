"""The style sheet of a report: for light and dark mode, and for wide and narrow screens."""

from __future__ import annotations

__all__ = ["STYLE"]

STYLE = """
:root { color-scheme: light dark; --page: #f4f5f7; --card: #fff; --text: #1c2330; --quiet: #5b6472; --line: #dfe3e8;
  --ok: #1b7f4b; --okay: #e5f4ec; --warn: #8a5a00; --warm: #fdf3dc; --bad: #b3261e; --pale: #fdeceb;
  --s0: #2f6fab; --s1: #9db9d3; --s2: #d98e04; --s3: #c62f26; }
@media (prefers-color-scheme: dark) { :root { --page: #12161c; --card: #1b212a; --text: #e4e8ee; --quiet: #9aa5b4;
  --line: #323b47; --ok: #5fd097; --okay: #16301f; --warn: #f0b849; --warm: #35290f; --bad: #ff8b80; --pale: #3d1c1a;
  --s0: #5b9bd8; --s1: #7590ac; --s2: #e8a735; --s3: #f2635a; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 15px/1.5 system-ui, -apple-system, "Segoe UI",
  Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
main { max-width: 66rem; margin: 0 auto; padding: 1.5rem 1.25rem 3rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 0 0 .75rem; } h3 { font-size: 1rem; margin: 1.25rem 0 .5rem; overflow-wrap: anywhere; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 1.1rem 1.25rem;
  margin-top: 1rem; }
p { margin: .4rem 0; } .quiet, footer, figcaption, dt, small { color: var(--quiet); }
.quiet { font-size: .9rem; } footer { margin-top: 1.5rem; font-size: .85rem; overflow-wrap: anywhere; }
code { font: .9em/1.5 ui-monospace, "DejaVu Sans Mono", monospace; overflow-wrap: anywhere; }
a { color: var(--s0); }
.verdict { border-radius: 10px; border: 1px solid; border-left-width: 8px; padding: .9rem 1.1rem; }
.verdict b { display: block; font-size: 1.3rem; line-height: 1.3; }
.verdict p { color: var(--text); margin: .2rem 0 0; }
.verdict.ok { background: var(--okay); color: var(--ok); border-color: var(--ok); }
.verdict.bad { background: var(--pale); color: var(--bad); border-color: var(--bad); }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(14rem, 1fr)); gap: .7rem 1.5rem; margin: 0; }
dt { font-size: .85rem; } dd { margin: 0; overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(8.2rem, 1fr)); gap: .7rem;
  margin: .5rem 0 .9rem; }
.tile { border: 1px solid var(--line); border-radius: 8px; padding: .5rem .75rem; }
.tile span, .tile small, .tile b { display: block; } .tile span, .tile small { font-size: .85rem; color: var(--quiet); }
.tile b { font-size: 1.5rem; line-height: 1.3; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.tile.ok b { color: var(--ok); } .tile.warn { background: var(--warm); border-color: var(--warn); }
.tile.warn b { color: var(--warn); } .tile.bad { background: var(--pale); border-color: var(--bad); }
.tile.bad b { color: var(--bad); }
table { border-collapse: collapse; width: 100%; margin: .3rem 0 .5rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem .35rem 0; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere; }
th { color: var(--quiet); font-weight: 600; font-size: .85rem; } tr:target { background: var(--warm); }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; } td.n { padding-right: 1rem; }
.tight { white-space: nowrap; overflow-wrap: normal; }
.found { color: var(--bad); font-weight: 600; } .clean { color: var(--ok); } .skipped { color: var(--quiet); }
details { margin: .6rem 0 0; } summary { cursor: pointer; color: var(--quiet); }
.bars { display: grid; grid-template-columns: fit-content(45%) 1fr max-content; overflow-wrap: anywhere;
  gap: .15rem .8rem; align-items: center;
  margin: .4rem 0; font-size: .9rem; }
.bars svg { width: 100%; height: .95rem; display: block; }
.stack { width: 100%; height: 1.5rem; display: block; border-radius: 5px; background: var(--line); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin: .4rem 0; font-size: .9rem; }
.legend i { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; margin-right: .4rem;
  vertical-align: -.05rem; }
.s0 { fill: var(--s0); } .s1 { fill: var(--s1); } .s2 { fill: var(--s2); } .s3 { fill: var(--s3); }
i.s0, i.l0 { background: var(--s0); } i.s1 { background: var(--s1); } i.s2, i.l1 { background: var(--s2); }
i.s3 { background: var(--s3); }
.l0, .l1 { fill: none; stroke: var(--s0); stroke-width: 2; vector-effect: non-scaling-stroke; stroke-linecap: round; }
.l1 { stroke: var(--s2); }
figure { display: grid; grid-template-columns: 4.2rem 1fr; margin: .8rem 0 .4rem; }
figure svg { width: 100%; height: 12rem; display: block; overflow: visible; }
figcaption { grid-column: 1 / 3; font-size: .9rem; margin-bottom: .6rem; }
.up, .across { position: relative; font-size: .8rem; color: var(--quiet); font-variant-numeric: tabular-nums; }
.up span { position: absolute; right: .6rem; transform: translateY(50%); white-space: nowrap; }
.across { grid-column: 2; height: 1.6rem; margin-top: .35rem; }
.across span { position: absolute; transform: translateX(-50%); white-space: nowrap; }
.across .last { transform: translateX(-100%); }
.grid { stroke: var(--line); stroke-width: 1; vector-effect: non-scaling-stroke; }
@media (max-width: 600px) {
  main { padding: 1rem .75rem 2rem; } section { padding: .9rem .85rem; } h1 { font-size: 1.35rem; }
  dl { grid-template-columns: 1fr; } .tiles { grid-template-columns: repeat(auto-fit, minmax(7rem, 1fr)); }
  figure { grid-template-columns: 3.4rem 1fr; } figure svg { height: 9rem; } .across .odd { display: none; }
  table, tbody, tr, td { display: block; width: 100%; } thead { display: none; }
  tr { padding: .5rem 0; border-bottom: 1px solid var(--line); }
  td.empty { display: none; }
  td:not(.empty) { display: grid; grid-template-columns: 6.2rem 1fr; gap: .6rem; border: 0; padding: .1rem 0;
    text-align: left;
    white-space: normal; overflow-wrap: anywhere; }
  td::before { content: attr(data-name); color: var(--quiet); font-size: .85rem; }
}
@media print { body { background: none; } section { break-inside: avoid; } }
"""
