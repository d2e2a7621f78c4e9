"""The instructions of a pickle that build values. A name is pushed as a name; nothing is imported or called by it."""

import pickle  # for the codes of its instructions
import struct
from collections.abc import Callable
from typing import Any, BinaryIO

from fairseq_poolingformer.checkpoint_reader.bounds import Budget
from fairseq_poolingformer.checkpoint_reader.builders import BUILDERS, TYPES, Foreign, finished, settled
from fairseq_poolingformer.checkpoint_reader.errors import Malformed, Refused
from fairseq_poolingformer.checkpoint_reader.whole import DICTIONARIES, Name

LAST_PROTOCOL = 5
LARGEST_NUMBER = 32  # bytes of a whole number
LONGEST_NAME = 512  # bytes
_MISSING = object()
_FORMS = {size: struct.Struct(form) for size, form in ((1, "<B"), (2, "<H"), (4, "<I"), (8, "<Q"))}
_INTEGER, _FLOAT = struct.Struct("<i"), struct.Struct(">d")


class Machine:
    """Reads pickles of one file.

    Attributes:
        foreign: names that the pickles called, and that stand for no data.
    """

    def __init__(self, file: BinaryIO, budget: Budget, storage: Callable[[Any], Any]) -> None:
        self._file, self._budget, self._storage = file, budget, storage
        self._stack: list[Any] = []
        self._outer: list[list[Any]] = []  # stacks below each mark
        self._memo: list[Any] = []
        self.foreign: set[str] = set()

    def load(self) -> Any:
        """Read one pickle, up to its end."""
        self._stack, self._outer, self._memo = [], [], []
        try:
            while (code := self._take(1)) != b".":
                self._budget.spend(1)
                instruction = _INSTRUCTIONS.get(code[0])
                if instruction is None:
                    raise Malformed(f"unknown instruction {code!r}")
                instruction(self)
            return self._pop()
        except IndexError:
            raise Malformed("an instruction lacks its values") from None
        except UnicodeDecodeError:
            raise Malformed("a text in it is not UTF-8") from None

    def _take(self, size: int) -> bytes:
        self._budget.spend_bytes(size)
        data = self._file.read(size)
        if len(data) != size:
            raise Malformed("its end is missing")
        return data

    def _number(self, size: int) -> int:
        return _FORMS[size].unpack(self._take(size))[0]

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop(self) -> Any:
        return settled(self._stack.pop())

    def _pop_mark(self) -> list[Any]:
        items = [settled(item) for item in self._stack]
        self._stack = self._outer.pop()
        return items

    def mark(self) -> None:
        self._outer.append(self._stack)
        self._stack = []

    def push_text(self, size: int) -> None:
        self._push(self._take(self._number(size)).decode("utf-8", "surrogatepass"))

    def push_bytes(self, size: int) -> None:
        self._push(self._take(self._number(size)))

    def push_integer(self) -> None:
        self._push(_INTEGER.unpack(self._take(4))[0])

    def push_long(self, size: int) -> None:
        length = self._number(size)
        if length > LARGEST_NUMBER:
            raise Refused(f"it has a number of {length:,} bytes")
        self._push(int.from_bytes(self._take(length), "little", signed=True))

    def push_float(self) -> None:
        self._push(_FLOAT.unpack(self._take(8))[0])

    def push_tuple(self, size: int) -> None:
        items = [self._pop() for _ in range(size)]
        self._push(tuple(items[::-1]))

    def push_marked_tuple(self) -> None:
        items = self._pop_mark()
        self._push(tuple(items))

    def put(self, size: int) -> None:
        place = self._number(size)
        missing = place + 1 - len(self._memo)
        if missing > 0:
            self._budget.spend(missing)
            self._memo += [_MISSING] * missing
        self._memo[place] = self._stack[-1]

    def memoize(self) -> None:
        self._memo.append(self._stack[-1])

    def get(self, size: int) -> None:
        value = self._memo[self._number(size)]
        if value is _MISSING:
            raise Malformed("it refers to a value that it lacks")
        self._push(value)

    def name(self) -> None:
        parts = []
        for _ in range(2):
            line = self._file.readline(LONGEST_NAME)
            self._budget.spend_bytes(len(line))
            if not line.endswith(b"\n"):
                raise Malformed("a name in it has no end")
            parts.append(line[:-1].decode())
        self._push_name(*parts)

    def name_from_stack(self) -> None:
        name, module = self._pop(), self._pop()
        if not (isinstance(name, str) and isinstance(module, str) and len(name) + len(module) <= LONGEST_NAME):
            raise Malformed("a name in it is not text")
        self._push_name(module, name)

    def _push_name(self, module: str, name: str) -> None:
        found = Name(f"{module}.{name}")
        self._push(TYPES.get(found.name, found))

    def append(self) -> None:
        self._extend([self._pop()])

    def append_all(self) -> None:
        self._extend(self._pop_mark())

    def _extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is list:
            target += items
        elif type(target) is not Foreign:
            raise Malformed("values are appended to something else than a list")

    def set_item(self) -> None:
        value, key = self._pop(), self._pop()
        self._update([key, value])

    def set_items(self) -> None:
        self._update(self._pop_mark())

    def _update(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is Foreign:
            return
        if type(target) not in DICTIONARIES or len(items) % 2:
            raise Malformed("entries are set in something else than a dictionary")
        self._budget.check_keys(items[::2])
        for key, value in zip(items[::2], items[1::2], strict=True):
            target[key] = value

    def add_items(self) -> None:
        items = self._pop_mark()
        target = self._stack[-1]
        if type(target) is not set:
            raise Malformed("values are added to something else than a set")
        self._budget.check_keys(items)
        target.update(items)

    def call(self) -> None:
        """Build the value that the name and arguments on the stack stand for."""
        arguments, name = self._pop(), self._pop()
        if not isinstance(arguments, tuple):
            raise Malformed("a name is called without arguments")
        if type(name) is not Name:
            raise Refused(f"it calls a {type(name).__name__}, and a checkpoint may hold nothing but data")
        builder = BUILDERS.get(name.name)
        if builder is None:
            self.foreign.add(name.name)
        self._push(Foreign() if builder is None else builder(arguments, self._budget))

    def finish(self) -> None:
        """Give the last value its state."""
        state = self._pop()
        if type(self._stack[-1]) is not Foreign:
            finished(self._stack[-1], state, self._budget)

    def storage(self) -> None:
        self._push(self._storage(self._pop()))

    def protocol(self) -> None:
        if not 2 <= (number := self._number(1)) <= LAST_PROTOCOL:
            raise Malformed(f"it is a pickle of protocol {number}")

    def frame(self) -> None:
        self._take(8)


def _pushing(make: Callable[[], Any]) -> Callable[[Machine], None]:
    return lambda machine: machine._push(make())


def _sized(instruction: Callable[[Machine, int], None], size: int) -> Callable[[Machine], None]:
    return lambda machine: instruction(machine, size)


_INSTRUCTIONS: dict[int, Callable[[Machine], None]] = {
    code[0]: instruction
    for code, instruction in {
        pickle.PROTO: Machine.protocol,
        pickle.FRAME: Machine.frame,
        pickle.MARK: Machine.mark,
        pickle.NONE: _pushing(lambda: None),
        pickle.NEWTRUE: _pushing(lambda: True),
        pickle.NEWFALSE: _pushing(lambda: False),
        pickle.BININT: Machine.push_integer,
        pickle.BININT1: lambda machine: machine._push(machine._number(1)),
        pickle.BININT2: lambda machine: machine._push(machine._number(2)),
        pickle.LONG1: _sized(Machine.push_long, 1),
        pickle.LONG4: _sized(Machine.push_long, 4),
        pickle.BINFLOAT: Machine.push_float,
        pickle.SHORT_BINSTRING: _sized(Machine.push_text, 1),
        pickle.BINSTRING: _sized(Machine.push_text, 4),
        pickle.SHORT_BINUNICODE: _sized(Machine.push_text, 1),
        pickle.BINUNICODE: _sized(Machine.push_text, 4),
        pickle.BINUNICODE8: _sized(Machine.push_text, 8),
        pickle.SHORT_BINBYTES: _sized(Machine.push_bytes, 1),
        pickle.BINBYTES: _sized(Machine.push_bytes, 4),
        pickle.BINBYTES8: _sized(Machine.push_bytes, 8),
        pickle.EMPTY_TUPLE: _pushing(tuple),
        pickle.EMPTY_LIST: _pushing(list),
        pickle.EMPTY_DICT: _pushing(dict),
        pickle.EMPTY_SET: _pushing(set),
        pickle.TUPLE: Machine.push_marked_tuple,
        pickle.TUPLE1: _sized(Machine.push_tuple, 1),
        pickle.TUPLE2: _sized(Machine.push_tuple, 2),
        pickle.TUPLE3: _sized(Machine.push_tuple, 3),
        pickle.APPEND: Machine.append,
        pickle.APPENDS: Machine.append_all,
        pickle.SETITEM: Machine.set_item,
        pickle.SETITEMS: Machine.set_items,
        pickle.ADDITEMS: Machine.add_items,
        pickle.BINPUT: _sized(Machine.put, 1),
        pickle.LONG_BINPUT: _sized(Machine.put, 4),
        pickle.MEMOIZE: Machine.memoize,
        pickle.BINGET: _sized(Machine.get, 1),
        pickle.LONG_BINGET: _sized(Machine.get, 4),
        pickle.GLOBAL: Machine.name,
        pickle.STACK_GLOBAL: Machine.name_from_stack,
        pickle.REDUCE: Machine.call,
        pickle.NEWOBJ: Machine.call,
        pickle.BUILD: Machine.finish,
        pickle.BINPERSID: Machine.storage,
    }.items()
}
