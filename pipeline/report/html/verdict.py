"""The verdict about an epoch: did it load well, what changed, can I trust it, and what should I do?"""

from __future__ import annotations

from typing import Any

from .formatting import count_noun, format_number, format_share, format_signed, join_words, pluralize

Document = dict[str, Any]


def epoch_verdict(document: Document) -> Document:
    """Return the `headline`, the next `command` (or None), and the `answers` to the four questions."""
    headline, todo, command = _headline_parts(document)
    return {
        "headline": _corrected_sentence(document) + headline,
        "command": command,
        "answers": {
            "loaded": _load_answer(document),
            "changed": _change_answer(document),
            "trust": _trust_answer(document),
            "todo": todo,
        },
    }


def _corrected_sentence(document: Document) -> str:
    """Say how the batch of the epoch was replaced, or return an empty text."""
    landed = document["landed"]
    former = landed["former"] if landed else None
    if former is None or document["state"] == "failed":
        return ""
    if former["taken_back"]:
        return "Published again after a rollback. "
    kind = "Rolled back" if former["by"] == "rollback" else "Corrected"
    became = f"{pluralize(former['rows'], 'row')} became {format_number(landed['rows'])}"
    if former["rows"] == landed["rows"]:
        became = f"{pluralize(landed['rows'], 'row')} as before, but different ones"
    return f"{kind}: {became}. "


_RIGHT_TEXTS = {"equal": "equal to a full recomputation", "proved": "proved at this epoch"}


def _headline_parts(document: Document) -> tuple[str, str, str | None]:
    label, state = document["label"], document["state"]
    failed = [check for check in document["checks"] if check["counts"]]
    says = document["audit"]["says"]
    if state == "failed":
        return _failure_parts(document)
    if state == "wrong":
        audited = document["audit"]["checks"] if says == "differs" else []
        wrong = [c for c in [*audited, *failed] if not c["passed"]]
        wrong = [check for check in wrong if check["severity"] == "critical"] or wrong
        when = "" if wrong[0]["fresh"] else f" at revision {wrong[0]['revision']}, and was not repeated since"
        sentence = f"Do not use this epoch yet. A check failed{when}: {wrong[0]['name']} ({wrong[0]['observed']})."
        if wrong[0] not in audited:
            return sentence, _remedy_sentence(wrong), f"altneu audit {label}"
        todo = "Do not use its numbers. A repair computes them again from the landed rows and publishes what differs."
        return sentence, todo, f"altneu repair {label}"
    if state == "warning":
        first = next(check for check in failed if check["severity"] == "warning")
        many = sum(1 for check in failed if check["severity"] == "warning")
        sentence = f"{pluralize(many, 'check')} warned: {first['name']} ({first['observed']})."
        equal = f" The numbers are {_RIGHT_TEXTS[says]}." if says in _RIGHT_TEXTS else ""
        return f"Loaded, but look at it. {_capitalize_first(sentence)}{equal}", _remedy_sentence([first]), None
    held = document["held"]
    if state == "empty":
        sentence = "Nothing is published for this epoch."
        if held:
            sentence += f" Its newest run was {(held['error'] or 'rejected').rstrip('.')}."
            return sentence, "Correct the cause, then run the epoch again.", f"altneu run {label}"
        todo = "Nothing, unless you expect data for it: then land a file." if document["final"] else "Land a file."
        return sentence, todo, f"altneu land FILE --columns src,dst --epoch {label}"
    if state == "running":
        if document["interrupted"]:
            sentence = "A run of this epoch was interrupted. Nothing of it is visible."
            return sentence, "Run it again: the same command continues.", f"altneu run {label}"
        if held:
            sentence = "A run of this epoch is held: computed and checked, not published. Nothing of it is visible."
            todo = "Look at what readers would see change, then publish or discard it."
            return sentence, todo, f"altneu diff {held['run_id']}"
        sentence = "A run of this epoch has started and has not finished. Nothing of it is visible yet."
        return sentence, "Wait for it.", f"altneu run {label}"
    if state == "unaudited":
        known = document["audit"]["checks"] or document["audit"]["proof"]["checks"]
        stale = f" since revision {document['audit']['since']}" if known else ""
        sentence = f"Loaded well. Not compared with a full recomputation{stale or ' yet'}."
        return sentence, "Compare it with a full recomputation when the numbers matter.", f"altneu audit {label}"
    bad = document["landed"]["quarantined"]
    if bad:
        put = pluralize(bad, "malformed row was put", "malformed rows were put")
        return (
            f"Loaded well. {_capitalize_first(_RIGHT_TEXTS[says])}. {put} in quarantine.",
            "Nothing for the numbers. To have the quarantined rows counted, correct the file and land it again.",
            None,
        )
    good = f"Loaded well. {_capitalize_first(_RIGHT_TEXTS[says])}."
    if held and held["state"] == "held":
        todo = "Look at what readers would see change, then publish or discard it."
        return f"{good} A newer run waits for a decision.", todo, f"altneu diff {held['run_id']}"
    if held:
        sentence = f"{good} Its newest run was {(held['error'] or 'rejected').rstrip('.')}."
        return sentence, "Correct the cause, then run the epoch again.", f"altneu run {label}"
    return f"{good} Nothing to do.", "Nothing.", None


def _failure_parts(document: Document) -> tuple[str, str, str | None]:
    run = document["failed_run"]
    error = (run["error"] or "it stopped without saying why").rstrip(".")
    if document["revision"] is None:
        head = f"Not loaded. The run stopped: {error}. Nothing of it was published."
    else:
        before = f"What was published before (revision {document['revision']}) is unchanged."
        head = f"The newest run failed: {error}. {before}"
    critical = [check for check in run["checks"] if check["severity"] == "critical"]
    todo = _remedy_sentence(critical) if critical else "Correct the cause, then run the epoch again."
    return head, todo, f"altneu run {document['label']}"


def _remedy_sentence(checks: list[Document]) -> str:
    return _capitalize_first((checks[0]["remedy"] if checks else "compare with a full recomputation").rstrip(".")) + "."


def _capitalize_first(text: str) -> str:
    return text[:1].upper() + text[1:]


def _load_answer(document: Document) -> str:
    landed = document["landed"]
    if landed is None:
        failed = document["state"] == "failed"
        return "No: the run failed before it published." if failed else "Nothing is published of it."
    sentence = f"{pluralize(landed['rows'], 'row')} from {pluralize(landed['files'], 'file')}"
    if landed["quarantined"]:
        sentence += f"; {format_number(landed['quarantined'])} more in quarantine ({format_share(landed['share'])})"
    else:
        sentence += ", none in quarantine"
    former = landed["former"]
    if former and not former["taken_back"]:
        sentence += f", in place of {pluralize(former['rows'], 'row')} of revision {former['revision']}"
    return f"{_LOADED.get(document['state'], 'Yes')}: {sentence}. {usual_sentence(landed)}".strip()


_LOADED = {
    "failed": "Not the newest run; published before",
    "warning": "Yes, with a warning",
    "wrong": "It was published, and is wrong",
}


def usual_sentence(landed: Document) -> str:
    """Compare the number of rows with the history in a sentence."""
    rows, past = landed["rows"], landed["history"]
    if past["low"] is None:
        return ""
    learned = f"the last {past['epochs']} landed epochs"
    span = f"{format_number(past['low'])} to {format_number(past['high'])}, learned from {learned}"
    if past["uneven"]:
        unlike = f"{learned} are too few, or too unlike each other, to say what is usual"
        if past["low"] <= rows <= past["high"]:
            return f"{unlike[0].upper()}{unlike[1:]} (their middle is {format_number(past['middle'])} rows)."
        return f"Far {'more' if rows > past['high'] else 'fewer'} rows than before, even though {unlike}."
    if rows > past["high"]:
        return f"More rows than usual ({span})."
    if rows < past["low"]:
        return f"Fewer rows than usual ({span})."
    return f"As many rows as usual ({span})."


COUNTED_NOUNS = [("vertex", "vertices"), ("edge", "edges"), ("triangle", "triangles")]


def _change_answer(document: Document) -> str:
    if document["graph"] is None and document["state"] == "failed":
        return "Nothing: no part of it was published."
    if document["graph"] is None:
        return "Nothing is visible yet: the epoch is after the frontier."
    measures = document["graph"]["measures"]
    changes = [(measures[many]["change"], one, many) for one, many in COUNTED_NOUNS]
    moved = [f"{format_signed(change)} {count_noun(change, one, many)}" for change, one, many in changes if change]
    top = measures["max_trussness"]
    if top["change"]:
        moved.append(f"greatest trussness {top['before']} → {top['value']}")
    if not moved:
        return "No total of the graph changed."
    since = f" since {document['before']}" if document["before"] else ""
    return f"{_capitalize_first(join_words(moved))}{since}."


def _trust_answer(document: Document) -> str:
    audit = document["audit"]
    # checks of severity info neither pass nor fail
    judged = [check for check in document["checks"] if check["severity"] != "info"]
    warned = sum(1 for check in judged if check["counts"])
    passed = sum(1 for check in judged if check["passed"] and check["fresh"])
    failed = f", {warned} failed" if warned else ""
    others = f" {pluralize(passed, 'other check')} passed{failed}." if passed + warned else ""
    if document["state"] == "failed" and document["landed"] is None:
        return "There is nothing to trust: nothing was published."
    if audit["says"] == "proved":
        compared = f" It was compared with a recomputation at revision {audit['revision']}."
        before = compared if audit["checks"] else ""
        if warned and document["state"] == "wrong":
            return f"No: proved, but a critical check failed.{others}"
        run = f"the run of revision {audit['proof']['revision']}, which counted everything that changed a second time"
        return f"Yes: proved by {run}.{before}{others}"
    if not audit["checks"] and not audit["proof"]["checks"]:
        return f"Not compared with a full recomputation yet.{others}"
    wrong = pluralize(sum(1 for check in audit["checks"] if not check["passed"]), "comparison")
    decides = audit if audit["checks"] else audit["proof"]
    since = (
        f"revision {audit['since']} {'has computed it again' if decides['recomputed'] else 'may have changed it'} since"
    )
    if audit["says"] == "stale" and decides is not audit:
        return f"It was proved at revision {decides['revision']}; {since}.{others}"
    if audit["says"] == "stale":
        what = "and was equal then" if all(check["passed"] for check in audit["checks"]) else "and differed then"
        return f"It was compared at revision {audit['revision']} {what}; {since}.{others}"
    if audit["says"] == "differs":
        when = "" if audit["fresh"] else f" at revision {audit['revision']}; {since}, and it was not compared again"
        return f"No: {wrong} with a full recomputation found a difference{when}.{others}"
    if warned and document["state"] == "wrong":
        return f"No: equal to a full recomputation, but a critical check failed.{others}"
    return f"Yes: recomputed from the landed rows by another method at revision {audit['revision']}, and equal.{others}"
