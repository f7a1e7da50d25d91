//! Attempts that are forked from a Python with their modules. What can go wrong is in
//! `preload_trouble`.

use std::path::Path;

use packhorse_model::{Command, CoreId, Outcome, OutputMode, ProcessEvent, Stream};
use packhorse_supervisor::{Children, StartResult};
use packhorse_test_parts::needs;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::Pid;

use crate::support::{ALL_CHILDREN, Wanted, World, alone, is_alive, line};

/// A task of these words that has `heavy` imported before.
pub fn preloaded(words: &[&str]) -> Wanted {
    Wanted {
        command: Command::Words(words.iter().map(|word| word.as_bytes().to_vec()).collect()),
        preload: vec!["heavy".to_owned()],
        ..line("")
    }
}

pub fn code(code: &str) -> Wanted {
    preloaded(&["python3", "-c", code])
}

/// A module that says when it is imported, and by whom.
pub const HEAVY: &str = "\
import os
with open(os.path.dirname(__file__) + '/imports', 'a') as file:
    print(os.getpid(), file=file)
";

pub fn world() -> World {
    let world = World::new();
    world.write("heavy.py", HEAVY);
    world
}

impl World {
    /// Who has imported the module, in order.
    pub fn importers(&self) -> Vec<String> {
        self.read("imports").lines().map(str::to_owned).collect()
    }

    /// Lets the supervisor work until somebody writes to a fifo, and returns that.
    pub fn work_until_told(&mut self, fifo: &Path) -> String {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fifo = rustix::fs::open(fifo, flags, Mode::empty()).unwrap();
        let mut buffer = [0; 64];
        loop {
            let mut ready =
                [PollFd::new(&fifo, PollFlags::IN), PollFd::new(&self.supervisor, PollFlags::IN)];
            poll(&mut ready, None).unwrap();
            if ready[0].revents().contains(PollFlags::IN) {
                let length = rustix::io::read(&fifo, &mut buffer).unwrap();
                return String::from_utf8_lossy(&buffer[..length]).into_owned();
            }
            self.supervisor.drain(&mut self.events).unwrap();
        }
    }

    pub fn run_well(&mut self, number: u32, wanted: &Wanted) {
        assert!(matches!(self.start(number, wanted), StartResult::Waiting | StartResult::Later));
        let end = self.end_of(number);
        let log = self.log(number, wanted.attempt);
        assert_eq!((end.outcome, end.message), (Outcome::Succeeded, None), "{log}");
    }
}

pub fn pid(text: &str) -> Pid {
    Pid::from_raw(text.trim().parse().unwrap()).unwrap()
}

#[test]
fn modules_are_imported_once_for_all_tasks() {
    needs!(Python);
    let mut world = world();
    for number in 1..=20 {
        let print = "import heavy; print('this is', open('/dev/null').fileno() > 2)";
        world.run_well(number, &code(print));
        assert_eq!(world.log(number, 1), "this is True\n");
    }
    assert_eq!(world.importers().len(), 1);
    assert!(world.supervisor.is_idle());
}

/// What each prints, and how it ends, must be the same as in a Python of its own.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("status", &["-c", "import sys; sys.exit(3)"]),
    ("negative status", &["-c", "import sys; sys.exit(-2)"]),
    ("text as status", &["-c", "import sys; print('a'); sys.exit('why')"]),
    ("no status", &["-c", "raise SystemExit"]),
    ("signal", &["-c", "import os; os.kill(os.getpid(), 15)"]),
    ("abort", &["-c", "import os; os.abort()"]),
    ("interrupt", &["-c", "raise KeyboardInterrupt"]),
    ("trace", &["-c", "def f():\n  1/0\nf()"]),
    ("trace of a script", &["trace.py"]),
    ("trace of a module", &["-m", "trace"]),
    ("syntax", &["-c", "a b"]),
    ("syntax of a script", &["syntax.py", "x"]),
    ("missing script", &["missing.py"]),
    ("missing module", &["-m", "missing"]),
    ("script", &["show.py", "a", "-c", "b"]),
    ("module", &["-m", "show", "a", "-c"]),
    ("module in a package", &["-m", "package", "x"]),
    ("code", &["-c", "import show", "a", "-m"]),
    ("options", &["-u", "-O", "-W", "error", "-X", "dev", "show.py"]),
    ("isolated", &["-I", "show.py"]),
    ("unflushed file", &["unflushed.py"]),
    ("last words", &["last.py"]),
    ("hook", &["-c", "import sys; sys.excepthook = lambda *a: print('hook', a[0]); 1/0"]),
    ("wrong hook", &["-c", "import sys; sys.excepthook = 1; 1/0"]),
    ("closed output", &["-c", "import os; print('a'); os.close(1)"]),
    ("state", &["state.py"]),
    ("workers", &["workers.py"]),
    ("pickles", &["pickles.py"]),
];

const FILES: &[(&str, &str)] = &[
    ("trace.py", "def f():\n    raise ValueError('é')\nf()\n"),
    ("syntax.py", "a = (\n"),
    (
        "show.py",
        "\
import os, sys
main = sys.modules['__main__']
print(__name__, __file__, sys.argv, sys.orig_argv, sys.path, os.getcwd(), sys.executable)
print(sorted(vars(main)), main.__spec__ and main.__spec__.name, type(main.__loader__))
print(main.__package__, main.__doc__, sys.flags, sys.warnoptions, __debug__)
",
    ),
    ("package/__init__.py", ""),
    (
        "package/__main__.py",
        "import sys; from . import other; print(__package__, sys.argv, other.A)\n",
    ),
    ("package/other.py", "A = 1\n"),
    (
        "unflushed.py",
        "\
import heavy, other
heavy.file = open('heavy.txt', 'w')
heavy.file.write('heavy')
kept = open('kept.txt', 'w')
kept.write('kept')
other.file = open('other.txt', 'w')
other.file.write('other')
def f():
    return kept
",
    ),
    ("other.py", ""),
    (
        "last.py",
        "\
import atexit, sys, threading, weakref
class Last:
    def __del__(self):
        print('deleted', file=sys.stderr, flush=True)
last = Last()
other = Last()
other.other = other
weakref.finalize(last, print, 'finalized', flush=True)
atexit.register(print, 'at the end', flush=True)
def late():
    ready.wait()
    print('thread', flush=True)
ready = threading.Event()
threading.Thread(target=late).start()
threading.Thread(target=threading.Event().wait, daemon=True).start()
print('main', flush=True)
ready.set()
sys.exit(4)
",
    ),
    (
        "state.py",
        "\
import gc, os, resource, signal, sys
print(os.getppid(), os.getpid() == os.getpgrp(), os.getsid(0), os.umask(0), os.nice(0))
print(sorted(os.sched_getaffinity(0)), resource.getrlimit(resource.RLIMIT_NOFILE))
print([(n, str(signal.getsignal(n))) for n in sorted(signal.valid_signals())])
print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
print(sorted(os.listdir('/proc/self/fd'))[:3], len(os.listdir('/proc/self/fd')))
print(os.readlink('/proc/self/fd/0'), sys.stdin.read() == '', sys.stdout.line_buffering)
print(sys.stdout.encoding, sys.stderr.errors, sys.stdout.isatty(), gc.isenabled())
print(open('/proc/self/cmdline').read().rstrip('\\0').split('\\0'))
print(open('/proc/self/comm').read())
skip = {'PACKHORSE_TASK', 'PACKHORSE_ATTEMPT', '_'}
print(sorted((k, v) for k, v in os.environ.items() if k not in skip))
import ctypes
print(ctypes.CDLL(None).getenv(b'PACKHORSE_SERVICE'))
marks = [e for e in open('/proc/self/environ').read().split('\\0') if e.startswith('PACKHORSE_')]
print([m for m in marks if 'TASK' in m] == ['PACKHORSE_TASK=' + os.environ['PACKHORSE_TASK']])
print([m for m in marks if 'SERVICE' in m], [m for m in marks if 'ATTEMPT' in m])
",
    ),
    (
        "workers.py",
        "\
import concurrent.futures, multiprocessing, os, subprocess, sys
def square(x):
    return x * x
if __name__ == '__main__':
    for method in ('fork', 'spawn', 'forkserver'):
        context = multiprocessing.get_context(method)
        with context.Pool(2) as pool:
            print(method, pool.map(square, range(4)))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        print(list(pool.map(square, range(4))))
    print(subprocess.check_output(['sh', '-c', 'echo $SEED; pwd']))
",
    ),
    (
        "pickles.py",
        "\
import pickle, pickletools
class Of:
    def __init__(self):
        self.main = 1
data = pickle.dumps(Of())
print(data, pickle.loads(data).main, Of.__module__)
",
    ),
];

#[test]
fn a_task_does_what_it_does_in_a_python_of_its_own() {
    needs!(Python);
    let mut world = world();
    fs_err::create_dir(world.path("package")).unwrap();
    for (name, text) in FILES {
        world.write(name, text);
    }
    let mut number = 0;
    for (name, words) in PROGRAMS {
        let mut wanted = preloaded(&[&["python3"], *words].concat());
        // Whoever runs the tests may have set it.
        let buffered = ("PYTHONUNBUFFERED".into(), "".into());
        wanted.environment = vec![("SEED".into(), "7".into()), buffered];
        if words[0] == "-I" {
            // It does not look beside the script.
            wanted.preload = vec!["json".to_owned()];
        }
        let mut results = Vec::new();
        for preload in [vec![], wanted.preload.clone()] {
            number += 1;
            wanted.preload = preload;
            let end = world.run(number, &wanted);
            let log = world.log(number, 1);
            let files = ["kept.txt", "other.txt", "heavy.txt"].map(|file| {
                let text = world.read(file);
                let _ = fs_err::remove_file(world.path(file));
                text
            });
            results.push((end.outcome, end.message, log, files));
        }
        assert_eq!(results[0], results[1], "{name}: {}", results[1].2);
        // The helpers of its workers end when they notice that it has.
        if *name != "workers" {
            assert_eq!(world.troubles(number), Vec::<&str>::new(), "{name}");
        }
    }
    // With other options it is another Python; and one program imports it itself.
    assert_eq!(world.importers().len(), 3);
}

#[test]
fn environment_folder_cores_and_output_are_the_tasks_own() {
    needs!(Python);
    let mut world = world();
    fs_err::create_dir(world.path("deep")).unwrap();
    let show = "\
import os, sys
print(os.environ['SEED'], os.environ.get('GONE'), os.sched_getaffinity(0), os.getcwd())
print('error', file=sys.stderr)
sys.stdout.write('no newline')";
    world.write("show.py", show);
    let script = world.path("show.py");
    for number in 1..=2 {
        let mut wanted = preloaded(&["python3", script.to_str().unwrap()]);
        wanted.environment = vec![("SEED".into(), number.to_string().into())];
        if number == 1 {
            wanted.environment.push(("GONE".into(), "1".into()));
        } else {
            wanted.folder = Some(world.path("deep"));
            wanted.output = OutputMode::Lines;
        }
        wanted.cores = vec![CoreId(0)];
        world.run_well(number, &wanted);
        let log = world.log(number, 1);
        let gone = if number == 1 { "1" } else { "None" };
        let folder = fs_err::canonicalize(wanted.folder.unwrap_or_else(|| world.path("")));
        let folder = folder.unwrap();
        let first = format!("{number} {gone} {{0}} {}\n", folder.display());
        assert!(log.contains(&first), "{log}");
        assert!(log.contains("error\n") && log.contains("no newline"), "{log}");
    }
    let errors = world.events.iter().filter_map(|event| match event {
        ProcessEvent::Output { bytes, stream, .. } if *stream == Stream::Stderr => Some(&**bytes),
        _ => None,
    });
    assert_eq!(errors.collect::<Vec<_>>().concat(), b"error\n");
    assert_eq!(world.importers().len(), 1);
}

#[test]
fn no_gpu_is_seen_while_modules_are_imported() {
    needs!(Python);
    let mut world = World::new();
    world.write("heavy.py", "import os\nSEEN = os.environ['CUDA_VISIBLE_DEVICES']\n");
    let mut wanted =
        code("import heavy, os; print([heavy.SEEN, os.environ['CUDA_VISIBLE_DEVICES']])");
    for number in 1..=2 {
        wanted.environment = vec![("CUDA_VISIBLE_DEVICES".into(), number.to_string().into())];
        world.run_well(number, &wanted);
        assert_eq!(world.log(number, 1), format!("['', '{number}']\n"));
    }
}

/// Makes generators while it is imported, with and without seeds.
const GENERATORS: &str = "\
import copy, pickle, random
from random import Random, seed
class Own(Random):
    pass
random.seed(1)
random.seed()
fresh = [Random(), Own(), Random(3)]
fresh[2].seed()
fixed = [Random(4), Own(5), Random(), Random()]
fixed[2].seed('six')
fixed[3].setstate(Random(7).getstate())
def copies(of):
    given = Random(8)
    given.setstate(of.getstate())
    return [copy.copy(of), copy.deepcopy(of), pickle.loads(pickle.dumps(of)), given]
fresh += copies(Random()) + copies(copies(Own())[1])
fresh.append(Random(8))
fresh[-1].setstate(random.getstate())
fixed += copies(Random(9)) + copies(copies(Own(10))[1])
same = copies(fresh[0])
system = random.SystemRandom()
";

#[test]
fn generators_without_a_seed_differ_from_task_to_task_and_others_do_not() {
    needs!(Python);
    let mut world = World::new();
    world.write("heavy.py", GENERATORS);
    let draw = "\
import heavy, random
print([random.random()] + [it.random() for it in heavy.fresh])
print([it.random() for it in heavy.fixed], heavy.system.random() < 1)
print(len({it.random() for it in heavy.same}))
heavy.seed(8)
print(random.random(), random.gauss(0, 1))";
    let mut wanted = code(draw);
    let mut fresh: Vec<Vec<String>> = Vec::new();
    let mut fixed: Vec<String> = Vec::new();
    for number in 1..=4 {
        if number > 2 {
            wanted.preload.clear();
        }
        assert_eq!(world.run(number, &wanted).outcome, Outcome::Succeeded, "{number}");
        let log = world.log(number, 1);
        let (first, rest) = log.split_once('\n').unwrap();
        fresh.push(first.trim_matches(['[', ']']).split(", ").map(str::to_owned).collect());
        fixed.push(rest.to_owned());
    }
    assert!(fixed.iter().all(|drawn| *drawn == fixed[3]), "{fixed:?}");
    assert_eq!(fresh[0].len(), 13);
    for place in 0..13 {
        let mut drawn: Vec<&str> = fresh.iter().map(|drawn| &*drawn[place]).collect();
        drawn.sort_unstable();
        drawn.dedup();
        assert_eq!(drawn.len(), 4, "{place}: {fresh:?}");
    }
}

#[test]
fn a_seed_that_a_module_sets_for_all_is_that_of_each_task() {
    needs!(Python);
    let mut world = World::new();
    world.write("heavy.py", "import random\nrandom.seed(1)\nrandom.random()\n");
    let mut wanted = code("import heavy, random; print(random.random())");
    for number in 1..=3 {
        if number == 3 {
            wanted.preload.clear();
        }
        assert_eq!(world.run(number, &wanted).outcome, Outcome::Succeeded);
        assert_eq!(world.log(number, 1), world.log(1, 1));
    }
}

#[test]
fn what_libraries_read_when_they_are_loaded_needs_another_python() {
    needs!(Python);
    let mut world = world();
    let mut wanted = code("import os; print(os.environ['OMP_NUM_THREADS'])");
    for (number, threads) in [(1, "1"), (2, "2"), (3, "1")] {
        wanted.environment = vec![("OMP_NUM_THREADS".into(), threads.into())];
        world.run_well(number, &wanted);
        assert_eq!(world.log(number, 1).trim(), threads);
    }
    assert_eq!(world.importers().len(), 2);
}

#[test]
fn only_so_many_pythons_are_kept() {
    needs!(Python);
    let mut world = world();
    let mut wanted = code("pass");
    for number in 1..=12 {
        wanted.environment = vec![("OMP_NUM_THREADS".into(), number.to_string().into())];
        world.run_well(number, &wanted);
    }
    let importers = world.importers();
    while importers.iter().filter(|pid| is_alive(pid)).count() > 8 {
        world.wait();
    }
    assert!(is_alive(&importers[11]));
    assert!(!is_alive(&importers[0]));
}

#[test]
fn many_at_once_are_all_told_how_they_ended() {
    needs!(Python);
    if !alone("preloading::many_at_once_are_all_told_how_they_ended") {
        return;
    }
    for children in ALL_CHILDREN.into_iter().chain([Children::Marked]) {
        let mut world = World::with(children);
        world.write("heavy.py", HEAVY);
        let wanted: Vec<Wanted> =
            (0..3).map(|status| code(&format!("import os; os._exit({status})"))).collect();
        let all = 300;
        let mut started = 0;
        let mut ended = 0;
        let mut told = 0;
        while ended < all {
            while started < all && started - ended < 16 {
                started += 1;
                world.start(started, &wanted[(started % 3) as usize]);
            }
            world.wait();
            for event in std::mem::take(&mut world.events) {
                match event {
                    ProcessEvent::Started { .. } => told += 1,
                    ProcessEvent::Ended(end) => {
                        ended += 1;
                        let outcome = match end.task.number % 3 {
                            0 => Outcome::Succeeded,
                            code => Outcome::Failed { code: code.cast_signed() },
                        };
                        assert_eq!((end.outcome, end.message), (outcome, None), "{children:?}");
                    }
                    other => panic!("{children:?}: {other:?}"),
                }
            }
        }
        assert_eq!((told, world.importers().len()), (all, 1), "{children:?}");
        assert!(world.supervisor.is_idle());
        let python = world.importers().remove(0);
        world.supervisor.finish();
        assert!(!is_alive(&python));
    }
}
