"""What every study uses, on a device and on a server.

Settings of a run (`settings`) and what each may be (`checks`), who a client is and what it holds
(`node`, `tables`, `assignment`, `memory`), what it says (`enrolment`, `release`; in sums, and what
it keeps: `private`), draws that repeat (`seeds`, `threads`), the graph of servers (`servers`), how
good a result is (`evaluation`), what fits a person's own data (`own_data`), and what is kept of a
run (`recording`, `results`, `files`, `progress`, `metrics`).
`runner` starts a run from Python; start reading there, or at `recording` for a server's side.
"""
