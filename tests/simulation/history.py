"""Runs histories: drawn from a seed, replayed from their actions, shrunk to the actions that matter, or explored exhaustively."""

from __future__ import annotations

import itertools
import operator
import random
import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from spark_groupsource.handoff.rules import HOLD, HeldClaims
from tests.simulation.account import Violation
from tests.simulation.driver import LOOK_S
from tests.simulation.group import Fencing
from tests.simulation.record_text import limited
from tests.simulation.setting import Setting
from tests.simulation.world import FAULTS, LETTERS, Action, World

PATIENCE = 8
"""Rounds in which every step that is due was tried and nothing came of any: then nothing ever will."""

WEIGHTS = {
    "append": 6,
    "move": 4,
    "ask": 3,
    "let go": 6,
    "throw out": 2,
    "crash": 2,
    "cut": 2,
    "second": 2,
    "other joins": 2,
    "expire": 9,
    "recreate": 4,
    "elect": 6,
    "upgrade": 2,
    "restore": 4,
    "lose commit": 4,
    "lose answer": 4,
    "report": 4,
}
"""How often a kind of action is drawn, where 1 is not said."""

REREAD = {
    3: HeldClaims(reread_after_s=0),
    4: HeldClaims(reread_after_s=0),
    5: HeldClaims(reread_after_s=3 * LOOK_S),
}
"""`heldClaims` of the settings of these kinds."""

BETWEEN_POLLS = frozenset({"report", "noise", "idle"})
"""What comes from outside of a micro-batch: reports that plans are durable, and looks at what is held for others."""

ROUNDS = 3000
"""Rounds within which a healed world has to come to rest."""


@dataclass(frozen=True)
class Failure:
    """A history that breaks a rule."""

    setting: Setting
    actions: tuple[Action, ...]
    violation: Violation

    def __str__(self) -> str:
        steps = "\n".join("    " + " ".join(map(str, action)) for action in self.actions)
        return f"{self.violation}\n  in {self.setting}\n  after\n{steps}\n  and then no more faults"


def draw_setting(chance: random.Random) -> Setting:
    """Draw one to four streams and one to six partitions. Every other setting has more than healthy streams that hold claims."""
    kind = chance.randrange(10)
    room = chance.choice((1, 2)) if kind == 6 or (kind == 3 and chance.random() < 0.5) else 0
    setting = Setting(
        streams=chance.choice((1, 2, 2, 2, 3, 3, 4)),
        partitions=chance.choice((1, 1, 2, 2, 2, 3, 4, 6)),
        records=chance.choice((2, 3, 5, 8)),
        protocol=chance.choice(("classic", "consumer")),
        second_drivers=kind == 0,
        other_client=kind == 1 or (kind == 5 and chance.random() < 0.5),
        expiry=kind == 2,
        held_claims=REREAD.get(kind, HOLD),
        deletions=kind == 4,
        recreations=kind == 9,
        room=room,
        upgrades=kind == 7,
        restores=kind == 8,
    )
    # Drawn apart, so that the other histories stay as they are.
    apart = random.Random(f"fencing after {chance.getstate()}")
    fencing: Fencing = apart.choice(("equal", "equal", "silent", "whole", "part", "part"))
    loses = apart.random() < 0.25
    return replace(setting, fencing=fencing, lost_answers=loses) if setting.protocol == "consumer" else setting


def run(
    seed: int,
    world_type: Callable[[Setting], World] = World,
    setting: Setting | None = None,
    *,
    reports: bool | None = None,
) -> Failure | None:
    """Draw and run the history for this seed, with a drawn setting unless one is given.

    `reports`: whether drivers learn that a plan is durable. With `None`, they do in two of three histories.
    """
    chance = random.Random(seed)
    teller = random.Random(f"reports in {seed}")
    told = _Told(teller) if reports or (reports is None and teller.random() < 2 / 3) else None
    world = world_type(setting or draw_setting(chance))
    done: list[Action] = []
    try:
        with limited(world.setting.room):
            _live(world, chance, done, told)
            world.heal()
            _rest(world, chance, done, told)
    except Violation as violation:
        return Failure(world.setting, tuple(done), violation)
    return None


class _Told:
    """The reports between a history's other steps. They are drawn separately, so that the other steps do not change."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.often = chance.choice((0.05, 0.2))
        self.slow_trigger = chance.choice((0.0, 0.8))
        self.to_the_end = chance.random() < 0.5
        """Whether it goes on when the faults are over."""
        self._coming: dict[int, Action] = {}

    def before(self, step: int, world: World, done: list[Action]) -> None:
        """Do what comes before this step."""
        pool = [self._coming[step]] if step in self._coming else []
        if not pool and self.chance.random() < self.often:
            pool = _of_one_kind([action for action in world.actions()[1] if action[0] in BETWEEN_POLLS], self.chance)
        if pool:
            done.append(self.chance.choice(pool))
            world.apply(done[-1])

    def after(self, step: int, action: Action) -> None:
        """Report every other plan soon after it is in the commit log."""
        if action[0] == "commit" and self.chance.random() < 0.5:
            self._coming[step + self.chance.choice((1, 2, 5, 20))] = ("report", action[1], 0)

    def in_time(self, pool: Sequence[Action], world: World) -> list[Action]:
        """Return the steps, sometimes without Spark's next call, so that the report of a claimed plan comes first."""
        if self.chance.random() >= self.slow_trigger:
            return list(pool)
        return [action for action in pool if action[0] != "durable" or not world.drivers[action[1]].reports.claimed]


def _live(world: World, chance: random.Random, done: list[Action], told: _Told | None) -> None:
    trouble = chance.choice((0.0, 0.02, 0.05, 0.12))
    outside = chance.choice((0.05, 0.1, 0.2))
    frozen: dict[str, int] = {}
    slow_heartbeats = 0.0 if world.setting.fencing == "equal" else chance.choice((0.0, 0.7, 0.95))
    for step in range(chance.choice((40, 100, 200, 300))):
        if told is not None:
            told.before(step, world, done)
        due, may = world.actions()
        if chance.random() < trouble:
            pool = _of_one_kind([action for action in may if action[0] in FAULTS], chance)
        elif chance.random() < outside:
            pool = [action for action in may if action[0] not in FAULTS | BETWEEN_POLLS or action[0] == "move"]
            pool = _of_one_kind(pool, chance)
        else:
            pool = [action for action in due if len(action) < 2 or frozen.get(action[1], 0) < step]
            if told is not None:
                pool = told.in_time(pool, world)
            if slow_heartbeats and chance.random() < slow_heartbeats:
                pool = [action for action in pool if action[0] != "sync"]
        if not pool:
            continue
        action = chance.choice(pool)
        done.append(action)
        world.apply(action)
        if told is not None:
            told.after(step, action)
        if world.drivers and chance.random() < trouble / 2:
            # A pause: of a garbage collector, a virtual machine, a slow checkpoint store.
            frozen[chance.choice(list(world.drivers))] = step + chance.choice((10, 40))


def _of_one_kind(actions: Sequence[Action], chance: random.Random) -> list[Action]:
    """Return the actions of one kind. Otherwise, kinds with many targets would crowd out the others."""
    kinds = sorted({action[0] for action in actions})
    if not kinds:
        return []
    kind = chance.choices(kinds, [WEIGHTS.get(kind, 1) for kind in kinds])[0]
    return [action for action in actions if action[0] == kind]


def _rest(world: World, chance: random.Random | None, done: list[Action], told: _Told | None = None) -> None:
    """Take every due step until none has an effect, and check the result."""
    idle = 0
    for _ in range(ROUNDS):
        due, may = world.actions()
        if told is not None and told.to_the_end:
            due += [action for action in may if action[0] in BETWEEN_POLLS]
        if chance is not None:
            chance.shuffle(due)
        came = False
        for action in due:
            done.append(action)
            came = world.apply(action) or came
        idle = 0 if came else idle + 1
        # A range that is reread only after a time needs some more looks at the clock.
        if idle > (2 * PATIENCE if world.setting.held_claims.reread_after_s else PATIENCE):
            world.check_end()
            return
    raise Violation("no end", "the world never comes to rest")


def finish(world: World, actions: Sequence[Action]) -> Violation | None:
    """Do these actions, skip those that are impossible, and then let the world come to rest."""
    try:
        with limited(world.setting.room):
            for action in actions:
                world.apply(action)
            world.heal()
            _rest(world, None, [])
    except Violation as violation:
        return violation
    return None


def shrink(failure: Failure, world_type: Callable[[Setting], World] = World) -> Failure:
    """Remove actions that the violation does not need, until none is left to remove."""
    actions, violation = list(failure.actions), failure.violation

    def fails_too(fewer: list[Action]) -> bool:
        nonlocal actions, violation
        found = finish(world_type(failure.setting), fewer)
        if found is None or found.name != violation.name:
            return False
        actions, violation = fewer, found
        return True

    before = len(actions) + 1
    while len(actions) < before:
        before = len(actions)
        size = before // 2
        while size:
            at = 0
            while at < len(actions):
                if not fails_too(actions[:at] + actions[at + size :]):
                    at += size
            size //= 2
        for letter, number in itertools.product(LETTERS, range(1, 10)):
            if ("start", letter) in actions:
                fails_too(_without_driver(actions, letter, number))
    return Failure(failure.setting, tuple(actions), violation)


def _without_driver(actions: Sequence[Action], letter: str, number: int) -> list[Action]:
    """Return the history without this driver. Later drivers of its stream move up."""
    starts = [at for at, action in enumerate(actions) if action[:2] in {("start", letter), ("second", letter)}]
    return [
        tuple(_moved_up(word, letter, number) for word in action)
        for at, action in enumerate(actions)
        if at not in starts[number - 1 : number] and not re.search(rf" {letter}\.{number}\b", " ".join(map(str, action)))
    ]


def _moved_up(word: object, letter: str, number: int) -> object:
    if not isinstance(word, str):
        return word
    return re.sub(rf"^{letter}\.(\d+)", lambda found: f"{letter}.{int(found[1]) - (int(found[1]) > number)}", word)


def script(text: str) -> list[Action]:
    """Return the actions of a printed history, one per line."""
    return [_action(line.split()) for line in text.strip().splitlines()]


IN_FULL = {
    "begins": ("start {0[0]}", "join {0}"),
    "gets": ("move {1} {0}#1", "assign {0}", "on_assign {0}"),
    "takes": ("begins {0}", "gets {0} {1}"),
    "passes": ("revoke {0}", "let go {0}", "assign {1}", "on_assign {1}"),
    "yields": ("sync {0}", "move {2} {1}#1", "passes {0} {1}"),
    "plans": ("durable {0}", "plan {0} {1}", "propose {0}"),
    "claims": ("write {0}", "acknowledge {0}", "claim {0}"),
    "ends": ("sink {0}", "commit {0}"),
    "runs": ("plans {0} {1}", "claims {0}", "ends {0}"),
    "dies": ("crash {0}", "throw out {0}#1"),
}
"""What often comes together in a written history, in one word: `takes A.1 0` and `yields A.1 B.1 0`, for example."""


def prompt(text: str) -> list[Action]:
    """Return the actions of a script with the words in IN_FULL. Brokers answer immediately, so a driver adopts at once."""
    lines = "\n".join(step for line in text.strip().splitlines() for step in _in_full(line))
    return [step for action in script(lines) for step in (action, *_adoption(action))]


def _in_full(line: str) -> list[str]:
    kind, *arguments = line.split()
    if kind not in IN_FULL:
        return [line]
    return [step for part in IN_FULL[kind] for step in _in_full(part.format(*arguments))]


def _adoption(action: Action) -> list[Action]:
    """Ask about a partition with a commit, and about one without."""
    kind, *arguments = action
    return [("answer", arguments[0], 0), ("answer", arguments[0], 0), ("idle", arguments[0])] if kind == "on_assign" else []


def _action(words: list[str]) -> Action:
    size = 2 if words[0] in {"throw", "let", "lose", "other"} else 1
    arguments = (None if word == "None" else int(word) if word.isdigit() else word for word in words[size:])
    return (" ".join(words[:size]), *arguments)


def explore(
    setting: Setting, budget: Mapping[str, int], world_type: Callable[[Setting], World] = World, *, limit: int | None = None
) -> Failure | None:
    """Try every order of all steps in every state, with as much trouble of each kind as `budget` allows.

    Return the first history that breaks a rule. All records exist from the beginning, and the steps in AT_ONCE are taken
    immediately. A plan takes up to `limit` records. Streams differ only in their letters, so their first drivers start in
    alphabetical order.
    """
    start = world_type(setting)
    for number in range(setting.partitions):
        for _ in range(setting.records):
            start.apply(("append", number))
    kinds = sorted(budget)
    everything = tuple(budget[kind] for kind in kinds)
    seen: dict[object, list[tuple[int, ...]]] = {start.key(): [everything]}
    ended: set[object] = set()
    waiting: deque[tuple[World, tuple[int, ...], _Path | None]] = deque([(start, everything, None)])
    while waiting:
        world, left, path = waiting.popleft()
        try:
            came = False
            for action, rest in _choices(world, kinds, left, limit):
                twin = world.clone()
                here: _Path = (action, path)
                came = (twin.apply(action) and rest == left) or came
                _go_on(twin, limit)
                if _is_new(rest, seen.setdefault(twin.key(), [])):
                    waiting.append((twin, rest, here))
                else:
                    twin.forget()
            if not came and world.key() not in ended:
                ended.add(world.key())
                here = (("end",), path)
                twin = world.clone()
                twin.heal()
                _rest(twin, None, [])
                twin.forget()
        except Violation as violation:
            return Failure(setting, _actions(here), violation)
        world.forget()
    assert ended
    return None


def _is_new(left: tuple[int, ...], before: list[tuple[int, ...]]) -> bool:
    """Note a state. Return whether it is new: it has not been met with as much trouble of each kind left, or more."""
    if any(all(map(operator.ge, more, left)) for more in before):
        return False
    before.append(left)
    return True


AT_ONCE = (
    *("join anew", "join", "sync", "on_assign", "answer", "look", "idle"),
    *("plan", "propose", "confirm", "rest", "name", "acknowledge"),
)
"""Steps that an exhaustive search does not hold up, to keep the states few. The random histories do. It holds up `sync` if epochs
rise silently: there they are what is looked at."""

AT_ONCE_AT_MOST = 3
"""How often one step is taken at once: to ask, to act on the answer, and to ask on. One that is refused stays due."""


def _go_on(world: World, limit: int | None) -> None:
    at_once = AT_ONCE if world.setting.fencing == "equal" else tuple(step for step in AT_ONCE if step != "sync")
    taken: Counter[Action] = Counter()
    while steps := [
        action
        for driver in world.drivers.values()
        for action in driver.due()
        if action[0] in at_once and (action[0] != "plan" or action[2] == limit) and taken[action] < AT_ONCE_AT_MOST
    ]:
        for action in steps:
            world.apply(action)
        taken.update(steps)


_Path: TypeAlias = "tuple[Action, _Path | None]"


def _choices(
    world: World, kinds: list[str], left: tuple[int, ...], limit: int | None
) -> Iterator[tuple[Action, tuple[int, ...]]]:
    due, may = world.actions()
    new = [letter for letter, checkpoint in world.streams.items() if not checkpoint.drivers]
    for action in due:
        if (action[0] != "plan" or action[2] == limit) and (action[0] != "start" or action[1] not in new[1:]):
            yield action, left
    for action in may:
        if action[0] in kinds and left[at := kinds.index(action[0])]:
            yield action, (*left[:at], left[at] - 1, *left[at + 1 :])


def _actions(path: _Path | None) -> tuple[Action, ...]:
    actions: list[Action] = []
    while path is not None:
        actions.append(path[0])
        path = path[1]
    return tuple(reversed(actions))
