# The random generators that preloaded modules make.
#
# In a Python of its own, each task has generators that the system's entropy has seeded, and
# generators to which a module gives a seed while it is imported. Forks share both. So a fork
# seeds the former anew and leaves the latter as they are. The two look alike afterwards, so
# while modules are imported it is recorded what generators are given. One rule decides: a
# generator is renewed if the seed or the state that it was given last comes from entropy,
# which includes each state that is read from such a generator.
import gc
import sys
from _weakref import ref


def subclasses_of(kind):
    """A class and all below it."""
    yield kind
    for below in kind.__subclasses__():
        yield from subclasses_of(below)


def put(owner, name, value):
    """Sets an attribute, also of a type written in C, whose attributes cannot be set."""
    try:
        setattr(owner, name, value)
    except TypeError:
        import ctypes

        (attributes,) = gc.get_referents(vars(owner))
        attributes[name] = value
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(owner))


def digest(state):
    """A number for a state: the same for equal states."""

    def freeze(part):
        if isinstance(part, dict):
            return tuple((name, freeze(part[name])) for name in sorted(part))
        return part.tobytes() if hasattr(part, "tobytes") else part

    return hash(freeze(state))


class Generators:
    """What has to be done about generators in each fork."""

    def __init__(self):
        #: What each fork calls: functions, each with its arguments.
        self.renewals = []
        self.patches = []
        #: What decides, at the end, about the libraries that were seen.
        self.settles = []
        #: What keeps tasks from having random numbers of their own; in order, once each.
        self.notices = {}
        #: Seeds, and digests of states, that come from entropy.
        self.entropies = set()
        #: Instances of `random.Random` whose state comes from entropy.
        self.randoms = {}
        #: Bit generators of numpy that were given a state, and if that comes from entropy.
        self.given = {}
        #: Generators of torch that were given something, and what seeds all devices if
        #: that was done.
        self.torches = {}
        self.seed_devices = None
        self.watched = {
            "random": self.watch_random,
            "numpy.random.bit_generator": self.watch_entropy_of_numpy,
            "numpy.random": self.watch_numpy,
            "torch": self.watch_torch,
            "tensorflow.python.eager.context": self.watch_tensorflow,
        }

    def watch(self):
        """Begins to record."""
        sys.meta_path.insert(0, self)
        for name in self.watched:
            if name in sys.modules:
                self.imported(sys.modules[name])

    def imported(self, module):
        self.attempt(self.watched[module.__name__], module)

    def attempt(self, step, module):
        """Takes a step that needs the insides of a library, which may change."""
        try:
            step(module)
        except Exception:
            name = module.__name__.partition(".")[0]
            text = f"the generators of {name} cannot be renewed: tasks may draw the same numbers"
            self.notices[text] = None

    def find_spec(self, name, path=None, target=None):
        """Finds what others find, to see it before the module that imports it goes on."""
        if name not in self.watched:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find and finder is not self else None
            if spec is not None:
                break
        else:
            return None
        loader = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None:
            return spec

        def exec_module(module):
            execute(module)
            if module.__name__ == name:
                del loader.exec_module
                self.imported(module)

        loader.exec_module = exec_module
        return spec

    def patch(self, owner, name, value, *copies):
        """Replaces what is called `name` until all is settled, also in modules that copy it."""
        known = vars(owner)[name]
        for place in (owner, *map(sys.modules.get, copies)):
            if hasattr(place, name):
                self.patches.append((place, name, known))
                put(place, name, value)

    def settle(self):
        """Ends recording: decides what is to be done in each fork."""
        sys.meta_path.remove(self)
        for patch in self.patches:
            put(*patch)
        for settle, module in self.settles:
            self.attempt(settle, module)

    def renew(self):
        """Gives this process what its own Python would have."""
        for renewal, *things in self.renewals:
            renewal(*things)

    def renew_alike(self, renewal, pairs):
        """Has things renewed, those with the same key alike: they are copies."""
        alike = {}
        for key, thing in pairs:
            alike.setdefault(key, [renewal]).append(thing)
        self.renewals.extend(alike.values())

    def is_entropy(self, seed):
        return seed is None or isinstance(seed, int) and seed in self.entropies

    # -- random ------------------------------------------------------------------------

    def watch_random(self, module):
        kind, known = module.Random, module._inst
        seed, getstate, setstate = kind.seed, kind.getstate, kind.setstate

        def record(generator, is_entropy):
            if is_entropy:
                self.randoms[id(generator)] = ref(generator)
            else:
                self.randoms.pop(id(generator), None)

        def watched_seed(generator, a=None, *args, **kwargs):
            seed(generator, a, *args, **kwargs)
            record(generator, self.is_entropy(a))

        def watched_getstate(generator):
            state = getstate(generator)
            if id(generator) in self.randoms:
                self.entropies.add(digest(state))
            return state

        def watched_setstate(generator, state):
            setstate(generator, state)
            record(generator, digest(getstate(generator)) in self.entropies)

        record(known, True)
        self.patch(kind, "seed", watched_seed)
        self.patch(kind, "getstate", watched_getstate)
        self.patch(kind, "setstate", watched_setstate)
        for name in ("seed", "getstate", "setstate"):
            self.patch(module, name, getattr(known, name))
        self.settles.append((self.settle_random, module))

    def settle_random(self, module):
        kind, known = module.Random, module._inst
        if id(known) not in self.randoms:
            # Python itself seeds it anew in a fork.
            self.renewals.append((known.setstate, known.getstate()))
        generators = [reference() for reference in self.randoms.values()]

        def renew(first, *copies):
            kind.seed(first)
            for copy in copies:
                kind.setstate(copy, kind.getstate(first))

        self.renew_alike(
            renew, [(digest(kind.getstate(one)), one) for one in generators if one is not None]
        )

    # -- numpy -------------------------------------------------------------------------

    def watch_entropy_of_numpy(self, module):
        randbits = module.randbits

        def watched(bits):
            entropy = randbits(bits)
            self.entropies.add(entropy)
            return entropy

        self.patch(module, "randbits", watched)

    def watch_numpy(self, module):
        sequence = module.mtrand._rand._bit_generator._seed_seq
        self.entropies.add(getattr(sequence, "entropy", None))
        for kind in kinds_of_numpy(module.BitGenerator):
            if "state" in vars(kind):
                self.watch_states_of_numpy(kind)
        legacy_seeding = module.MT19937._legacy_seeding

        def watched(generator, seed):
            legacy_seeding(generator, seed)
            self.given[id(generator)] = generator, self.is_entropy(seed)

        self.patch(module.MT19937, "_legacy_seeding", watched)
        self.settles.append((self.settle_numpy, module))

    def watch_states_of_numpy(self, kind):
        state = vars(kind)["state"]

        def read(generator):
            value = state.__get__(generator)
            if self.has_entropy(generator):
                self.entropies.add(digest(value))
            return value

        def give(generator, value):
            state.__set__(generator, value)
            is_entropy = digest(state.__get__(generator)) in self.entropies
            self.given[id(generator)] = generator, is_entropy

        self.patch(kind, "state", property(read, give))

    def has_entropy(self, generator):
        if id(generator) in self.given:
            return self.given[id(generator)][1]
        return self.is_entropy_of_numpy(getattr(generator, "_seed_seq", None))

    def is_entropy_of_numpy(self, sequence):
        # A seed sequence knows its entropy, unless it is of another kind.
        return self.is_entropy(getattr(sequence, "entropy", ()))

    def settle_numpy(self, module):
        sequences, generators, states = map(
            kinds_of_numpy, (module.SeedSequence, module.BitGenerator, module.RandomState)
        )
        things = gc.get_objects()
        self.renew_alike(
            renew_bits,
            [
                ((type(one), digest(one.state)), one)
                for one in things
                if type(one) in generators and self.has_entropy(one)
            ],
        )
        for one in things:
            if type(one) in sequences and self.is_entropy_of_numpy(one):
                self.renewals.append((renew_sequence, one))
            elif type(one) in states and self.has_entropy(one._bit_generator):
                forget_half_of_pair(one)

    # -- torch -------------------------------------------------------------------------

    def watch_torch(self, module):
        kind, known = module.Generator, module.default_generator
        self.entropies.add(known.initial_seed())
        self.torches[id(known)] = known

        def watch(name, function):
            def watched(generator, *args, **kwargs):
                result = function(generator, *args, **kwargs)
                if name == "seed":
                    self.entropies.add(result)
                for one in (generator, result):
                    if isinstance(one, kind):
                        self.torches[id(one)] = one
                return result

            self.patch(kind, name, watched)

        watch("seed", kind.seed)
        # A state has the seed with it.
        for name in ("manual_seed", "set_state", "__setstate__", "clone_state"):
            if name in vars(kind):
                watch(name, vars(kind)[name])
        seed = module.seed

        def watched_seed():
            # CUDA's generators get this one, unless they are told another. Else they get
            # entropy when a task first uses them.
            self.seed_devices = seed
            return seed()

        self.patch(module, "seed", watched_seed, "torch.random")
        self.settles.append((self.settle_torch, module))

    def settle_torch(self, module):
        def renew(first, *copies):
            seed = first.seed
            if first is module.default_generator and self.seed_devices:
                seed = self.seed_devices
            number = seed()
            for copy in copies:
                copy.manual_seed(number)

        seeds = [(one.initial_seed(), one) for one in self.torches.values()]
        self.renew_alike(renew, [pair for pair in seeds if pair[0] in self.entropies])

    # -- tensorflow --------------------------------------------------------------------

    def watch_tensorflow(self, module):
        self.settles.append((self.settle_tensorflow, module))

    def settle_tensorflow(self, module):
        # Seeds are Python's, which a fork has. Entropy, and the threads that compute, are
        # in C++ from the first computation on, and nothing reaches them there.
        context = module.context_safe()
        if context is not None and context._initialized:
            text = (
                "TensorFlow computes while modules are imported: tasks may hang, or draw the"
                " same random numbers: preload only modules that do not compute with it"
            )
            self.notices[text] = None


def kinds_of_numpy(kind):
    """A class of numpy and those below it, without those of others: they may differ."""
    return {one for one in subclasses_of(kind) if one.__module__.startswith("numpy.random.")}


def renew_bits(*copies):
    state = type(copies[0])().state
    for copy in copies:
        copy.state = state


def renew_sequence(sequence):
    sequence.__init__(
        spawn_key=sequence.spawn_key,
        pool_size=sequence.pool_size,
        n_children_spawned=sequence.n_children_spawned,
    )


def forget_half_of_pair(state):
    """Normal numbers are made in pairs: the second of one that was made before is nobody's."""
    known = state.get_state(legacy=False)
    if known["has_gauss"]:
        known["has_gauss"], known["gauss"] = 0, 0.0
        state.set_state(known)
