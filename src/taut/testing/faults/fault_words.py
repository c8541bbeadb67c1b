"""Faults in words: as the Python that plans them, which reads back, and as a line for people."""

from __future__ import annotations

import ast

from taut.core.messages import SUPERVISOR
from taut.errors import Misuse
from taut.simulator import faults as f

Calls = list[tuple[str, list[object], dict[str, object]]]


def written(fault: f.Fault) -> str:
    """Return the calls that plan the fault.

    >>> written(f.Fail(2, at_s=0.0, at_step=30)), written(f.Loss(0, 1, p=0.05, from_s=1.0, until_s=2.5))
    ('.kill(2).at_step(30)', '.drop(0, 1, p=0.05).between(1, 2.5)')
    """
    match fault:
        case f.Fail(rank):
            call = f"kill({rank})"
        case f.Pause(rank, for_s=for_s):
            call = f"pause({rank}, for_s={_number(for_s)})"
        case f.Join(count):
            call = f"join({count})"
        case f.Restart(rank, after_s):
            call = f"restart({rank}, after_s={_number(after_s)})"
        case f.Departure(rank):
            call = f"leave({rank})"
        case f.KillSupervisor(back_after_s, moved=moved):
            back = "None" if back_after_s is None else _number(back_after_s)
            call = f"kill_supervisor(back_after_s={back}{', moved=True' if moved else ''})"
        case f.Slow(rank, times):
            call = f"slow({rank}, times={_number(times)})"
        case f.Partition(groups):
            call = f"partition({', '.join('{' + ', '.join(map(str, group)) + '}' for group in groups)})"
        case f.Throttle(one, other, share):
            call = f"throttle({one}, {other}, share={_number(share)})"
        case f.Repeat(one, other, p, by_s):
            call = f"duplicate({one}, {other}, p={_number(p)}, by_s={_number(by_s)})"
        case f.Reorder(one, other, p, by_s):
            call = f"reorder({one}, {other}, p={_number(p)}, by_s={_number(by_s)})"
        case f.Loss(one, other, p, one_way):
            chance = "" if p == 1.0 else f", p={_number(p)}"
            verb = "one_way" if one_way else "cut" if p == 1.0 else "drop"
            call = f"{verb}({one}, {other}{chance})"
    return f".{call}{_when(fault)}"


def _when(fault: f.Fault) -> str:
    if isinstance(fault, f.Moment):
        if fault.at_step is not None:
            return f".at_step({fault.at_step})"
        return f".at({_number(fault.at_s)})"
    if fault.until_s is not None:
        return f".between({_number(fault.from_s)}, {_number(fault.until_s)})"
    return f".at({_number(fault.from_s)})" if fault.from_s else ""


def told(fault: f.Fault) -> str:
    """Describe what happens, and when.

    >>> told(f.Fail(2, at_s=0.0, at_step=30)), told(f.Partition(((0, 1), (2, SUPERVISOR)), 5.0, 9.0))
    ('worker 2 dies at its step 30', 'from 5 s to 9 s: workers 0 and 1 are cut off from worker 2 and the supervisor')
    """
    if not isinstance(fault, f.Moment):
        end = "the end" if fault.until_s is None else f"{fault.until_s:g} s"
        return f"from {fault.from_s:g} s to {end}: {_told_extent(fault)}"
    when = _moment(fault)
    match fault:
        case f.Fail(rank):
            return f"worker {rank} dies {when}"
        case f.Pause(rank, for_s=for_s):
            return f"worker {rank} is stopped {when}, for {for_s:g} s"
        case f.Join(count):
            return f"{count} more worker{'s come' if count > 1 else ' comes'} {when}"
        case f.Restart(rank, after_s):
            return f"worker {rank} dies {when}, and its script is started again {after_s:g} s later"
        case _:
            return _told_leaving(fault, when)


def _told_leaving(fault: f.Departure | f.KillSupervisor, when: str) -> str:
    if isinstance(fault, f.Departure):
        return f"worker {fault.rank} is asked to leave {when}"
    back_s, where = fault.back_after_s, ", at another address" if fault.moved else ""
    return f"the supervisor dies {when}, {'for good' if back_s is None else f'and is back {back_s:g} s later{where}'}"


def _told_extent(fault: f.Slow | f.Partition | f.Loss | f.Throttle | f.Repeat | f.Reorder) -> str:
    match fault:
        case f.Slow(rank, times):
            return f"worker {rank} takes {times:g} times as long for a step"
        case f.Partition(groups):
            return " are cut off from ".join(_who(group) for group in groups)
        case f.Throttle(one, other, share):
            return f"the link between {_who((one, other))} has {share:.3g} of its bandwidth"
        case f.Loss(one, other, p, one_way):
            way = f"from {_end(one)} to {_end(other)}" if one_way else f"between {_end(one)} and {_end(other)}"
            return f"messages {way} are lost" + ("" if p == 1.0 else f" with probability {p:g}")
        case f.Repeat(one, other, p, by_s):
            return f"messages between {_end(one)} and {_end(other)} come twice with probability {p:g}, {by_s:g} s apart"
        case f.Reorder(one, other, p, by_s):
            return f"messages between {_end(one)} and {_end(other)} are {by_s:g} s late with probability {p:g}"


def _moment(fault: f.Moment) -> str:
    if fault.at_step is None:
        return f"at {fault.at_s:g} s"
    whose = "the first worker's" if isinstance(fault, f.Join | f.KillSupervisor) else "its"
    return f"at {whose} step {fault.at_step}"


def _end(rank: int | None) -> str:
    return "any worker" if rank is None else "the supervisor" if rank == SUPERVISOR else f"worker {rank}"


def _who(ranks: tuple[int, ...]) -> str:
    workers = [str(rank) for rank in ranks if rank != SUPERVISOR]
    named = [f"worker{'s' if len(workers) > 1 else ''} {' and '.join(workers)}"] if workers else []
    return " and ".join(named + (["the supervisor"] if SUPERVISOR in ranks else []))


def _number(value: float) -> str:
    """Return the shortest text that reads back to the same number.

    >>> _number(5.0), _number(0.05)
    ('5', '0.05')
    """
    return str(int(value)) if value == int(value) else repr(value)


def read_calls(text: str) -> tuple[dict[str, object], Calls]:
    """Parse ``FaultPlan(seed=7).kill(2).at_step(30)``: return the first call's arguments by name, and the calls after it.
    Nothing of it is executed, and arguments are plain values.

    >>> read_calls("FaultPlan(seed=7).kill(2).at_step(30)")
    ({'seed': 7}, [('kill', [2], {}), ('at_step', [30], {})])
    """
    example = "as in FaultPlan(seed=7).kill(2).at_step(30)"
    try:
        node: ast.expr = ast.parse(text.strip(), mode="eval").body
        calls: Calls = []
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            calls.append((node.func.attr, *_arguments(node)))
            node = node.func.value
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "FaultPlan"):
            raise Misuse(f"fault plan {text!r}", "FaultPlan(...) and calls of it", example)
        unnamed, named = _arguments(node)
    except (SyntaxError, ValueError, RecursionError) as error:
        if isinstance(error, Misuse):
            raise
        raise Misuse(f"fault plan {text!r}", "a chain of calls with plain values", example) from None
    if len(unnamed) > 1 or (unnamed and "seed" in named):
        raise Misuse(f"fault plan {text!r}", "FaultPlan(seed=...) alone at the beginning", example)
    return ({"seed": unnamed[0]} if unnamed else {}) | named, calls[::-1]


def _arguments(call: ast.Call) -> tuple[list[object], dict[str, object]]:
    named = {each.arg: ast.literal_eval(each.value) for each in call.keywords if each.arg is not None}
    if len(named) < len(call.keywords):
        raise ValueError("**")
    return [ast.literal_eval(each) for each in call.args], named
