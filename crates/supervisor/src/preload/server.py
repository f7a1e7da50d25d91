# A Python that imports modules once, and forks itself for each task that needs them.
#
# The supervisor runs this text with `-c`. It finds its control socket (a SOCK_SEQPACKET
# pair) as descriptors 0, 1 and 2: what the interpreter says before we have come this far
# arrives there, too. Words in messages are separated by zeros.
#
#   from the supervisor                            to the supervisor
#   "hello"  + lifeline, output, what to import ─▶ "ready" | "failed", module, error, traceback
#   id, task           + gate, 0, 1, 2       ──▶   "forked", id, number | "unforked", id, errno
#                                                  "notice", text
#
# A task's process is the child of a child that ends at once, so it becomes the child of
# the supervisor. It waits at its gate until the supervisor knows its number; if the gate
# is shut instead, it was never there.
import _socket
import _signal as signal
import gc
import os
import sys

# How many tasks are forked from one intermediate process, if so many wait.
TOGETHER = 8
LONGEST_MESSAGE = 1 << 17
# The variable that holds place for the marks of a task.
PLACE = b"PACKHORSE_SERVICE="


def receive(control, flags):
    data, rights, _, _ = control.recvmsg(
        LONGEST_MESSAGE, _socket.CMSG_SPACE(8 * 4), _socket.MSG_CMSG_CLOEXEC | flags
    )
    descriptors = []
    for level, kind, numbers in rights:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            descriptors.extend(memoryview(numbers[: len(numbers) // 4 * 4]).cast("i"))
    return data, descriptors


def read_whole(descriptor):
    data = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    os.close(descriptor)
    return data


def variables_of(entries):
    return dict(entry.split(b"=", 1) for entry in entries)


class Names:
    """Where the kernel finds the command line and the environment of this process.

    A fork would show those of the server, and its processes could not be told from
    another task's. The places are ours to write to.
    """

    def __init__(self):
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        self.command, command_end, environment = map(int, fields[45:48])
        self.command_room = command_end - self.command
        with open("/proc/self/cmdline", "rb") as file:
            self.program = file.read().partition(b"\0")[0]
        with open("/proc/self/environ", "rb") as file:
            at = (b"\0" + file.read()).index(b"\0" + PLACE)
        self.marks = environment + at
        self.marks_room = len(PLACE) + len(os.environb[PLACE[:-1]])

    def write(self, words, marks=None):
        room = self.command_room - 1
        memory = os.open("/proc/self/mem", os.O_RDWR | os.O_CLOEXEC)
        try:
            line = b"\0".join(words)[:room]
            os.pwrite(memory, line.ljust(room, b"\0"), self.command)
            if marks is not None:
                marks = b"\0".join(marks)[: self.marks_room]
                os.pwrite(memory, marks.ljust(self.marks_room, b"\0"), self.marks)
        finally:
            os.close(memory)


def die_with(lifeline):
    """Has the kernel kill this process when the other end is closed.

    That also works while a module that is being imported never comes back.
    """
    import fcntl

    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    try:
        if not os.read(lifeline, 1):
            os._exit(0)
    except BlockingIOError:
        pass


def without_ours(trace):
    """A traceback without the frames of this file."""
    while trace is not None and trace.tb_frame.f_globals is OURS:
        trace = trace.tb_next
    at = trace
    while at is not None:
        while at.tb_next is not None and at.tb_next.tb_frame.f_globals is OURS:
            at.tb_next = at.tb_next.tb_next
        at = at.tb_next
    return trace


def blank_main():
    main = type(sys)("__main__")
    main.__builtins__ = __builtins__
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    sys.modules["__main__"] = main
    return main


def failure(name, error):
    import traceback

    short = traceback.format_exception_only(type(error), error)[-1].strip()
    trace = traceback.format_exception(type(error), error, without_ours(error.__traceback__))
    trace = "".join(trace)[-16384:]
    return [b"failed"] + [os.fsencode(text.replace("\0", " ")) for text in (name, short, trace)]


def notices(modules):
    """What makes copies of this process differ from a new Python."""
    threading = sys.modules.get("threading")
    if threading and threading.active_count() > 1:
        names = ", ".join(
            thread.name
            for thread in threading.enumerate()
            if thread is not threading.main_thread()
        )
        yield f"importing {modules} started threads ({names}), which tasks do not have"
    for number in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink("/proc/self/fd/" + number)
        except OSError:
            continue
        if path.startswith(("/dev/nvidia", "/dev/kfd")):
            yield (
                f"importing {modules} opens the GPU driver ({path}), which may not work in"
                " tasks then: preload only modules that leave the GPU alone"
            )
            break


def prepare():
    """Imports the modules."""
    control = _socket.socket(fileno=os.dup(0))
    _, (lifeline, output, order) = receive(control, 0)
    die_with(lifeline)
    order = read_whole(order).split(b"\0")
    count = int(order[0])
    path, *modules = map(os.fsdecode, order[1:count])
    given = variables_of(order[count:])
    now = dict(os.environb)
    # The interpreter's name may be that of a script, which sets variables first.
    changed = {name: now.get(name) for name in given.keys() | now.keys()}
    changed = {name: value for name, value in changed.items() if given.get(name) != value}
    names = Names()
    names.write([names.program, b"# packhorse: a Python with", ",".join(modules).encode()])
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(null)
    os.close(output)
    # What `-c` puts there. The task's own is put there below.
    has_path = not getattr(sys.flags, "safe_path", sys.flags.isolated)
    if has_path:
        sys.path[0] = path
    sys.argv[:] = [""]
    blank_main()
    generators = Generators()
    generators.watch()
    for name in modules:
        try:
            __import__(name)
        except BaseException as error:
            control.send(b"\0".join(failure(name, error)))
            os._exit(1)
    generators.settle()
    for text in (*generators.notices, *notices(", ".join(modules))):
        control.send(b"notice\0" + text.encode())
    sys.stdout.flush()
    sys.stderr.flush()
    return control, lifeline, names, has_path, changed, generators


def fork_all(requests, close):
    """Forks a process for each request.

    Returns the request that the caller is the process of; or None and, for each, the
    number of the process or, negative, what kept it from being made.
    """
    import warnings

    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # That there are threads. It is told in our own words.
        warnings.simplefilter("ignore")
        try:
            between = os.fork()
        except OSError as error:
            os.close(reader)
            os.close(writer)
            return None, [-error.errno] * len(requests)
        if between == 0:
            numbers = []
            for request in requests:
                try:
                    number = os.fork()
                except OSError as error:
                    number = -error.errno
                if number == 0:
                    os.setpgid(0, 0)
                    os.close(reader)
                    os.close(writer)
                    break
                if number > 0:
                    try:
                        os.setpgid(number, number)
                    except OSError:
                        # It was killed, or shut out and has ended.
                        pass
                numbers.append(number)
            else:
                os.write(writer, b" ".join(b"%d" % number for number in numbers))
                os._exit(0)
            # The task, which needs none of the others' descriptors.
            for other in requests:
                if other is not request:
                    for descriptor in other[1]:
                        os.close(descriptor)
    if between == 0:
        for descriptor in close:
            os.close(descriptor)
        return request, None
    os.close(writer)
    numbers = os.read(reader, 4096)
    os.close(reader)
    # Only when it is gone its children are the supervisor's.
    os.waitpid(between, 0)
    numbers = [int(number) for number in numbers.split()]
    # It was killed: no such process (ESRCH). What it forked was shut out.
    return None, numbers or [-3] * len(requests)


def serve(control, lifeline):
    """Forks tasks as they are asked for. Returns in each of them, with what it is."""
    while True:
        requests = []
        while len(requests) < TOGETHER:
            try:
                message, descriptors = receive(
                    control, _socket.MSG_DONTWAIT if requests else 0
                )
            except BlockingIOError:
                break
            if not message:
                os._exit(0)
            number, _, message = message.partition(b"\0")
            if not message:
                # It was too long for a message.
                message = read_whole(descriptors.pop())
            requests.append((number, descriptors, message))
        mine, numbers = fork_all(requests, [lifeline])
        if mine is not None:
            control.close()
            return mine
        for (number, descriptors, _), result in zip(requests, numbers):
            for descriptor in descriptors:
                os.close(descriptor)
            kind = b"forked" if result > 0 else b"unforked"
            control.send(b"%b\0%b\0%d" % (kind, number, abs(result)))


def become(request, names, changed, generators):
    """Gives this process what the task's own Python would have. Returns what to run."""
    _, descriptors, message = request
    gate = descriptors.pop(0)
    if not os.read(gate, 1):
        os._exit(0)
    os.close(gate)
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    kind, path, folder, cores, target, skip, count, *rest = message.split(b"\0")
    words, entries = rest[: int(count)], rest[int(count) :]
    # Its name may have been that of a script which then has executed the interpreter.
    words[0] = names.program
    variables = variables_of(entries)
    for name, value in changed.items():
        if value is None:
            variables.pop(name, None)
        else:
            variables[name] = value
    marks = (b"PACKHORSE_TASK", b"PACKHORSE_ATTEMPT")
    names.write(words, [mark + b"=" + variables.get(mark, b"") for mark in marks])
    if cores:
        try:
            os.sched_setaffinity(0, map(int, cores.split(b",")))
        except OSError:
            # Cores that are not there, or not ours, are no reason not to run.
            pass
    if folder:
        os.chdir(folder)
    zone = os.environb.get(b"TZ")
    for name in list(os.environb):
        if name not in variables:
            del os.environb[name]
    for name, value in variables.items():
        if os.environb.get(name) != value:
            os.environb[name] = value
    if variables.get(b"TZ") != zone:
        import time

        time.tzset()
    if sys.stdout is not None and not sys.stdout.line_buffering and sys.stdout.isatty():
        sys.stdout.reconfigure(line_buffering=True)
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.ORIGINAL_DIR = os.getcwd()
    generators.renew()
    target = os.fsdecode(target)
    words = [os.fsdecode(word) for word in words]
    if sys.version_info >= (3, 10):
        sys.orig_argv[:] = words
    sys.argv[:] = [target if kind == b"script" else "-" + kind.decode()] + words[int(skip) :]
    return kind, os.fsdecode(path), target


def show_lines(code, source):
    """Has tracebacks show the lines of a task's code, and not of this file."""
    import linecache

    linecache.cache.pop("<string>", None)
    known = getattr(linecache, "_interactive_cache", None)
    if known is None:
        lines = [line + "\n" for line in source.splitlines()]
        linecache.cache["<string>"] = (len(source), None, lines, "<string>")
    else:
        known.clear()
        linecache._register_code(code, source, "<string>")


def run(program, has_path, kind, path, target):
    """Runs the task's program."""
    main = blank_main()
    if kind == b"m":
        import runpy

        if has_path:
            sys.path[0] = path
        runpy._run_module_as_main(target)
        return
    if kind == b"c":
        from importlib.machinery import BuiltinImporter

        if has_path:
            sys.path[0] = ""
        main.__loader__ = BuiltinImporter
        source, name = target, "<string>"
        if sys.version_info >= (3, 14):
            import textwrap

            source = textwrap.dedent(source)
    else:
        from importlib.machinery import SourceFileLoader
        import io

        if has_path:
            sys.path[0] = path
        name = os.path.join(os.getcwd(), target)
        try:
            with io.open_code(name) as file:
                source = file.read()
        except OSError as error:
            why = f"[Errno {error.errno}] {error.strerror}"
            print(f"{os.fsdecode(program)}: can't open file {name!r}: {why}", file=sys.stderr)
            raise SystemExit(2) from None
        main.__file__ = name
        main.__cached__ = None
        main.__loader__ = SourceFileLoader("__main__", name)
    code = compile(source, name, "exec", dont_inherit=True)
    if kind == b"c" and sys.version_info >= (3, 13):
        show_lines(code, source)
    del source
    exec(code, main.__dict__)


def status_of(error):
    """What the interpreter does about an exception that nobody has caught."""
    if isinstance(error, SystemExit):
        code = error.code
        if code is None:
            return 0
        if isinstance(code, int):
            return code & 0xFF if -(1 << 31) <= code < 1 << 31 else 0xFF
        print(code, file=sys.stderr)
        return 1
    kind, trace = type(error), without_ours(error.__traceback__)
    error.__traceback__ = trace
    sys.last_type, sys.last_value, sys.last_traceback = kind, error, trace
    sys.last_exc = error
    try:
        sys.excepthook(kind, error, trace)
    except SystemExit as other:
        return status_of(other)
    except BaseException as other:
        print("Error in sys.excepthook:", file=sys.stderr)
        other.__context__ = None
        other.__traceback__ = without_ours(other.__traceback__)
        sys.__excepthook__(type(other), other, other.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(kind, error, trace)
    return 1


def clear(variables):
    """Clears those of a module as the interpreter does, in the order they were made."""
    for is_private in (True, False):
        for name in list(variables):
            if name != "__builtins__" and is_private == (name[:1] == "_" != name[1:2]):
                variables[name] = None


def write_out():
    """Writes out the files that the task has open. Nothing that was frozen is among them."""
    import io

    written = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
    for thing in gc.get_objects():
        if issubclass(type(thing), written):
            try:
                thing.flush()
            except Exception:
                # It is closed, or broken.
                pass


def finish(status, known):
    """Ends the process as the interpreter would, but for the modules that were preloaded.

    Taking those apart, too, costs more than all else about a short task, and does nothing
    that anybody could see: they are as they were before the task.
    """
    import atexit

    threading = sys.modules.get("threading")
    if threading is not None:
        try:
            threading._shutdown()
        except BaseException as error:
            sys.excepthook(type(error), error, without_ours(error.__traceback__))
    atexit._run_exitfuncs()
    # What the task made and nobody holds any more is taken apart now. Its files are
    # written out before: in a cycle the wrong one of two layers may go first.
    write_out()
    sys.last_type = sys.last_value = sys.last_traceback = sys.last_exc = None
    main = sys.modules.pop("__main__", None)
    new = []
    for name in reversed(sys.modules):
        # Looking at all of them would make a copy of every page that a name is in.
        if name in known:
            break
        new.append(name)
    for name in new:
        del sys.modules[name]
    if len(sys._current_frames()) == 1:
        # A thread that goes on would stumble.
        clear(getattr(main, "__dict__", {}))
    del main
    gc.collect()
    write_out()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None and not stream.closed:
                stream.flush()
        except Exception as error:
            if stream is sys.stdout:
                is_new = sys.version_info >= (3, 13)
                what = "on flushing sys.stdout" if is_new else f"in: {stream!r}"
                print(f"Exception ignored {what}", end=":\n" if is_new else "\n", file=sys.stderr)
                error.__traceback__ = None
                sys.__excepthook__(type(error), error, None)
                status = 120
    if status == KEYBOARD_INTERRUPT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    if EXIT is not None:
        # Libraries in other languages have something to do at the end, too.
        EXIT(status)
    os._exit(status)


def work():
    control, lifeline, names, has_path, changed, generators = prepare()
    # What every task needs is done once.
    import atexit, importlib.machinery, io, warnings

    compile("", "<string>", "exec")
    known = frozenset(sys.modules)
    gc.collect()
    gc.freeze()
    control.send(b"ready")
    request = serve(control, lifeline)
    status = 0
    try:
        run(names.program, has_path, *become(request, names, changed, generators))
    except KeyboardInterrupt as error:
        status_of(error)
        status = KEYBOARD_INTERRUPT
    except BaseException as error:
        status = status_of(error)
    finish(status, known)


if sys.version_info < (3, 8):
    sys.exit("this needs Python 3.8 or newer")
OURS = globals()
# The interpreter ends by the signal that was not handled.
KEYBOARD_INTERRUPT = 128 + signal.SIGINT
try:
    import ctypes

    # It keeps the interpreter's lock: no other thread goes on.
    EXIT = ctypes.PyDLL(None).exit
except Exception:
    EXIT = None
work()
