"""Error codes: what a server hears of a device, and what commands end with."""

from __future__ import annotations

from trellis.privacy.device.codes import CODES, REMEDIES

from .markdown import code, sentence, table

EXITS = {
    "0": "it worked; of `trellis deploy run`: the run completed",
    "1": "something a person can mend; one line says what, `--verbose` shows the trace",
    "2": "words that the command does not know; it names the nearest that it does",
    "130": "interrupted by Ctrl-C; nothing already computed is lost, and it says how to go on",
}


def page() -> str:
    """Return the page of codes."""
    means = {key: text.replace("privacy='none'", "`privacy=none`") for key, text in CODES.items()}
    rows = [(code(key), sentence(text), sentence(REMEDIES[key])) for key, text in means.items()]
    return "\n\n".join(
        [
            "# Error codes",
            "## What a device says { #devices }",
            "A server hears one of these codes and nothing else: the text of an error may quote a "
            "cell of the data. The details are in the device's own log, `trellis device log "
            "STATE`. Under `privacy=dp` all that may depend on the data has one code, E3. More "
            "on the page of [the owner's policy](page:policy#the-codes).",
            table(("code", "means", "what to do"), rows),
            "## What commands end with { #exit-codes }",
            table(("exit code", "means"), [(code(k), sentence(v)) for k, v in EXITS.items()]),
            "Other errors end with Python's own trace: they are defects.",
        ]
    )
