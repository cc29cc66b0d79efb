"""Changes of C source for mutation tests: each changes one place of a function and keeps its lines.

The rewriter divides function bodies into statements. It relies on the layout of clang-format, and needs
no parser of C: a change that does not compile is discarded. Comments, literals, directives, assertions,
the log and error sentences stay as they are.
"""

import dataclasses
import re

DELETE = "delete a statement"
SWAP = "swap two statements"
FENCE = "drop a fence"
ORDER = "weaken a memory order"
NEGATE = "negate a condition"
BOUND = "shift a bound"
KINDS = (DELETE, SWAP, FENCE, ORDER, NEGATE, BOUND)

_HIDDEN = re.compile(
    r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|^[ \t]*\#(?:\\\n|[^\n])*", re.S | re.M
)
_EXEMPT = re.compile(
    r"\b(?:assert|static_assert|_Static_assert|remo__(?:\w+_)?log(?:_\w+)?|remo__fail\w*|\w*printf)\s*\("
)
_FENCE = re.compile(r"\b(?:atomic_thread_fence|remo_fence|remo__\w*fence\w*)\s*\(")
_ORDER = re.compile(r"\bmemory_order_(?:consume|acquire|release|acq_rel|seq_cst)\b")
_BOUND = re.compile(r" (<=|>=|<|>) | ([+-] 1)\b(?![.\w])")
_SHIFTED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_KEYWORD = re.compile(r"(?:return|break|continue|goto|case|default|typedef|static|const|struct|enum|union)\b")
_DECLARATION = re.compile(r"[A-Za-z_]\w*(?:\s+|\s*\*+\s*)(?:const\s+)?[A-Za-z_]\w*\s*(?:[=;,\[(]|$)")
_LABEL = re.compile(r"(?:case\b[^:;{}]*|default|[A-Za-z_]\w*)\s*:(?!:)")
_ASSIGNMENT = re.compile(r"([\w.>\[\]*-]+?) ?(?:\+\+|--|(?:[-+*/%&|^]|<<|>>)?=(?!=) ?[^()]*);$", re.S)
_CHECK = re.compile(r"REMO__REQUIRE\(([^()]*)\);$")
_SPINS = re.compile(r"\b(?:spins|CHECKS_BEFORE_SLEEP)\b")
_CLOSING = {"(": ")", "[": "]", "{": "}"}


@dataclasses.dataclass(frozen=True)
class Change:
    kind: str
    start: int  # the text from start to end is replaced
    end: int
    new: str

    def apply(self, text):
        return text[: self.start] + self.new + text[self.end :]

    def line(self, text):
        return text.count("\n", 0, self.start) + 1


def hide(text):
    """Return the text with comments, literals and directives replaced by spaces; all positions remain."""
    return _HIDDEN.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def _close(code, at):
    """Return the position of the bracket that closes the one at `at`."""
    expected = []
    for position in range(at, len(code)):
        sign = code[position]
        if sign in _CLOSING:
            expected.append(_CLOSING[sign])
        elif expected and sign == expected[-1]:
            expected.pop()
            if not expected:
                return position
    raise ValueError(f"the bracket at {at} is not closed")


def _bodies(code):
    """Yield (start, end) of each function body, braces included."""
    at = 0
    while (brace := code.find("{", at)) >= 0:
        end = _close(code, brace)
        if code[:brace].rstrip().endswith(")"):
            yield brace, end + 1
        at = end + 1


class _Statements:
    """The statements of one function body."""

    def __init__(self, code, start, end):
        self._code = code
        self.simple = []  # (start, end) of each expression statement, semicolon included
        self.pairs = []  # expression statements that follow each other in one block
        self.conditions = []  # (start, end) of each condition, parentheses excluded
        self._block(start + 1, end - 1)

    def _skip(self, at):
        while at < len(self._code) and self._code[at].isspace():
            at += 1
        return at

    def _block(self, at, end):
        previous = None
        while (at := self._skip(at)) < end:
            simple = len(self.simple)
            next_at = self._statement(at)
            is_simple = len(self.simple) == simple + 1 and self.simple[-1] == (at, next_at)
            if is_simple and previous:
                self.pairs.append((previous, self.simple[-1]))
            previous = self.simple[-1] if is_simple else None
            at = next_at

    def _statement(self, at):
        """Record the statement at `at`, and return the position after it."""
        at = self._skip(at)
        code = self._code
        if code[at] == "{":
            end = _close(code, at)
            self._block(at + 1, end)
            return end + 1
        if word := re.compile(r"(if|while|for|switch)\s*\(").match(code, at):
            return self._controlled(word)
        if re.compile(r"(?:do|else)\b").match(code, at):
            return self._statement(self._skip(re.compile(r"\w+").match(code, at).end()))
        label = _LABEL.match(code, at)
        if label and "?" not in label.group():
            return self._statement(label.end()) if code[self._skip(label.end())] != "}" else label.end()
        return self._plain(at)

    def _controlled(self, word):
        opening = word.end() - 1
        closing = _close(self._code, opening)
        if word.group(1) in ("if", "while"):
            self.conditions.append((opening + 1, closing))
        return self._statement(closing + 1)

    def _plain(self, at):
        end = at
        while self._code[end] != ";":
            end = _close(self._code, end) + 1 if self._code[end] in _CLOSING else end + 1
        text = self._code[at:end]
        if text and not _KEYWORD.match(text) and not _DECLARATION.match(text):
            self.simple.append((at, end + 1))
        return end + 1


def _spans(code, pattern):
    """Return (start, end) of each call whose name and opening parenthesis match."""
    return [(match.start(), _close(code, match.end() - 1) + 1) for match in pattern.finditer(code)]


def _blank_lines(text):
    return ";" + "\n" * text.count("\n")


def _commute(one, two):
    """Return whether the order of two statements has no effect.

    This holds for assignments without calls, if neither uses the other's target. It holds for a check of an
    argument and an assignment to a local variable that the check does not use: the check only returns.
    """
    targets = [_ASSIGNMENT.match(text) for text in (one, two)]
    checks = [_CHECK.match(text) for text in (one, two)]
    for target, check in ((targets[0], checks[1]), (targets[1], checks[0])):
        if target and check:
            return target.group(1).isidentifier() and target.group(1) != check.group(1)
    if not all(targets):
        return False
    return targets[0].group(1) not in two and targets[1].group(1) not in one


def _is_spin(code, at):
    """Return whether the line at `at` limits how long a wait spins, which changes only its time."""
    end = code.find("\n", at)
    return _SPINS.search(code, code.rfind("\n", 0, at) + 1, end if end >= 0 else len(code)) is not None


def _in_body(code, text, start, end):
    """Yield the changes of one function body, without regard to exempt calls."""
    statements = _Statements(code, start, end)
    for first, last in statements.simple:
        fence = _FENCE.search(code, first, last)
        yield Change(FENCE if fence else DELETE, first, last, _blank_lines(text[first:last]))
    whole = set(statements.simple)
    for first, last in _spans(code[:end], _FENCE):
        inside = any(one[0] <= first and last <= one[1] for one in whole)
        if first > start and not inside:
            yield Change(FENCE, first, last, "0" + "\n" * text.count("\n", first, last))
    for one, two in statements.pairs:
        if _commute(code[slice(*one)], code[slice(*two)]):
            continue
        between = text[one[1] : two[0]]
        yield Change(SWAP, one[0], two[1], text[two[0] : two[1]] + between + text[one[0] : one[1]])
    for first, last in statements.conditions:
        yield Change(NEGATE, first, last, f"!({text[first:last]})")
    for match in _ORDER.finditer(code, start, end):
        yield Change(ORDER, match.start(), match.end(), "memory_order_relaxed")
    for match in _BOUND.finditer(code, start, end):
        if _is_spin(code, match.start()):
            continue
        if match.group(1):
            yield Change(BOUND, match.start(1), match.end(1), _SHIFTED[match.group(1)])
        else:
            yield Change(BOUND, match.start(), match.end(), "")


def changes(text):
    """Return all changes of a file, in the order of their places."""
    code = hide(text)
    exempt = _spans(code, _EXEMPT)
    found = []
    for start, end in _bodies(code):
        try:
            of_body = list(_in_body(code, text, start, end))
        except (IndexError, ValueError):
            continue  # a macro stands in place of a statement
        for change in of_body:
            # A condition may contain an exempt call; a statement with one stays as it is.
            touched = [one for one in exempt if one[0] < change.end and change.start < one[1]]
            if not touched or change.kind == NEGATE and all(one[0] >= change.start for one in touched):
                found.append(change)
    return sorted(found, key=lambda change: (change.start, change.kind))
